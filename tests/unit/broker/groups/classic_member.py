"""Members of classic groups, as their clients speak: one request after the other, to the coordinator's broker."""

from __future__ import annotations

from typing import Any, Protocol

from tests.unit.broker.groups.stage import soon
from tidelog.broker.broker import Broker
from tidelog.model import classic_groups
from tidelog.model.classic_groups import (
    ClassicHeartbeat,
    CommitAsMember,
    JoinAnswer,
    JoinGroup,
    LeaveGroup,
    Leaving,
    MemberAssignment,
    SyncAnswer,
    SyncGroup,
)
from tidelog.model.errors import MemberIdRequired
from tidelog.model.groups import CommittedOffset

SETTINGS: dict[str, object] = {"group_min_session_timeout_ms": 1_000, "group_initial_rebalance_delay_ms": 0}


class Coordinated(Protocol):
    """A place with a coordinator."""

    @property
    def broker(self) -> Broker:
        """The broker that coordinates now."""


class ClassicMember:
    """`joined` is the answer to its last join."""

    def __init__(self, stage: Coordinated, group: str = "g", **said: Any) -> None:
        self.joined: JoinAnswer
        self.member_id = ""
        self.assignment = b""
        self._stage = stage
        self._group = group
        self._said = said

    @property
    def _who(self) -> dict[str, Any]:
        return {"group": self._group, "member_id": self.member_id}

    async def join(self, wait_s: float = 60, **said: Any) -> JoinAnswer:
        """Under the id that it is given, if it has none."""
        request = {
            "client_id": "c",
            "session_timeout_ms": 5_000,
            "rebalance_timeout_ms": 20_000,
            "protocol_type": "consumer",
            "protocols": (classic_groups.Protocol("range", b"m"),),
            **self._said,
            **said,
        }
        groups = self._stage.broker.groups.classic
        try:
            self.joined = await groups.join(JoinGroup(**self._who, **request), soon(wait_s))
        except MemberIdRequired as error:
            self.member_id = error.member_id
            self.joined = await groups.join(JoinGroup(**self._who, **request), soon(wait_s))
        self.member_id = self.joined.member_id
        return self.joined

    async def sync(self, wait_s: float = 60) -> SyncAnswer:
        """A leader gives each member `of <its id>`."""
        given = tuple(MemberAssignment(one.member_id, f"of {one.member_id}".encode()) for one in self.joined.members)
        request = SyncGroup(**self._who, generation=self.joined.generation, assignments=given)
        answer = await self._stage.broker.groups.classic.sync(request, soon(wait_s))
        self.assignment = answer.assignment
        return answer

    async def enter(self) -> None:
        await self.join()
        await self.sync()

    async def beat(self) -> None:
        request = ClassicHeartbeat(**self._who, generation=self.joined.generation)
        await self._stage.broker.groups.classic.heartbeat(request, soon())

    async def leave(self) -> None:
        request = LeaveGroup(group=self._group, members=(Leaving(self.member_id),))
        answer = await self._stage.broker.groups.classic.leave(request, soon())
        assert answer.verdicts[0].error is None

    async def commit(self, offset: int) -> None:
        request = CommitAsMember(
            **self._who, generation=self.joined.generation, offsets=(CommittedOffset("t", 0, offset),)
        )
        answer = await self._stage.broker.groups.classic.commit(request, soon())
        assert [verdict.code for verdict in answer.verdicts] == [0]
