"""Stalls: how long a record waits for its acknowledgement, by when it was sent, while its partition's leader goes.

Two topics on three brokers, one of each commit protocol, get a record each 5 ms in each partition, as in `tidelog bench
pause`. A broker that leads a partition of both is killed (SIGKILL), or stops in its tracks (SIGSTOP). A record that was
sent just before waits for the whole of the stall, and those after it for what is left of it. Each fault happens a few
times, and the time counts when the machine was calmest before it.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tidelog.admin import AdminClient
from tidelog.bench.pause import BROKERS, Done, Whom, choose, write_steadily
from tidelog.bench.secured import Level, secured_cluster
from tidelog.model.cluster import PROTOCOLS
from tidelog.testing import LocalCluster

BEFORE_S: Final = 1.0
AFTER_S: Final = 4.0
ROUNDS: Final = 5
SETTLE_S: Final = 2.0
BIN_S: Final = 0.025
"""The width of a point: it shows the record that waited longest, of those sent meanwhile."""
ABOUT_S: Final = 0.25
VALUE_BYTES: Final = 100
IN_SYNC_S_MAX: Final = 120.0

Waits = list[tuple[float, float]]
"""(When a record was sent, in seconds after the fault; how many milliseconds it waited)."""
Lines = dict[str, Waits]
"""The waits in the topic of each protocol."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a broker: who it is, what is done to it, and how that is undone."""

    title: str
    whom: Whom
    do: Callable[[LocalCluster, int], None]
    undo: Callable[[LocalCluster, int], None]


FAULTS: Final = (
    Fault("killed (SIGKILL)", Whom.LEADER, LocalCluster.kill, LocalCluster.restart),
    Fault("killed, and was the active controller too", Whom.CONTROLLER, LocalCluster.kill, LocalCluster.restart),
    Fault("stopped in its tracks (SIGSTOP)", Whom.LEADER, LocalCluster.pause, LocalCluster.resume),
)


async def measure() -> dict[str, Lines]:
    """Has all faults happen in a cluster of its own, and returns the calmest time of each, by its title."""
    written = {name: {at: Done() for at in range(len(BROKERS))} for name in PROTOCOLS}
    over = asyncio.Event()
    async with secured_cluster(Level.PLAIN, len(BROKERS), kafka=True) as (cluster, to), AdminClient(**to) as admin:
        await _create_topics(admin)
        async with asyncio.TaskGroup() as tasks:
            for name in PROTOCOLS:
                tasks.create_task(write_steadily(to, name, VALUE_BYTES, written[name], over))
            try:
                hits = [(fault, await _hit(cluster, admin, fault)) for _ in range(ROUNDS) for fault in FAULTS]
            finally:
                over.set()
    by_fault: dict[str, list[Lines]] = defaultdict(list)
    for fault, (at_s, partition) in hits:
        by_fault[fault.title].append({name: waits(written[name][partition], at_s) for name in PROTOCOLS})
    return {title: min(rounds, key=unrest_ms) for title, rounds in by_fault.items()}


async def _create_topics(admin: AdminClient) -> None:
    """Makes a topic of each protocol; partition i of both is led by the same broker."""
    replicas = {at: (*BROKERS[at:], *BROKERS[:at]) for at in range(len(BROKERS))}
    for name in PROTOCOLS:
        await admin.create_topic(name, replicas_assignments=replicas, configs={"commit.protocol": name})


async def _hit(cluster: LocalCluster, admin: AdminClient, fault: Fault) -> tuple[float, int]:
    """Has a fault happen, and pass. Returns when it happened, and the partition whose leader it met."""
    await admin.elect_preferred_leaders()
    await asyncio.sleep(SETTLE_S)
    node, _ = choose(fault.whom, (await admin.describe_cluster()).controller_id, None)
    at_s = time.monotonic()
    await asyncio.to_thread(fault.do, cluster, node)
    await asyncio.sleep(AFTER_S)
    await asyncio.to_thread(fault.undo, cluster, node)
    async with asyncio.timeout(IN_SYNC_S_MAX):
        while not await _are_in_sync(admin):  # noqa: ASYNC110 - no event here tells of the brokers' state
            await asyncio.sleep(0.1)
    return at_s, BROKERS.index(node)


async def _are_in_sync(admin: AdminClient) -> bool:
    topics = [await admin.describe_topic(name) for name in PROTOCOLS]
    return all(len(partition.isr) == len(BROKERS) for topic in topics for partition in topic.partitions)


def waits(done: Done, at_s: float) -> Waits:
    """Returns the longest wait in each `BIN_S` around a fault."""
    longest: dict[int, float] = {}
    for begun_s, done_s in done.times:
        if -BEFORE_S <= begun_s - at_s < AFTER_S:
            place = int((begun_s - at_s) // BIN_S)
            longest[place] = max(longest.get(place, 0.0), 1000 * (done_s - begun_s))
    return [(place * BIN_S, longest[place]) for place in sorted(longest)]


def stall_ms(line: Waits) -> float:
    """Returns the longest wait of the records that were sent about when a fault happened."""
    return max((wait_ms for sent_s, wait_ms in line if abs(sent_s) < ABOUT_S), default=0.0)


def unrest_ms(lines: Lines) -> float:
    """Returns the wait that half of the records exceeded before a fault."""
    return statistics.median(wait_ms for line in lines.values() for sent_s, wait_ms in line if sent_s < 0)
