"""Benchmark workload `pause`: one of three brokers is paused (SIGSTOP) while records are written to two topics, one of
each commit protocol, and a consumer group commits offsets.

In each topic every broker leads one partition. The paused broker is chosen by its role: `follower` of the observed
partition, and neither its leader nor the active controller, so that the commit protocol is measured and not an
election; that partition's `leader`; the `controller`, if not that leader; or the `coordinator` of the group. Records
are sent at a steady pace, whether or not earlier ones are acknowledged, by a client that knows all addresses. Measured
are, for the observed partition of each topic,

- the times of acknowledgements of records sent without a pause, and of records sent during a pause;
- the longest time without an acknowledgement, without a pause and during one; a stall that outlasts the pause counts in
  full;
- for the topic with in-sync replicas, how long the ISR kept the paused broker;

and the longest time in which the group committed nothing.
"""

from __future__ import annotations

import asyncio
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import partial
from itertools import pairwise
from typing import Final

from tidelog.admin import AdminClient
from tidelog.bench.payload import make_values
from tidelog.bench.result import Progress, Result, percentiles_ms
from tidelog.bench.secured import Connection, Level, secured_cluster
from tidelog.consumer import Consumer
from tidelog.model.cluster import ISR, PROTOCOLS
from tidelog.model.errors import TidelogError
from tidelog.producer import Delivery, Producer
from tidelog.testing import LocalCluster
from tidelog.transport.errors import NoAnswer

BROKERS: Final = (1, 2, 3)
GROUP: Final = "pause"
SEND_EVERY_S: Final = 0.005
COMMIT_EVERY_S: Final = 0.01
WARM_UP_S: Final = 2.0
LOOK_S: Final = 0.02
LOOK_MS_MAX: Final = 500.0
"""Milliseconds that a broker may take to describe the topic; a paused broker takes longer, and another one is asked."""
IN_SYNC_S_MAX: Final = 120.0
"""Seconds to wait for a full ISR after a pause: a follower that hangs again and again is kept out for a minute
(`replication.isr.stall`)."""

Span = tuple[float, float]
Hit = Callable[[int], AbstractContextManager[None]]
"""Returns a context manager during which the broker with this node id is disturbed, for example paused."""


class Whom(StrEnum):
    """The role of the broker that is paused."""

    FOLLOWER = "follower"
    LEADER = "leader"
    CONTROLLER = "controller"
    COORDINATOR = "coordinator"


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseOptions:
    """Options of the workload `pause`: `pauses` of `paused_s` seconds, with `calm_s` seconds before each."""

    whom: Whom = Whom.FOLLOWER
    pauses: int = 3
    paused_s: float = 20.0
    calm_s: float = 10.0
    value_bytes: int = 100
    security: Level = Level.PLAIN


@dataclass(slots=True)
class Done:
    """The (begin, end) times of repeated operations, such as sending a record or committing offsets."""

    times: list[Span] = field(default_factory=list)

    def seconds(self, span: Span) -> list[float]:
        """Returns the durations of the operations that began within the span."""
        return [done_s - begun_s for begun_s, done_s in self.times if span[0] <= begun_s < span[1]]

    def stalls_s(self) -> list[Span]:
        """Returns the spans between consecutive ends of operations, regardless of when these began."""
        return [*pairwise(sorted(done_s for _, done_s in self.times))]

    def stall_within_s(self, span: Span) -> float:
        """Returns the longest time without an end that lies within the span; 0 if there is none."""
        return _longest(stall for stall in self.stalls_s() if span[0] <= stall[0] and stall[1] < span[1])

    def stall_touching_s(self, span: Span) -> float:
        """Returns the longest time without an end that overlaps the span; 0 if there is none."""
        return _longest(stall for stall in self.stalls_s() if span[0] <= stall[1] and stall[0] < span[1])


def _longest(spans: Iterable[Span]) -> float:
    return max((end_s - begin_s for begin_s, end_s in spans), default=0)


@dataclass(frozen=True, slots=True)
class Pause:
    """The times of one pause and of the calm span before it, and the seconds until the ISR shrank."""

    calm: Span
    paused: Span
    partition: int
    """The partition of both topics that is observed."""
    shrunk_s: float | None


@dataclass(slots=True)
class _Run:
    acknowledged: dict[str, dict[int, Done]] = field(
        default_factory=lambda: {name: {number: Done() for number in range(len(BROKERS))} for name in PROTOCOLS}
    )
    committed: Done = field(default_factory=Done)
    pauses: list[Pause] = field(default_factory=list)


async def measure_pause(options: PauseOptions, progress: Progress) -> Result:
    """Runs the workload `pause` on a cluster started for it."""
    async with secured_cluster(options.security, len(BROKERS)) as (cluster, to):
        measured = await measure_hits(to, partial(_asleep, cluster), options, progress)
    return Result("pause", asdict(options), measured)


@contextmanager
def _asleep(cluster: LocalCluster, node_id: int) -> Iterator[None]:
    cluster.pause(node_id)
    try:
        yield
    finally:
        cluster.resume(node_id)


async def measure_hits(to: Connection, hit: Hit, options: PauseOptions, progress: Progress) -> dict[str, float]:
    """Runs the workload `pause` on a running cluster whose brokers are disturbed by `hit`, one after the other. Returns
    the figures."""
    run, over = _Run(), asyncio.Event()
    async with (
        AdminClient(**to) as admin,
        AdminClient(**to, request_timeout_ms=LOOK_MS_MAX) as watcher,
    ):
        for name in PROTOCOLS:
            replicas = {at: (*BROKERS[at:], *BROKERS[:at]) for at in range(len(BROKERS))}
            await admin.create_topic(name, replicas_assignments=replicas, configs={"commit.protocol": name})
        async with asyncio.TaskGroup() as tasks:
            for name, acknowledged in run.acknowledged.items():
                tasks.create_task(write_steadily(to, name, options.value_bytes, acknowledged, over))
            committing = tasks.create_task(_commit_steadily(to, run.committed))
            try:
                await asyncio.sleep(WARM_UP_S)
                for number in range(options.pauses):
                    run.pauses.append(await _pause(hit, admin, watcher, options))
                    progress(number + 1, options.pauses)
            finally:
                over.set()
                committing.cancel()
    return figures(run.acknowledged, run.committed, run.pauses)


async def _pause(hit: Hit, admin: AdminClient, watcher: AdminClient, options: PauseOptions) -> Pause:
    await admin.elect_preferred_leaders()
    begin_s = time.monotonic()
    await asyncio.sleep(options.calm_s)
    sleeper, partition = await _choose(admin, options.whom)
    paused_s, shrunk_s = time.monotonic(), None
    with hit(sleeper):
        while time.monotonic() < paused_s + options.paused_s:
            if shrunk_s is None and sleeper not in await _in_sync(watcher, partition):
                shrunk_s = time.monotonic() - paused_s
            await asyncio.sleep(LOOK_S)
    resumed_s = time.monotonic()
    async with asyncio.timeout(IN_SYNC_S_MAX):
        while set(await _in_sync(watcher, partition)) != set(BROKERS):  # noqa: ASYNC110 - somebody else's state
            await asyncio.sleep(LOOK_S)
    return Pause((begin_s, paused_s), (paused_s, resumed_s), partition, shrunk_s)


async def _choose(admin: AdminClient, whom: Whom) -> tuple[int, int]:
    """Returns the node id of the broker to be paused, and the partition to be observed, for which it has the role
    `whom`."""
    controller = (await admin.describe_cluster()).controller_id
    coordinator = (await admin.describe_group(GROUP)).coordinator_id if whom is Whom.COORDINATOR else None
    sleeper, leader = choose(whom, controller, coordinator)
    return sleeper, BROKERS.index(leader)


def choose(whom: Whom, controller: int | None, coordinator: int | None) -> tuple[int, int]:
    """Returns the node ids of the broker to be paused and of the leader of the partition to be observed."""
    leader = next(node for node in BROKERS if node != controller)
    match whom:
        case Whom.LEADER:
            return leader, leader
        case Whom.CONTROLLER:
            assert controller is not None
            return controller, leader
        case Whom.COORDINATOR:
            assert coordinator is not None
            return coordinator, next(node for node in BROKERS if node != coordinator)
        case Whom.FOLLOWER:
            return next(node for node in BROKERS if node not in (leader, controller)), leader


async def _in_sync(watcher: AdminClient, partition: int) -> tuple[int, ...]:
    """Returns the ISR of a partition; asks another broker if the paused one does not answer."""
    while True:
        with suppress(NoAnswer):
            return (await watcher.describe_topic(ISR)).partitions[partition].isr


async def write_steadily(
    to: Connection,
    topic: str,
    value_bytes: int,
    done: dict[int, Done],
    over: asyncio.Event,
    *,
    every_s: float = SEND_EVERY_S,
) -> None:
    """Sends a record to each partition every `every_s` seconds until `over` is set, and notes when each was sent
    and acknowledged."""
    values = make_values("random", value_bytes)
    async with Producer(**to, linger_ms=0) as producer, asyncio.TaskGroup() as tasks:
        number = 0
        while not over.is_set():
            sent_s, partition = time.monotonic(), number % len(done)
            delivery = await producer.send(topic, values[number % len(values)], partition=partition)
            tasks.create_task(_acknowledge(delivery, sent_s, done[partition]))
            number += 1
            await asyncio.sleep(every_s / len(done))


async def _acknowledge(delivery: Delivery, sent_s: float, done: Done) -> None:
    await delivery
    done.times.append((sent_s, time.monotonic()))


async def _commit_steadily(to: Connection, done: Done) -> None:
    """Reads, and commits offsets every `COMMIT_EVERY_S` seconds, until cancelled."""
    async with Consumer(ISR, **to, group_id=GROUP, enable_auto_commit=False) as consumer:
        while True:
            await consumer.getmany(timeout_ms=0)
            begun_s = time.monotonic()
            with suppress(TidelogError):  # a member that was expelled rejoins with its next read
                await consumer.commit()
                done.times.append((begun_s, time.monotonic()))
            await asyncio.sleep(COMMIT_EVERY_S)


def figures(acknowledged: dict[str, dict[int, Done]], committed: Done, pauses: list[Pause]) -> dict[str, float]:
    """Returns the figures of all pauses together: percentiles of acknowledgement times and stalls, and the median time
    until the ISR shrank."""
    measured: dict[str, float] = {}
    for name, partitions in acknowledged.items():
        looked = [(partitions[pause.partition], pause) for pause in pauses]
        calm = [seconds for done, pause in looked for seconds in done.seconds(pause.calm)]
        paused = [seconds for done, pause in looked for seconds in done.seconds(pause.paused)]
        measured |= percentiles_ms(calm, f"{name}_calm_ack_") | percentiles_ms(paused, f"{name}_paused_ack_")
        measured[f"{name}_calm_stall_worst_ms"] = 1000 * max(done.stall_within_s(pause.calm) for done, pause in looked)
        measured |= _stalls_ms(f"{name}_paused_stall", [done.stall_touching_s(pause.paused) for done, pause in looked])
        measured[f"{name}_records_acknowledged"] = sum(len(done.times) for done in partitions.values())
    measured |= _stalls_ms("commit_paused_stall", [committed.stall_touching_s(pause.paused) for pause in pauses])
    shrunk_s = [pause.shrunk_s for pause in pauses if pause.shrunk_s is not None]
    if shrunk_s:
        measured["isr_shrunk_after_ms"] = 1000 * statistics.median(shrunk_s)
    return measured


def _stalls_ms(name: str, stalls_s: list[float]) -> dict[str, float]:
    ordered = sorted(stalls_s)
    return {
        f"{name}_p50_ms": 1000 * statistics.median(ordered),
        f"{name}_p99_ms": 1000 * ordered[math.ceil(0.99 * len(ordered)) - 1],
        f"{name}_worst_ms": 1000 * ordered[-1],
    }
