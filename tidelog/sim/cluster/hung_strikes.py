"""Faults in which a broker, or its disk, hangs while clients write; they measure how long no record is committed.

All replicas are in sync, and then one broker is paused, or each call to its disk takes seconds. The longest time
without a commit must not pass the bound for that kind of fault. On the virtual clock that time depends on the brokers
alone, not on the host; the bounds are those that users are told (`docs/cluster.md`), for brokers with the shipped
settings.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tidelog.model.cluster import NO_LEADER, PartitionInfo
from tidelog.model.ids import PartitionId
from tidelog.sim.cluster.ledger import Ledger
from tidelog.sim.cluster.scenario import Effects, Strike
from tidelog.sim.cluster.traffic import DATA
from tidelog.sim.cluster.world import World

CALM_S_MAX = 30.0
"""Seconds that the replicas may need to be in sync before a broker hangs."""
LOOK_S = 0.01
DISK_S = 2.0
"""Mean seconds of a call to a hanging disk."""
MS = 1_000
STEPS_MS = (100, 700, 1_000, 1_500, 3_000, 5_000)
"""Upper limits in ms of the classes by which the measured times are counted."""


@dataclass(frozen=True, slots=True)
class Hung:
    """Choice of the broker that hangs, and the bound on the time without a commit in seconds."""

    whom: Callable[[PartitionInfo, int], int | None]
    """Function that returns the node to hang, given a partition and the controller's node; None if there is none."""
    gap_s_max: float
    is_disk: bool = False


def _follower(info: PartitionInfo, controller: int) -> int | None:
    return next((int(node) for node in info.replicas if node not in (info.leader, controller)), None)


def _leader(info: PartitionInfo, controller: int) -> int | None:
    return int(info.leader) if info.leader != controller else None


def _any_leader(info: PartitionInfo, controller: int) -> int | None:
    return int(info.leader)


def _controller(info: PartitionInfo, controller: int) -> int | None:
    return controller if info.leader != controller else None


def _both(info: PartitionInfo, controller: int) -> int | None:
    return controller if info.leader == controller else None


KINDS = {
    "hung follower": Hung(_follower, 1.5),
    "hung leader": Hung(_leader, 3.0),
    "hung controller": Hung(_controller, 2.5),
    "hung leader and controller": Hung(_both, 3.0),
    "hung disk of a follower": Hung(_follower, 2.0, is_disk=True),
    "hung disk of a leader": Hung(_any_leader, 3.0, is_disk=True),
}


class HungStrikes:
    """Carries out the faults in which a broker or a disk hangs."""

    def __init__(self, world: World, ledger: Ledger) -> None:
        self._world = world
        self._ledger = ledger

    def effects(self) -> Effects:
        """Returns the functions that carry out the faults of this class, by the fault's name."""
        return {kind: self._effect(hung) for kind, hung in KINDS.items()}

    def _effect(self, hung: Hung) -> Callable[[Strike, random.Random], Awaitable[None]]:
        async def strike(strike: Strike, rng: random.Random) -> None:
            calm = await self._until_calm()
            victim = calm and hung.whom(calm[1], int(self._world.truth.image.controller_id))
            if calm is None or victim is None or not self._goes_on_without(victim, *calm):
                self._world.truth.saw("fault withheld")
                return
            with self._hanging(victim, is_disk=hung.is_disk):
                gap_s = await self._longest_gap(calm[0], strike.lasts_s)
            self._judge(strike.kind, victim, gap_s, hung.gap_s_max)

        return strike

    async def _until_calm(self) -> tuple[PartitionId, PartitionInfo] | None:
        """Waits for a partition whose replicas are all in sync and that has committed records, and returns it; None if
        there is none in time."""
        deadline_s = self._world.true_time + CALM_S_MAX
        while self._world.true_time < deadline_s:
            await asyncio.sleep(LOOK_S)
            for partition_id, info in self._partitions():
                book = self._ledger.books.get(partition_id)
                if len(info.isr) == len(info.replicas) and book is not None and book.end > 0:
                    return partition_id, info
        return None

    def _goes_on_without(self, victim: int, partition_id: PartitionId, info: PartitionInfo) -> bool:
        """Returns True if the partition can commit without the hanging broker."""
        book, replicas = self._ledger.books[partition_id], len(info.replicas)
        least = replicas // 2 + 1 if book.is_paxos else book.minimum(self._world.truth.clock())
        return replicas - (victim in info.replicas) >= least

    def _partitions(self) -> Iterator[tuple[PartitionId, PartitionInfo]]:
        for topic in self._world.truth.image.topics.values():
            if topic.name.startswith(DATA):
                for number, info in enumerate(topic.partitions):
                    if info.leader != NO_LEADER:
                        yield PartitionId(topic.topic_id, number), info

    @contextmanager
    def _hanging(self, victim: int, *, is_disk: bool) -> Iterator[None]:
        machine = self._world.machine(victim)
        if is_disk:
            machine.change_disk_delay(DISK_S)
        else:
            machine.pause()
        try:
            yield
        finally:
            if is_disk:
                machine.change_disk_delay(self._world.swarm.disk_delay_s)
            else:
                machine.resume()

    async def _longest_gap(self, partition_id: PartitionId, lasts_s: float) -> float:
        book = self._ledger.books[partition_id]
        begin_s = last_s = self._world.true_time
        longest_s, end = 0.0, book.end
        while self._world.true_time < begin_s + lasts_s:
            await asyncio.sleep(LOOK_S)
            longest_s = max(longest_s, self._world.true_time - last_s)
            if book.end > end:
                end, last_s = book.end, self._world.true_time
        return longest_s

    def _judge(self, kind: str, victim: int, gap_s: float, gap_s_max: float) -> None:
        truth = self._world.truth
        truth.note("longest time without a commit", kind, victim, round(gap_s * MS))
        truth.saw("somebody hung")
        step_ms = next((step_ms for step_ms in STEPS_MS if gap_s * MS <= step_ms), None)
        truth.saw(f"gap of a {kind}: " + ("longer" if step_ms is None else f"up to {step_ms} ms"))
        if gap_s > gap_s_max:
            truth.violate("steady", f"a {kind} (node {victim}) costs {gap_s:.2f} s, and at most {gap_s_max} s are told")
