"""No two members ever hand out records of one partition at the same time, whatever is lost, late or slow.

The coordinator is the real core, and as impatient as it may be: it expels a member the moment its session or its
rebalance timeout is over, and gives its partitions to the next who asks. Members' clocks run nearly a tenth too slowly.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

import pytest

from tidelog.consumer.membership import LEASE_SHARE, Membership
from tidelog.groups.decide import decide
from tidelog.groups.records import GroupLogRecord
from tidelog.groups.sessions import Sessions
from tidelog.groups.settings import GroupSettings, Now, TopicSeen
from tidelog.groups.shard import Shard
from tidelog.groups.upkeep import expelled
from tidelog.model.errors import FencedMember, TidelogError, UnknownMember
from tidelog.model.groups import Heartbeat, HeartbeatAnswer
from tidelog.model.ids import TopicPartition

SESSION_S = 10
PARTITIONS = [TopicPartition("t", number) for number in range(4)]
TOPICS = {"t": TopicSeen("id-of-t", len(PARTITIONS)), "u": TopicSeen("id-of-u", 1)}
SETTINGS = GroupSettings(session_timeout_ms=SESSION_S * 1000)


class Coordinator:
    """The real core, on a clock of its own."""

    def __init__(self) -> None:
        self.shard, self.sessions = Shard(), Sessions()

    def expire(self, now_s: float) -> None:
        self.write(expelled(self.shard, self.sessions.expired(now_s), TOPICS, Now(0, now_s)))

    def handle(self, request: Heartbeat, now_s: float) -> HeartbeatAnswer:
        decision = decide(self.shard, request, TOPICS, SETTINGS, Now(0, now_s))
        self.write(decision.records)
        self.sessions.follow(self.shard, request.group, request.member_id, SETTINGS, now_s)
        assert isinstance(decision.answer, HeartbeatAnswer)
        return decision.answer

    def write(self, records: Iterable[GroupLogRecord]) -> None:
        for record in records:
            self.shard.apply(record)

    def is_replaced(self, now_s: float) -> None:
        """Its successor knows what is in the log, and no time."""
        self.sessions = Sessions.of(self.shard, SETTINGS, now_s)


@dataclass
class Process:
    """A consumer: its membership, its clock, what is on its way."""

    it: Membership
    rate: float
    request: tuple[Heartbeat, float] | None = None
    answer: tuple[str, HeartbeatAnswer | TidelogError, float] | None = None

    def clock(self, now_s: float) -> float:
        return now_s * self.rate


class Fate(enum.Enum):
    """Of a heartbeat. What is slow is lost if the next one overtakes it."""

    ANSWERED = 1
    SLOW_ANSWER = 2
    SLOW_REQUEST = 3


class World:
    """Three processes, one coordinator, and what is on its way between them."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.coordinator = Coordinator()
        self.names = 0
        self.processes = [Process(self.new_member(), rate) for rate in (LEASE_SHARE + 0.001, 1.0, 1.2)]

    def name(self) -> str:
        self.names += 1
        return f"m{self.names}"

    def new_member(self) -> Membership:
        rebalance_ms = (60_000, 6_000, 15_000)[self.names % 3]
        return Membership("g", self.name(), topics=["t"], rebalance_timeout_ms=rebalance_ms)

    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds
        self.coordinator.expire(self.now_s)

    def beat(self, process: Process, fate: Fate) -> None:
        """Whatever was under way before is lost, or comes too late."""
        if process.it.is_out:
            process.it.rejoin(self.name())
        now_s = process.clock(self.now_s)
        process.request = (process.it.heartbeat(now_s), now_s)
        if fate is not Fate.SLOW_REQUEST:
            self.hear(process)
        if fate is Fate.ANSWERED:
            self.answer(process)

    def hear(self, process: Process) -> None:
        if process.request is None:
            return
        (request, sent_s), process.request = process.request, None
        answer: HeartbeatAnswer | TidelogError
        try:
            answer = self.coordinator.handle(request, self.now_s)
        except (UnknownMember, FencedMember) as error:
            answer = error
        process.answer = (request.member_id, answer, sent_s)

    def answer(self, process: Process) -> None:
        if process.answer is None:
            return
        (member_id, answer, sent_s), process.answer = process.answer, None
        if process.it.is_out or process.it.member_id != member_id:
            return
        if isinstance(answer, HeartbeatAnswer):
            process.it.answered(answer, sent_s)
        else:
            process.it.failed(answer, process.clock(self.now_s))
            assert not process.it.owned

    def leave(self, process: Process) -> None:
        last = process.it.leave()
        if last is not None:
            process.request = (last, process.clock(self.now_s))

    def check(self) -> None:
        handed_out: dict[TopicPartition, str] = {}
        for process in self.processes:
            if process.it.may_deliver(process.clock(self.now_s)):
                for partition in process.it.owned:
                    other = handed_out.setdefault(partition, process.it.member_id)
                    assert other == process.it.member_id, f"{partition}: {other} and {process.it.member_id}"


def step(world: World, random: Random) -> None:
    """Something happens. Beats are what happens most, and most of them are answered."""
    process = random.choice(world.processes)
    match random.choices(range(8), weights=(8, 7, 2, 2, 0.6, 0.3, 0.2, 0.3))[0]:
        case 0:
            world.beat(process, random.choices(list(Fate), weights=(4, 1, 1))[0])
        case 1:
            world.pass_time(random.choice((0.1, 0.5, 2, 5, 9)))
        case 2:
            world.hear(process)
        case 3:
            world.answer(process)
        case 4:
            process.it.gave_up(process.it.to_give_up)
        case 5:
            process.it.subscribe(random.choice((["t"], ["t", "u"])))
        case 6:
            world.coordinator.is_replaced(world.now_s)
        case _:
            world.leave(process)
    world.check()


@pytest.mark.parametrize("seeds", [range(150), pytest.param(range(150, 6_000), marks=pytest.mark.slow)])
def test_each_partition_is_handed_out_by_one_and_in_the_end_by_somebody(seeds: range) -> None:
    for seed in seeds:
        world, random = World(), Random(seed)
        for _ in range(80):
            step(world, random)
        for _ in range(6):
            world.pass_time(3)
            for process in world.processes:
                world.beat(process, Fate.ANSWERED)
                process.it.gave_up(process.it.to_give_up)
                world.check()
        owned = [partition for process in world.processes for partition in process.it.owned]
        assert [at for at in sorted(owned) if at.topic == "t"] == PARTITIONS, f"seed {seed}"
