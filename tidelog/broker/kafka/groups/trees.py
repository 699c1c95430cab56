"""Functions that the group handlers share: ACL checks, deadlines, error codes, and topics given by name or id.

Every group request may be repeated, even after an unknown outcome. So a transient error is reported as
COORDINATOR_NOT_AVAILABLE, after which every client looks up the coordinator and asks again (but for OffsetFetch, which
has its own code). The codes that Produce and Fetch have for such errors would make some clients fail.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from tidelog.broker.face.groups import PATIENCE_S
from tidelog.broker.face.shares import Client
from tidelog.broker.kafka.call import Call
from tidelog.broker.kafka.codes import code_of
from tidelog.broker.kafka.listener_parts import Parts
from tidelog.model.access import Caller, Operation, Resource
from tidelog.model.errors import FencedMember, QuotaExceeded, TidelogError
from tidelog.model.kafka_codes import KafkaCode
from tidelog.model.quotas import CONTROLLER_MUTATION_RATE

Tree: TypeAlias = dict[str, Any]
GroupCall: TypeAlias = Callable[[Parts, Call, Any, Caller], Awaitable[Tree]]

PASSING: Final = (503, 507)
"""HTTP statuses of transient errors."""
LOOKED_FOR: Final = (KafkaCode.NOT_COORDINATOR, KafkaCode.COORDINATOR_NOT_AVAILABLE)
"""Codes after which clients look up the coordinator and ask again."""


def deadline_s() -> float:
    """Returns the deadline of a request to a coordinator, in loop time."""
    return asyncio.get_running_loop().time() + PATIENCE_S


def require(parts: Parts, caller: Caller, operation: Operation, group: str) -> None:
    """Raises `NotAuthorized` unless the ACLs allow the caller this operation on the group."""
    parts.refuse_unauthorized(caller, operation, Resource("Group", group))


def may_topic(parts: Parts, caller: Caller, operation: Operation, topic: str) -> bool:
    """Returns True if the ACLs allow the caller this operation on the topic. A refusal is written to the audit log."""
    return parts.may(caller, operation, Resource("Topic", topic))


async def mutate(parts: Parts, call: Call, caller: Caller) -> None:
    """Charges the client's controller mutation quota for creating or deleting a group, and waits as long as that takes.
    Raises `QuotaExceeded`."""
    if parts.face.shares.are_set:
        await parts.face.shares.use(CONTROLLER_MUTATION_RATE, Client(caller.principal, call.client_id), 1)


def group_code(error: TidelogError) -> KafkaCode:
    """Returns Kafka's error code for an error about a group. Transient errors become COORDINATOR_NOT_AVAILABLE."""
    code = code_of(error, "Group")
    if code in LOOKED_FOR:
        return code
    passes = error.status in PASSING or not error.definite or isinstance(error, QuotaExceeded)
    return KafkaCode.COORDINATOR_NOT_AVAILABLE if passes else code


def offsets_code(error: TidelogError) -> KafkaCode:
    """Returns Kafka's error code for an error about committed offsets. A member with an old epoch gets
    STALE_MEMBER_EPOCH: it learns its new epoch from a heartbeat and asks again."""
    return KafkaCode.STALE_MEMBER_EPOCH if isinstance(error, FencedMember) else group_code(error)


def name_of(parts: Parts, entry: Any) -> str | None:
    """Returns the name of the topic that part of a request is about, by its name or its id; None if no topic has that
    id."""
    if hasattr(entry, "name"):
        name: str = entry.name
        return name
    return None if entry.topic_id is None else topic_of_id(parts, entry.topic_id)


def topic_of_id(parts: Parts, topic_id: str) -> str | None:
    """Returns the name of the topic that has this id; None if no topic has it."""
    topic = parts.ids.find(parts.cluster.image, topic_id)
    return None if topic is None else topic.name


def id_of(parts: Parts, name: str) -> str | None:
    """Returns the id of a topic; None if this broker does not know it (yet, or any more)."""
    topic = parts.cluster.image.topics.get(name)
    return None if topic is None else topic.topic_id


def as_named(entry: Any) -> Tree:
    """Returns the fields that identify a topic in an answer: its name or its id, as in the request."""
    return {"name": getattr(entry, "name", None), "topic_id": getattr(entry, "topic_id", None)}
