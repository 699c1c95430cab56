"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: requests of the members of classic groups.

A JoinGroup waits for the other members and a SyncGroup for the group's leader. Each waits in a task of its connection,
so other connections are served meanwhile; later requests on the same connection wait, as in Kafka. The wait ends with
the connection. When the listener shuts down, the waiting request is answered with NOT_COORDINATOR.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Final, TypeVar

from tidelog.broker.kafka.call import Call
from tidelog.broker.kafka.groups.trees import Tree, deadline_s, group_code, mutate, require
from tidelog.broker.kafka.listener_parts import Parts
from tidelog.model.access import Caller, Operation
from tidelog.model.classic_groups import (
    NO_GENERATION,
    ClassicHeartbeat,
    JoinAnswer,
    JoinGroup,
    LeaveGroup,
    Leaving,
    MemberAssignment,
    Protocol,
    SyncGroup,
)
from tidelog.model.errors import MemberIdRequired, NotCoordinator, TidelogError

T = TypeVar("T")

ID_REQUIRED_SINCE: Final = 4
NO_PROTOCOL_SINCE: Final = 7
"""First JoinGroup version that can answer with no protocol (null); older versions get an empty name."""
MAY_SKIP_SINCE: Final = 9
MARGIN_S: Final = 5.0
"""Seconds beyond the member's rebalance timeout after which a JoinGroup fails."""
SYNC_S_MAX: Final = 300.0
"""Seconds that a SyncGroup may wait. A silent leader is noticed long before, by its session or the rebalance
timeout."""


async def join_group(parts: Parts, call: Call, request: Any, caller: Caller) -> Tree:
    """Answers a JoinGroup when all members have joined."""
    try:
        require(parts, caller, Operation.READ, request.group_id)
        if not request.member_id:
            await mutate(parts, call, caller)
        join = _join(call, request, caller)
        until_s = asyncio.get_running_loop().time() + max(join.rebalance_timeout_ms, 0) / 1000 + MARGIN_S
        return _joined(await _waited(parts, parts.face.groups.classic.join(join, until_s), until_s))
    except TidelogError as error:
        return _not_joined(call, request, error)


def _join(call: Call, request: Any, caller: Caller) -> JoinGroup:
    session_ms = request.session_timeout
    return JoinGroup(
        group=request.group_id,
        member_id=request.member_id,
        instance_id=getattr(request, "group_instance_id", None),
        client_id=call.client_id,
        client_host=caller.host,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=request.rebalance_timeout if call.version else session_ms,
        protocol_type=request.protocol_type,
        protocols=tuple(Protocol(protocol.name, protocol.metadata) for protocol in request.protocols),
        requires_known_id=call.version >= ID_REQUIRED_SINCE,
        can_skip_assignment=call.version >= MAY_SKIP_SINCE,
    )


async def _waited(parts: Parts, answer: Awaitable[T], until_s: float) -> T:
    """Awaits a join or sync answer. Raises `NotCoordinator` if the listener shuts down meanwhile."""
    result = None
    async with parts.admission.waits.until(until_s + MARGIN_S):
        result = await answer
    if result is None:
        raise NotCoordinator("this broker is shutting down; find the group's next coordinator")
    return result


def _joined(answer: JoinAnswer) -> Tree:
    return {
        "error_code": 0,
        "generation_id": answer.generation,
        "protocol_type": answer.protocol_type,
        "protocol_name": answer.protocol,
        "leader": answer.leader,
        "skip_assignment": answer.skip_assignment,
        "member_id": answer.member_id,
        "members": [
            {"member_id": member.member_id, "group_instance_id": member.instance_id, "metadata": member.metadata}
            for member in answer.members
        ],
    }


def _not_joined(call: Call, request: Any, error: TidelogError) -> Tree:
    member_id = error.member_id if isinstance(error, MemberIdRequired) else request.member_id
    return _joined(JoinAnswer(member_id, NO_GENERATION, "", "", "")) | {
        "error_code": group_code(error),
        "protocol_type": None,
        "protocol_name": None if call.version >= NO_PROTOCOL_SINCE else "",
    }


async def sync_group(parts: Parts, call: Call, request: Any, caller: Caller) -> Tree:
    """Answers a SyncGroup when the group's leader has sent the assignments."""
    sync = SyncGroup(
        group=request.group_id,
        member_id=request.member_id,
        instance_id=getattr(request, "group_instance_id", None),
        generation=request.generation_id,
        protocol_type=getattr(request, "protocol_type", None),
        protocol=getattr(request, "protocol_name", None),
        assignments=tuple(MemberAssignment(entry.member_id, entry.assignment) for entry in request.assignments),
    )
    until_s = asyncio.get_running_loop().time() + SYNC_S_MAX
    try:
        require(parts, caller, Operation.READ, request.group_id)
        answer = await _waited(parts, parts.face.groups.classic.sync(sync, until_s), until_s)
    except TidelogError as error:
        return _synced(group_code(error), None, None, b"")
    return _synced(0, answer.protocol_type, answer.protocol, answer.assignment)


def _synced(code: int, protocol_type: str | None, protocol: str | None, assignment: bytes) -> Tree:
    return {"error_code": code, "protocol_type": protocol_type, "protocol_name": protocol, "assignment": assignment}


async def heartbeat(parts: Parts, call: Call, request: Any, caller: Caller) -> Tree:
    """Answers a Heartbeat of a classic member."""
    beat = ClassicHeartbeat(
        group=request.group_id,
        member_id=request.member_id,
        instance_id=getattr(request, "group_instance_id", None),
        generation=request.generation_id,
    )
    try:
        require(parts, caller, Operation.READ, request.group_id)
        await parts.face.groups.classic.heartbeat(beat, deadline_s())
    except TidelogError as error:
        return {"error_code": group_code(error)}
    return {"error_code": 0}


async def leave_group(parts: Parts, call: Call, request: Any, caller: Caller) -> Tree:
    """Answers a LeaveGroup. Versions before 3 name one member, and have one error code for the whole request."""
    is_single = not hasattr(request, "members")
    named = [Leaving(request.member_id)] if is_single else [_leaving(member) for member in request.members]
    try:
        require(parts, caller, Operation.READ, request.group_id)
        leave = LeaveGroup(group=request.group_id, members=tuple(named))
        verdicts = (await parts.face.groups.classic.leave(leave, deadline_s())).verdicts
    except TidelogError as error:
        return {"error_code": group_code(error), "members": []}
    codes = [0 if verdict.error is None else int(group_code(verdict.error)) for verdict in verdicts]
    return {
        "error_code": codes[0] if is_single else 0,
        "members": [
            {"member_id": verdict.member.member_id, "group_instance_id": verdict.member.instance_id, "error_code": code}
            for verdict, code in zip(verdicts, codes, strict=True)
        ],
    }


def _leaving(member: Any) -> Leaving:
    return Leaving(member.member_id, member.group_instance_id)
