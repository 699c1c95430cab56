"""Benchmark workload `rebalance`: many members join a group at once; then a member joins and another leaves,
repeatedly.

The members are those of `tidelog.consumer`, each with its heartbeats over HTTP, in one event loop; they do not read,
and revoke partitions at once when the coordinator asks. So the protocol and the coordinator are measured, not what a
program does before it gives a partition up. The group is stable when every partition has an owner, no member has a
partition to revoke, and the members' partition counts differ by one at most. Measured are, for each of the three,

- the time until the group is stable, from the first heartbeat of those that join, or the last one of the leaving one;
- how many partitions changed their owner, and the least possible number;
- how many heartbeats the brokers answered meanwhile;
- how long the coordinator's event loop delayed other requests (`probe.py`), and the same without a rebalance.

The topic's partitions have one replica each, since they are neither read nor written. The offsets topic has three.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field

from tidelog.adapters.system import SystemEntropy
from tidelog.admin import AdminClient
from tidelog.bench.probe import Probe, probing
from tidelog.bench.result import Progress, Result
from tidelog.bench.secured import Connection, Level, at, secured_cluster, session_to
from tidelog.bench.target import read_counters
from tidelog.consumer.group_calls import GroupCalls
from tidelog.consumer.group_member import GroupMember
from tidelog.consumer.options import GroupOptions
from tidelog.model.ids import TopicPartition
from tidelog.testing import LocalCluster
from tidelog.transport.session import ClusterSession

TOPIC, GROUP = "rebalance", "rebalance"
HEARTBEATS = 'tidelog_http_requests_total{method="POST",route="/groups/{group}/heartbeat",status="200"}'
SESSION_MS = 45_000
MAX_POLL_MS = 300_000
CALM_S = 1.0
STABLE_S_MAX = 120.0
LOOK_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceOptions:
    """Options of the workload `rebalance`. In each of `rounds` rounds one member joins, and then another one leaves."""

    members: int = 100
    partitions: int = 1000
    brokers: int = 3
    rounds: int = 5
    assignor: str = "uniform"
    security: Level = Level.PLAIN


class Joined:
    """A group member that revokes partitions as soon as it is asked to."""

    def __init__(self, session: ClusterSession, options: GroupOptions, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._member = GroupMember(session, GroupCalls(session, GROUP), options, SystemEntropy(), self._on_membership)
        self._member.call_began()
        self.owned: list[TopicPartition] = []

    def start(self) -> None:
        self._member.start([TOPIC], "")

    async def stop(self) -> None:
        await self._member.stop()

    def _on_membership(self) -> None:
        membership = self._member.membership
        if membership.to_give_up:
            membership.gave_up(membership.to_give_up)
            self._member.hurry()
        self.owned = membership.owned
        self._changed()


class Members:
    """The members that are in the group or join it, and the event that the group is stable."""

    def __init__(self, partitions: int, make: Callable[[Callable[[], None]], Joined]) -> None:
        self._partitions = partitions
        self._make = make
        self._stable = asyncio.Event()
        self.all: list[Joined] = []

    def join(self, count: int) -> None:
        """Starts `count` more members at one time."""
        self._stable.clear()
        fresh = [self._make(self._changed) for _ in range(count)]
        self.all += fresh
        for member in fresh:
            member.start()

    async def leave_first(self) -> None:
        """Stops the member that has been in the group for longest."""
        self._stable.clear()
        await self.all.pop(0).stop()
        self._changed()

    async def until_stable(self) -> None:
        """Waits until the group is stable. Raises `TimeoutError` after `STABLE_S_MAX` seconds."""
        async with asyncio.timeout(STABLE_S_MAX):
            await self._stable.wait()
        assert len(self.owners()) == self._partitions, "a partition has two owners"

    def _changed(self) -> None:
        counts = [len(member.owned) for member in self.all]
        if sum(counts) == self._partitions and max(counts) - min(counts) <= 1:
            self._stable.set()

    def owners(self) -> dict[TopicPartition, Joined]:
        return {partition: member for member in self.all for partition in member.owned}

    async def abandon(self) -> None:
        """Stops all members."""
        await asyncio.gather(*(member.stop() for member in self.all))


@dataclass(slots=True)
class Change:
    """The measurements of one rebalance, from the change that caused it until the group is stable."""

    begin_s: float
    end_s: float
    reassigned: int
    reassigned_least: int
    heartbeats: float


@dataclass(slots=True)
class Changes:
    """All rebalances by their cause, and the span before them without any."""

    calm: tuple[float, float] = (0.0, 0.0)
    join_all: list[Change] = field(default_factory=list)
    join_one: list[Change] = field(default_factory=list)
    leave_one: list[Change] = field(default_factory=list)


async def measure_rebalance(options: RebalanceOptions, progress: Progress) -> Result:
    """Runs the workload `rebalance` on brokers started for it."""
    changes = Changes()
    async with secured_cluster(options.security, options.brokers) as (cluster, to), AdminClient(**to) as admin:
        await admin.create_topic(TOPIC, partitions=options.partitions, replication_factor=1)
        coordinator = await _coordinator(cluster, admin)
        async with _members(to, options) as members, probing(at(to, coordinator)) as probe:
            begin_s = time.monotonic()
            await asyncio.sleep(CALM_S)
            changes.calm = (begin_s, time.monotonic())
            measured = _Measured(to, members)
            changes.join_all.append(await measured.join(options.members, options.partitions))
            progress(1, 1 + options.rounds)
            for number in range(options.rounds):
                least = options.partitions // (options.members + 1)
                changes.join_one.append(await measured.join(1, least))
                changes.leave_one.append(await measured.leave())
                progress(2 + number, 1 + options.rounds)
            await _until_described(admin, options)
            figures = figures_of(changes, probe)
    return Result("rebalance", asdict(options), figures)


async def _coordinator(cluster: LocalCluster, admin: AdminClient) -> str:
    """Returns the URL of the broker that coordinates the group, which is created by a reset of its offsets."""
    async with asyncio.timeout(STABLE_S_MAX):
        await admin.reset_group(GROUP, to="earliest", topics={TOPIC: [0]})
        coordinator_id = (await admin.describe_group(GROUP)).coordinator_id
    return cluster.broker(coordinator_id).url


@asynccontextmanager
async def _members(to: Connection, options: RebalanceOptions) -> AsyncIterator[Members]:
    entropy = SystemEntropy()
    group = GroupOptions(
        group=GROUP,
        instance_id=None,
        client_id="bench",
        rack=None,
        assignor=options.assignor,
        session_timeout_ms=SESSION_MS,
        max_poll_interval_ms=MAX_POLL_MS,
        auto_commit_interval_ms=None,
    )
    session = session_to(2 * options.members + 2, entropy, **to)
    await session.open()
    members = Members(options.partitions, lambda changed: Joined(session, group, changed))
    try:
        yield members
    finally:
        await members.abandon()
        await session.close()


class _Measured:
    """Causes rebalances one at a time, and returns the measurements of each."""

    def __init__(self, to: Connection, members: Members) -> None:
        self._to = to
        self._members = members

    async def join(self, count: int, least: int) -> Change:
        before, heard = self._members.owners(), await self._heartbeats()
        begin_s = time.monotonic()
        self._members.join(count)
        return await self._settled(begin_s, before, heard, least)

    async def leave(self) -> Change:
        before, heard = self._members.owners(), await self._heartbeats()
        least = len(self._members.all[0].owned)
        begin_s = time.monotonic()
        await self._members.leave_first()
        return await self._settled(begin_s, before, heard, least)

    async def _settled(self, begin_s: float, before: dict[TopicPartition, Joined], heard: float, least: int) -> Change:
        await self._members.until_stable()
        end_s = time.monotonic()
        reassigned = sum(before.get(partition) is not owner for partition, owner in self._members.owners().items())
        return Change(begin_s, end_s, reassigned, least, await self._heartbeats() - heard)

    async def _heartbeats(self) -> float:
        return (await read_counters(**self._to, labelled=True)).get(HEARTBEATS, 0.0)


async def _until_described(admin: AdminClient, options: RebalanceOptions) -> None:
    """Waits until the coordinator describes the group as stable with all members. Raises `TimeoutError` after
    `STABLE_S_MAX` seconds."""
    async with asyncio.timeout(STABLE_S_MAX):
        while True:
            group = await admin.describe_group(GROUP)
            if group.state == "STABLE" and group.members_count == options.members:
                return
            await asyncio.sleep(LOOK_S)


def figures_of(changes: Changes, probe: Probe) -> dict[str, float]:
    """Returns the figures of all rebalances, median and maximum for each cause."""
    figures = {f"calm_{name}": wait_ms for name, wait_ms in _waits_ms(probe, [changes.calm]).items()}
    for kind, rebalances in (
        ("join_all", changes.join_all),
        ("join_one", changes.join_one),
        ("leave_one", changes.leave_one),
    ):
        seconds = [change.end_s - change.begin_s for change in rebalances]
        figures[f"{kind}_stable_median_s"] = statistics.median(seconds)
        figures[f"{kind}_stable_worst_s"] = max(seconds)
        figures[f"{kind}_reassigned_worst"] = max(change.reassigned for change in rebalances)
        figures[f"{kind}_reassigned_least"] = max(change.reassigned_least for change in rebalances)
        figures[f"{kind}_heartbeats_median"] = statistics.median([change.heartbeats for change in rebalances])
        waits = _waits_ms(probe, [(change.begin_s, change.end_s) for change in rebalances])
        figures |= {f"{kind}_{name}": value for name, value in waits.items()}
    return figures


def _waits_ms(probe: Probe, spans: Iterable[tuple[float, float]]) -> dict[str, float]:
    waits = [seconds for span in spans for seconds in probe.between(*span)]
    if not waits:
        return {}
    return {"healthz_median_ms": 1000 * statistics.median(waits), "healthz_worst_ms": 1000 * max(waits)}
