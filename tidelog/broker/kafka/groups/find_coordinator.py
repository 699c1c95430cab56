"""FindCoordinator: the broker that coordinates a group, for one group or several.

The first request creates the topic `__consumer_offsets`. Transactions are not supported: a request for a transaction
coordinator gets TRANSACTIONAL_ID_AUTHORIZATION_FAILED, the only error after which every client stops at once.
"""

from __future__ import annotations

from typing import Any, Final

from tidelog.broker.kafka.call import Call
from tidelog.broker.kafka.groups.trees import Tree, deadline_s, group_code, require
from tidelog.broker.kafka.listener_parts import Parts
from tidelog.model.access import Caller, Operation
from tidelog.model.cluster import KAFKA, Endpoint
from tidelog.model.errors import CoordinatorNotAvailable, TidelogError
from tidelog.model.groups import check_group_name
from tidelog.model.ids import NodeId
from tidelog.model.kafka_codes import KafkaCode

GROUP: Final = 0
TRANSACTION: Final = 1
NOBODY: Final = -1


async def find_coordinator(parts: Parts, call: Call, request: Any, caller: Caller) -> Tree:
    """Answers a FindCoordinator. Versions before 4 ask for one group."""
    kind = getattr(request, "key_type", GROUP)
    if kind == GROUP:
        await parts.missed.wait_for_successors()  # once for all groups of the request
    if hasattr(request, "key"):
        return await _coordinator(parts, kind, request.key, caller)
    keys = dict.fromkeys(request.coordinator_keys)
    coordinators = [{"key": key, **await _coordinator(parts, kind, key, caller)} for key in keys]
    return {"coordinators": coordinators}


async def _coordinator(parts: Parts, kind: int, key: str, caller: Caller) -> Tree:
    if kind == TRANSACTION:
        code = KafkaCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return _not_found(code, "tidelog has no transactions: leave transactional.id out")
    if kind != GROUP:
        return _not_found(KafkaCode.INVALID_REQUEST, f"there are no coordinators of type {kind}")
    try:
        require(parts, caller, Operation.DESCRIBE, check_group_name(key))
        await parts.face.groups.found(deadline_s())
        node_id = parts.face.groups.coordinator_node(key)
        at = _address(parts, NodeId(node_id))
    except TidelogError as error:
        return _not_found(group_code(error), error.message)
    return {"error_code": 0, "error_message": None, "node_id": node_id, "host": at.host, "port": at.port}


def _address(parts: Parts, node_id: NodeId) -> Endpoint:
    """Returns the broker's address for Kafka clients. Raises `CoordinatorNotAvailable` if it is not live, has ended or
    has no Kafka listener."""
    broker = parts.cluster.image.brokers.get(node_id)
    is_there = broker is not None and not broker.is_fenced and node_id not in parts.cluster.ended_brokers
    if broker is not None and is_there and KAFKA in broker.listeners:
        return broker.listeners[KAFKA]
    raise CoordinatorNotAvailable(f"broker {node_id} coordinates the group, and is away or has no kafka.listener")


def _not_found(code: int, message: str) -> Tree:
    return {"error_code": code, "error_message": message, "node_id": NOBODY, "host": "", "port": NOBODY}
