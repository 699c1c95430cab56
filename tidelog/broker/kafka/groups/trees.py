"""Holds what the calls about groups share: rights, deadlines, codes, and topics that go by a name or by an id.

All requests about groups may be repeated, also those whose fate is unknown. So what passes by itself is told as
COORDINATOR_NOT_AVAILABLE, after which every client looks for the coordinator and asks again; the codes that partitions
have for the same would end some of them.
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
"""The statuses of what passes by itself."""
LOOKED_FOR: Final = (KafkaCode.NOT_COORDINATOR, KafkaCode.COORDINATOR_NOT_AVAILABLE)
"""Say to look for the coordinator, and to ask again."""


def deadline_s() -> float:
    """Returns when a question to a coordinator is given up, in loop time."""
    return asyncio.get_running_loop().time() + PATIENCE_S


def require(parts: Parts, caller: Caller, operation: Operation, group: str) -> None:
    """Raises `NotAuthorized` unless the caller may do this to the group."""
    parts.refuse_unauthorized(caller, operation, Resource("Group", group))


def may_topic(parts: Parts, caller: Caller, operation: Operation, topic: str) -> bool:
    """Returns True if the caller may do this to the topic; a refusal is noted in the audit log."""
    return parts.may(caller, operation, Resource("Topic", topic))


async def mutate(parts: Parts, call: Call, caller: Caller) -> None:
    """Waits for the client's share of making or deleting a group. Raises `QuotaExceeded`."""
    if parts.face.shares.are_set:
        await parts.face.shares.use(CONTROLLER_MUTATION_RATE, Client(caller.principal, call.client_id), 1)


def group_code(error: TidelogError) -> KafkaCode:
    """Returns what a member or an operator is told of an error about a group."""
    code = code_of(error, "Group")
    if code in LOOKED_FOR:
        return code
    passes = error.status in PASSING or not error.definite or isinstance(error, QuotaExceeded)
    return KafkaCode.COORDINATOR_NOT_AVAILABLE if passes else code


def offsets_code(error: TidelogError) -> KafkaCode:
    """Returns what is told of an error about committed offsets: a member of the past is told so by a heartbeat, and
    asks again with the epoch that it has then."""
    return KafkaCode.STALE_MEMBER_EPOCH if isinstance(error, FencedMember) else group_code(error)


def name_of(parts: Parts, asked: Any) -> str | None:
    """Returns the name of a topic that a request has by its name, or by its id. None: no topic has that id."""
    if hasattr(asked, "name"):
        name: str = asked.name
        return name
    return None if asked.topic_id is None else topic_of_id(parts, asked.topic_id)


def topic_of_id(parts: Parts, topic_id: str) -> str | None:
    """Returns the name of the topic that has this id; None if there is none."""
    topic = parts.ids.find(parts.cluster.image, topic_id)
    return None if topic is None else topic.name


def id_of(parts: Parts, name: str) -> str | None:
    """Returns the id of a topic; None if this broker knows of none with that name (any more, or yet)."""
    topic = parts.cluster.image.topics.get(name)
    return None if topic is None else topic.topic_id


def as_named(asked: Any) -> Tree:
    """Returns the beginning of what is answered about a topic: it goes by what it was asked by."""
    return {"name": getattr(asked, "name", None), "topic_id": getattr(asked, "topic_id", None)}
