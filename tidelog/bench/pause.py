"""Workload `pause`: one of three brokers stops in its tracks (SIGSTOP) while records are written to two topics, one of
each commit protocol.

Both partitions are led by the same broker, and the one that sleeps follows both; it is not the active controller, so
that what is measured is the commit protocol's and not an election's. Records come at a steady pace, whether or not
earlier ones are acknowledged. Measured are, for each topic,

- how long acknowledgements took, of what was sent while all was well, and of what was sent during a pause;
- the longest time without one, while all was well, and during a pause, where a stall that outlasts it counts whole;
- for the topic of in-sync replicas, how long the set kept the broker that sleeps.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Final

from tidelog.admin import AdminClient
from tidelog.bench.payload import make_values
from tidelog.bench.result import Progress, Result, percentiles_ms
from tidelog.model.cluster import PROTOCOLS
from tidelog.producer import Delivery, Producer
from tidelog.testing import LocalCluster
from tidelog.transport.errors import NoAnswer

LEADER: Final = 1
BROKERS: Final = (1, 2, 3)
SEND_EVERY_S: Final = 0.005
WARM_UP_S: Final = 1.0
LOOK_S: Final = 0.02
LOOK_MS_MAX: Final = 500.0
"""How long a broker may take to answer one look; one that sleeps takes longer."""
IN_SYNC_S_MAX: Final = 60.0

Span = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseOptions:
    """`pauses` of `paused_s` each, with `calm_s` before every one."""

    pauses: int = 3
    paused_s: float = 20.0
    calm_s: float = 10.0
    value_bytes: int = 100


@dataclass(slots=True)
class Acknowledged:
    """Of one topic: (when it was sent, when it was acknowledged) of each record."""

    times: list[Span] = field(default_factory=list)

    def seconds(self, span: Span) -> list[float]:
        """How long it took, of what was sent then."""
        return [done_s - sent_s for sent_s, done_s in self.times if span[0] <= sent_s < span[1]]

    def stalls_s(self) -> list[Span]:
        """From one acknowledgement to the next, whichever record it was of."""
        return [*pairwise(sorted(done_s for _, done_s in self.times))]

    def stall_within_s(self, span: Span) -> float:
        """The longest that began and ended then."""
        return _longest(stall for stall in self.stalls_s() if span[0] <= stall[0] and stall[1] < span[1])

    def stall_touching_s(self, span: Span) -> float:
        """The longest of which a part was then."""
        return _longest(stall for stall in self.stalls_s() if span[0] <= stall[1] and stall[0] < span[1])


def _longest(spans: Iterable[Span]) -> float:
    return max((end_s - begin_s for begin_s, end_s in spans), default=0)


@dataclass(slots=True)
class _Run:
    acknowledged: dict[str, Acknowledged] = field(default_factory=lambda: {name: Acknowledged() for name in PROTOCOLS})
    calm: list[Span] = field(default_factory=list)
    paused: list[Span] = field(default_factory=list)
    shrunk_s: list[float] = field(default_factory=list)


async def measure_pause(options: PauseOptions, progress: Progress) -> Result:
    """Runs the workload on a cluster of its own."""
    run, over = _Run(), asyncio.Event()
    async with (
        LocalCluster(len(BROKERS)) as cluster,
        AdminClient(cluster.bootstrap) as admin,
        AdminClient(cluster.bootstrap, request_timeout_ms=LOOK_MS_MAX) as watcher,
    ):
        for name in PROTOCOLS:
            configs = {"commit.protocol": name}
            await admin.create_topic(name, replicas_assignments={0: BROKERS}, configs=configs)
        async with asyncio.TaskGroup() as tasks:
            for name, acknowledged in run.acknowledged.items():
                tasks.create_task(write_steadily(cluster.bootstrap, name, options.value_bytes, acknowledged, over))
            try:
                await asyncio.sleep(WARM_UP_S)
                for number in range(options.pauses):
                    await _pause(cluster, admin, watcher, options, run)
                    progress(number + 1, options.pauses)
            finally:
                over.set()
    return Result("pause", asdict(options), figures(run.acknowledged, run.calm, run.paused, run.shrunk_s))


async def _pause(
    cluster: LocalCluster, admin: AdminClient, watcher: AdminClient, options: PauseOptions, run: _Run
) -> None:
    begin_s = time.monotonic()
    await asyncio.sleep(options.calm_s)
    controller = (await admin.describe_cluster()).controller_id
    sleeper = next(node_id for node_id in BROKERS if node_id not in (LEADER, controller))
    paused_s = time.monotonic()
    run.calm.append((begin_s, paused_s))
    cluster.pause(sleeper)
    try:
        while time.monotonic() < paused_s + options.paused_s:
            if len(run.shrunk_s) < len(run.calm) and sleeper not in await _in_sync(watcher):
                run.shrunk_s.append(time.monotonic() - paused_s)
            await asyncio.sleep(LOOK_S)
    finally:
        cluster.resume(sleeper)
    run.paused.append((paused_s, time.monotonic()))
    async with asyncio.timeout(IN_SYNC_S_MAX):
        while set(await _in_sync(watcher)) != set(BROKERS):  # noqa: ASYNC110 - somebody else's state
            await asyncio.sleep(LOOK_S)


async def _in_sync(watcher: AdminClient) -> tuple[int, ...]:
    """Returns the in-sync set. A broker that sleeps does not answer: then another one is asked."""
    while True:
        with suppress(NoAnswer):
            return (await watcher.describe_topic("isr")).partitions[0].isr


async def write_steadily(
    bootstrap: str, topic: str, value_bytes: int, found: Acknowledged, over: asyncio.Event
) -> None:
    """Sends a record every `SEND_EVERY_S` until it is over, and notes when each is acknowledged."""
    values = make_values("random", value_bytes)
    async with Producer(bootstrap, linger_ms=0) as producer, asyncio.TaskGroup() as tasks:
        number = 0
        while not over.is_set():
            sent_s = time.monotonic()
            delivery = await producer.send(topic, values[number % len(values)])
            tasks.create_task(_acknowledge(delivery, sent_s, found))
            number += 1
            await asyncio.sleep(SEND_EVERY_S)


async def _acknowledge(delivery: Delivery, sent_s: float, found: Acknowledged) -> None:
    await delivery
    found.times.append((sent_s, time.monotonic()))


def figures(
    acknowledged: dict[str, Acknowledged], calm: list[Span], paused: list[Span], shrunk_s: list[float]
) -> dict[str, float]:
    """Of all pauses together; the in-sync set's is the median."""
    found: dict[str, float] = {}
    for name, one in acknowledged.items():
        for when, spans in (("calm", calm), ("paused", paused)):
            found |= percentiles_ms([seconds for span in spans for seconds in one.seconds(span)], f"{name}_{when}_ack_")
        found[f"{name}_calm_stall_worst_ms"] = 1000 * max(map(one.stall_within_s, calm))
        found[f"{name}_paused_stall_worst_ms"] = 1000 * max(map(one.stall_touching_s, paused))
        found[f"{name}_records_acknowledged"] = len(one.times)
    if shrunk_s:
        found["isr_shrunk_after_ms"] = 1000 * statistics.median(shrunk_s)
    return found
