"""A shard with classic groups at work, with its log; requests that wait are answered here, and nothing awaits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.unit.groups.desk import Desk, replayed
from tidelog.groups.classic.deadlines import ClassicDeadlines
from tidelog.groups.classic.joins import Joiner
from tidelog.groups.classic.state import ClassicGroup
from tidelog.groups.classic.turn import Turn
from tidelog.groups.decide_classic import (
    decide_commit,
    decide_heartbeat,
    decide_join,
    decide_leave,
    decide_silence,
    decide_sync,
)
from tidelog.groups.settings import GroupSettings, Now
from tidelog.model.classic_groups import (
    ClassicHeartbeat,
    CommitAsMember,
    JoinAnswer,
    JoinGroup,
    LeaveGroup,
    LeaveVerdict,
    Leaving,
    MemberAssignment,
    Protocol,
    SyncAnswer,
    SyncGroup,
)
from tidelog.model.errors import MemberIdRequired, TidelogError
from tidelog.model.groups import CommitAnswer, CommittedOffset

RANGE = (Protocol("range", b"wants t"),)
SETTINGS = GroupSettings(session_timeout_ms_min=1, initial_rebalance_delay_ms=0)


@dataclass
class Waiting:
    """A request, and its answer once there is one."""

    told: Any = None

    @property
    def joined(self) -> JoinAnswer:
        assert isinstance(self.told, JoinAnswer), self.told
        return self.told

    @property
    def assignment(self) -> bytes:
        assert isinstance(self.told, SyncAnswer), self.told
        return self.told.assignment

    @property
    def refusal(self) -> type[TidelogError]:
        assert isinstance(self.told, TidelogError), self.told
        return type(self.told)


class ClassicDesk(Desk):
    """Decides, writes down, applies, and tells; as a coordinator does. Members are drawn as `m1`, `m2`..."""

    def __init__(self, settings: GroupSettings = SETTINGS, **topics: int) -> None:
        super().__init__(settings, **topics)
        self.deadlines = ClassicDeadlines()
        self._waits = dict[int, Waiting]()
        self._drawn = 0

    # -- what members ask ---------------------------------------------------------------------------------------------

    def ask_join(self, member_id: str = "", **said: Any) -> Waiting:
        self._drawn += 1
        request = JoinGroup(
            **{
                "group": "g",
                "member_id": member_id,
                "session_timeout_ms": 10_000,
                "rebalance_timeout_ms": 60_000,
                "protocol_type": "consumer",
                "protocols": RANGE,
                **said,
            }
        )
        drawn_id = f"m{self._drawn}"
        return self._asked(
            lambda wait: decide_join(self.shard, Joiner(request, wait, drawn_id), self.settings, self.now)
        )

    def enter(self, **said: Any) -> tuple[str, Waiting]:
        """A new member is given its id, and joins with it."""
        first = self.ask_join(**said)
        if "instance_id" in said:
            return f"m{self._drawn}", first
        assert isinstance(first.told, MemberIdRequired), first.told
        return first.told.member_id, self.ask_join(first.told.member_id, **said)

    def ask_sync(self, member_id: str, generation: int, given: dict[str, bytes] | None = None, **said: Any) -> Waiting:
        assignments = tuple(MemberAssignment(*one) for one in (given or {}).items())
        request = SyncGroup(group="g", member_id=member_id, generation=generation, assignments=assignments, **said)
        return self._asked(lambda wait: decide_sync(self.shard, request, wait, self.settings, self.now))

    def heartbeat(self, member_id: str, generation: int, **said: Any) -> TidelogError | None:
        request = ClassicHeartbeat(group="g", member_id=member_id, generation=generation, **said)
        told = decide_heartbeat(self.shard, request)
        self.deadlines.heard(self.classic, member_id, self.now.monotonic_s)
        return told

    def let_go(self, *members: str | Leaving) -> list[LeaveVerdict]:
        leaving = tuple(one if isinstance(one, Leaving) else Leaving(one) for one in members)
        request = LeaveGroup(group="g", members=leaving)
        turn, answer = decide_leave(self.shard, request, self.settings, self.now)
        if turn is not None:
            self._carry_out(turn)
        return list(answer.verdicts)

    def commit_as(self, member_id: str, generation: int, offset: int = 7, **said: Any) -> int:
        """To partition 0 of topic `t`; returns the verdict's code."""
        offsets = (CommittedOffset("t", 0, offset),)
        request = CommitAsMember(group="g", member_id=member_id, generation=generation, offsets=offsets, **said)
        decision = decide_commit(self.shard, request, self.view, self.settings, self.now)
        self.put(decision.records)
        assert isinstance(decision.answer, CommitAnswer)
        return decision.answer.verdicts[0].code

    # -- what happens -------------------------------------------------------------------------------------------------

    def pass_time(self, seconds: float) -> None:
        """Everything that is due is done at its time."""
        end_s = self.now.monotonic_s + seconds
        while (due_s := self.deadlines.next_s()) is not None and due_s <= end_s:
            self.now = Now(self.now.wall_ms, due_s)
            while due := self.deadlines.pop(due_s):
                turn = decide_silence(self.shard, *due, self.settings, self.now)
                if turn is not None:
                    self._carry_out(turn)
        self.now = Now(self.now.wall_ms + int(1000 * seconds), end_s)

    def stable(self, count: int, **said: Any) -> list[str]:
        """A group of so many members that have what its leader gave them: `of m1` and so on. Returns their ids."""
        entered = [self.enter(**said) for _ in range(count)]
        ids = [member_id for member_id, _ in entered]
        waiting = dict(entered)
        while self.classic.phase.value == "PreparingRebalance":
            for member_id in ids:
                if waiting[member_id].told is not None:
                    waiting[member_id] = self.ask_join(member_id, **said)
        self.sync_all(ids)
        return ids

    def sync_all(self, ids: list[str]) -> dict[str, Waiting]:
        generation, leader = self.classic.generation, self.classic.leader
        given = {member_id: f"of {member_id}".encode() for member_id in self.classic.members}
        return {one: self.ask_sync(one, generation, given if one == leader else None) for one in ids}

    @property
    def classic(self) -> ClassicGroup:
        found = self.group.classic
        assert found is not None
        return found

    def _asked(self, decide: Callable[[int], Turn]) -> Waiting:
        number, waiting = len(self._waits), Waiting()
        self._waits[number] = waiting
        try:
            self._carry_out(decide(number))
        except TidelogError as error:
            waiting.told = error
        return waiting

    def _carry_out(self, turn: Turn) -> None:
        self.put(turn.records)
        self.group.classic = turn.group
        for member_id in turn.heard:
            self.deadlines.heard(turn.group, member_id, self.now.monotonic_s)
        self.deadlines.follow(turn.group)
        for wait, told in turn.tells:
            assert self._waits[wait].told is None, "nobody is answered twice"
            self._waits[wait].told = told

    def take_over(self) -> None:
        """Another coordinator loads what the log says; whoever waits is not its matter."""
        self.shard = replayed(self.log)
        self.deadlines = ClassicDeadlines.of(self.shard, self.now.monotonic_s)
