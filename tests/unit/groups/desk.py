"""A shard at work, with its log, and members that follow the protocol."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from tidelog.groups import upkeep
from tidelog.groups.decide import decide, unchanged
from tidelog.groups.decision import Decision
from tidelog.groups.group import Group
from tidelog.groups.records import GroupLogRecord, decode, encode
from tidelog.groups.settings import GroupSettings, Now, TopicSeen
from tidelog.groups.shard import Shard
from tidelog.model.groups import (
    JOIN,
    LEAVE,
    LEAVE_STATIC,
    AnyGroupRequest,
    CommitAnswer,
    CommitOffsets,
    CommittedOffset,
    DescribeGroup,
    FetchOffsets,
    GroupDescription,
    Heartbeat,
    HeartbeatAnswer,
    OffsetsAnswer,
    grouped,
    pairs,
)

Answer = TypeVar("Answer")
Entry = tuple[bytes, bytes | None]


def replayed(log: Iterable[Entry]) -> Shard:
    shard = Shard()
    for entry in log:
        shard.apply(decode(*entry))
    return shard


def copied(shard: Shard) -> list[Entry]:
    return [encode(record) for record in shard.live_records()]


class Desk:
    """Decides, writes down, applies; as a coordinator does."""

    def __init__(self, settings: GroupSettings | None = None, **topics: int) -> None:
        self.settings = GroupSettings() if settings is None else settings
        self.view = {name: TopicSeen(f"id-of-{name}", partitions) for name, partitions in topics.items()}
        self.shard = Shard()
        self.log = list[Entry]()
        self.now = Now(1_000, 0.0)

    def ask(self, request: AnyGroupRequest, kind: type[Answer]) -> Answer:
        if isinstance(request, Heartbeat):
            self.compare(request)
        decision = decide(self.shard, request, self.view, self.settings, self.now)
        self.put(decision.records)
        assert isinstance(decision.answer, kind)
        return decision.answer

    def compare(self, request: Heartbeat) -> None:
        """Asserts that a heartbeat that is answered at once has the answer that the full decision gives it."""
        bare = Heartbeat(group=request.group, member_id=request.member_id, member_epoch=request.member_epoch)
        for beat in (request, bare):
            answer = unchanged(self.shard, beat, self.settings)
            if answer is not None:
                assert decide(self.shard, beat, self.view, self.settings, self.now) == Decision((), answer)

    def put(self, records: Sequence[GroupLogRecord]) -> None:
        entries = [encode(record) for record in records]
        self.log += entries
        for entry in entries:
            self.shard.apply(decode(*entry))

    def beat(self, member_id: str, member_epoch: int, **wishes: Any) -> HeartbeatAnswer:
        beat = Heartbeat(group="g", member_id=member_id, member_epoch=member_epoch, **wishes)
        return self.ask(beat, HeartbeatAnswer)

    def join(self, member_id: str, *topics: str, **wishes: Any) -> HeartbeatAnswer:
        return self.beat(member_id, JOIN, topics=topics, **wishes)

    def leave(self, member_id: str) -> HeartbeatAnswer:
        return self.beat(member_id, LEAVE)

    def step_out(self, member_id: str) -> HeartbeatAnswer:
        return self.beat(member_id, LEAVE_STATIC)

    def commit(self, member_id: str, member_epoch: int, offset: int, **more: Any) -> int:
        """To partition 0 of topic `t`; the verdict's code."""
        committed = CommittedOffset("t", 0, offset)
        request = CommitOffsets(
            group="g",
            member_id=member_id,
            member_epoch=member_epoch,
            offsets=(committed,),
            **more,
        )
        return self.ask(request, CommitAnswer).verdicts[0].code

    def offsets(self) -> dict[tuple[str, int], int]:
        answer = self.ask(FetchOffsets(group="g"), OffsetsAnswer)
        return {(committed.topic, committed.partition): committed.offset for committed in answer.offsets}

    def expel(self, *members: str) -> None:
        self.put(upkeep.expelled(self.shard, [("g", member_id) for member_id in members], self.view, self.now))

    def look_at_topics(self) -> None:
        self.put(upkeep.with_topics(self.shard, self.view, self.now))

    def tidy(self) -> None:
        self.put(upkeep.expired(self.shard, self.view, self.settings, self.now))

    def described(self) -> GroupDescription:
        return self.ask(DescribeGroup(group="g"), GroupDescription)

    @property
    def group(self) -> Group:
        return self.shard.groups["g"]


class Member:
    """Does what it is told at once, and says so with the next heartbeat."""

    def __init__(self, desk: Desk, member_id: str, *topics: str, **wishes: Any) -> None:
        self.desk = desk
        self.member_id = member_id
        self.epoch = JOIN
        self.owned = frozenset[tuple[str, int]]()
        self.gave_up = list[tuple[str, int]]()
        """Everything that was ever taken away."""
        self._heed(desk.join(member_id, *topics, **wishes))

    def beat(self, **wishes: Any) -> HeartbeatAnswer:
        answer = self.desk.beat(self.member_id, self.epoch, owned=grouped(sorted(self.owned)), **wishes)
        self._heed(answer)
        return answer

    def _heed(self, answer: HeartbeatAnswer) -> None:
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            assigned = frozenset(pairs(answer.assignment))
            self.gave_up += sorted(self.owned - assigned)
            self.owned = assigned


def settle(*members: Member, rounds_max: int = 5) -> int:
    """Everybody beats until nothing is new; how many rounds that took."""
    for beaten in range(rounds_max):
        logged = len(members[0].desk.log)
        for member in members:
            member.beat()
        if len(members[0].desk.log) == logged:
            return beaten
    raise AssertionError(f"not settled after {rounds_max} rounds")
