"""Thousands of clients at one time: F86, who are idle; F90, who wait for data; F91, who come back all at once."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.e2e.overload.books import JOB_SHIFT, Ledger, Numbered, Target
from tests.e2e.overload.ground import Ground, Watch, metrics, soon
from tests.e2e.overload.load import OPENED_AT_ONCE, SMALL_BYTES, Crowd, crowded, percentile
from tests.e2e.overload.rates import TOPIC, quiet
from tests.e2e.overload.wire import Ended, Link, Place, head
from tidelog.config.schema import BrokerConfig

IDLE: Final = 3_000
IDLE_S: Final = 20.0
FRESH_S: Final = 1.5
"""A connection that has asked nothing gives way after 1 s."""
NEW_CLIENTS: Final = 20
PROBE_PLACES: Final = 32

POLLS: Final = 10_000
POLL_TOPIC: Final = "polled"
POLL_PARTITIONS: Final = 100
POLL_WAIT_S: Final = 20.0
POLLS_BEGUN_S: Final = 10.0
POLL_SETTINGS: Final[Mapping[str, str]] = {"http.connections.max": "4000"}
"""The default of 2,000 for each broker lets 6,000 in."""

STORM: Final = 2_000
THINK_S: Final = 4.0
STORM_S: Final = 30.0
KILL_S: Final = 10.0
STABLE_S_MAX: Final = 10.0


# -- F86 -------------------------------------------------------------------------------------------------------------


async def idle(place: Place, clients: int, seconds: float) -> Counter[str]:
    """Job: connections that ask nothing. Returns what became of them."""
    links = [Link(place) for _ in range(clients)]
    end_s = time.monotonic() + seconds
    for at in range(0, clients, OPENED_AT_ONCE):
        await asyncio.gather(*(link.open() for link in links[at : at + OPENED_AT_ONCE]))
    await asyncio.sleep(max(0.0, end_s - time.monotonic()))
    ended = Counter(map(_end_of, links))
    for link in links:
        link.close()
    return ended


def _end_of(link: Link) -> str:
    if link.unasked:
        return f"told {link.unasked}"
    if link.was_reset:
        return "reset"
    return "gave way" if link.is_lost else "open"


async def come_anew(target: Target, clients: int, job: int) -> Ledger:
    """Job: clients that have no connection yet write once, one after another."""
    ledger, batches = Ledger(), Numbered(SMALL_BYTES)
    start = target.head(f"Content-Length: {batches.size}")
    for number in range(job << JOB_SHIFT, (job << JOB_SHIFT) + clients):
        link = Link(target.place)
        outcome: int = Ended.UNCONNECTED
        if await link.open():
            outcome, _ = await link.asked(start + batches.whole(number))
        ledger.add(number, outcome)
        link.close()
    return ledger


def f86(ground: Ground) -> None:
    """Idle connections to one broker, more than it has places: those at rest give way to who asks."""
    targets = ground.topic(TOPIC, leader=1)
    clients, places = ground.scaled(IDLE), BrokerConfig().http_connections_max
    before_s = percentile(quiet(ground, targets).took_s, 0.99)
    with Watch(ground, TOPIC) as watch:
        resting = ground.crew.start(idle, ground.place(1), clients, IDLE_S + FRESH_S)
        time.sleep(FRESH_S)
        during_s = percentile(quiet(ground, targets).took_s, 0.99)
        coming = ground.crew.start(come_anew, targets[0], NEW_CLIENTS, next(ground.jobs)).result()
        opened = int(metrics(ground.place(1))["tidelog_http_connections"])
        ended = resting.result()
    ground.ledgers[TOPIC].merge(coming)
    done = f"{clients:,} idle connections to one broker"
    told = ", ".join(f"{count:,} {what}" for what, count in sorted(ended.items()))
    ground.correct(done, told, "none is reset", not ended["reset"])
    bound = places + PROBE_PLACES
    ground.correct("open connections meanwhile", f"{opened:,}", f"{bound:,} at most", opened <= bound)
    all_served = coming.outcomes[200] == NEW_CLIENTS
    ground.correct(f"{NEW_CLIENTS} new clients that ask", coming.told(), "each is served", all_served)
    measured = f"{1000 * during_s:.1f} ms, {1000 * before_s:.1f} before"
    ground.figure("p99 of a small write", measured, "1.5 x before", during_s <= 1.5 * before_s)
    watch.say_memory()
    ground.read_back()


# -- F90 -------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Polled:
    """The ends of long polls."""

    outcomes: Counter[int] = field(default_factory=Counter)
    with_data: int = 0
    refused: int = 0
    """How often one was told to come later."""
    longest_s: float = 0.0
    last_s: float = 0.0


async def poll(targets: Sequence[Target], clients: int, begin_s: float) -> Polled:
    """Job: clients that wait for the first record, begun evenly over the time until `begin_s`."""
    found = Polled()
    spread_s = max(0.0, begin_s - time.monotonic())
    polls = (
        _poll(targets[number % len(targets)], found, spread_s * number / clients, begin_s) for number in range(clients)
    )
    await asyncio.gather(*polls)
    return found


async def _poll(target: Target, found: Polled, after_s: float, begin_s: float) -> None:
    await asyncio.sleep(after_s)
    path = f"/topics/{target.topic}/partitions/{target.partition}/batches?offset=0&wait_ms={1000 * POLL_WAIT_S:.0f}"
    outcome: int = Ended.UNCONNECTED
    while True:
        link = Link(target.place)
        if await link.open():
            outcome, seconds = await link.asked(head("GET", target.place, path))
            found.longest_s = max(found.longest_s, seconds)
        link.close()
        if outcome != 503 or time.monotonic() > begin_s + POLL_WAIT_S:
            break
        found.refused += 1
        await asyncio.sleep(1.0)  # as it was told
    found.outcomes[outcome] += 1
    found.with_data += outcome == 200 and len(link.body) > 0
    found.last_s = max(found.last_s, time.monotonic())


def f90(ground: Ground) -> None:
    """Long polls of many partitions, then a produce to each partition."""
    partitions, clients = ground.scaled(POLL_PARTITIONS, 3), ground.scaled(POLLS)
    targets = ground.topic(POLL_TOPIC, partitions=partitions)
    with Watch(ground, POLL_TOPIC) as watch:
        begin_s = time.monotonic() + max(3.0, POLLS_BEGUN_S * ground.scale)
        job = ground.crew.start(poll, targets, clients, begin_s)
        time.sleep(max(0.0, begin_s - time.monotonic()) + 1.0)
        waiting = sum(int(metrics(place)["tidelog_http_waiting_requests"]) for place in ground.places)
        produced_s = time.monotonic()
        ledger = ground.crew.start(write_each, targets, next(ground.jobs)).result()
        found = job.result()
    ground.ledgers[POLL_TOPIC].merge(ledger)
    done = f"{clients:,} long polls (http.connections.max is {POLL_SETTINGS['http.connections.max']})"
    told = Ledger(outcomes=found.outcomes).told()
    ground.correct(done, told, "each is answered", found.outcomes[200] == clients)
    ground.correct("of these with data", f"{found.with_data:,}", "all", found.with_data == clients)
    ground.answered(f"a produce to each of {partitions} partitions", ledger)
    ground.figure("long polls that waited before it", f"{waiting:,}; {found.refused:,} x told to come later")
    bound = f"{POLL_WAIT_S + 1:.0f} s"
    ground.figure(
        "the longest wait for an answer", f"{found.longest_s:.1f} s", bound, found.longest_s <= POLL_WAIT_S + 1
    )
    ground.figure("the last answer, after the produces", f"{found.last_s - produced_s:.1f} s")
    watch.say_memory()
    watch.say_roles()
    ground.read_back()


async def write_each(targets: Sequence[Target], job: int) -> Ledger:
    """Job: one small produce to each partition, all at once."""
    parts = await asyncio.gather(*(come_anew(target, 1, (job << 10) + number) for number, target in enumerate(targets)))
    ledger = Ledger()
    for part in parts:
        ledger.merge(part)
    return ledger


# -- F91 -------------------------------------------------------------------------------------------------------------


def f91(ground: Ground) -> None:
    """Clients of a leader that is killed come to the other brokers at once, and try again at once."""
    targets = ground.topic(TOPIC)
    clients, begin_s = ground.scaled(STORM), soon()
    killed_s = begin_s + KILL_S
    crowd = Crowd(targets, ground.places, clients, STORM_S, begin_s, next(ground.jobs), THINK_S, killed_s)
    with Watch(ground, TOPIC) as watch:
        job = ground.crew.start(crowded, crowd)
        time.sleep(max(0.0, killed_s - time.monotonic()))
        ground.cluster.kill(3)
        killed_s = time.monotonic()
        report = job.result()
    ground.ledgers[TOPIC].merge(report.ledger)
    done = f"{clients:,} clients; one of three leaders is killed"
    lost = report.ledger.outcomes[Ended.UNANSWERED]
    ground.correct(done, report.ledger.told(), "each is answered, or sees the end of its broker", not lost)
    heard = len(report.last_ok_s)
    ground.correct("clients served again", f"{heard:,}", "all", heard == clients)
    stable_s = max(report.last_ok_s, default=float("inf")) - killed_s
    before, after = report.rate(killed_s - 5, killed_s), report.rate(killed_s + STABLE_S_MAX, begin_s + STORM_S)
    is_held = stable_s <= STABLE_S_MAX and after >= 0.8 * before
    measured = f"{stable_s:.1f} s; goodput {after:,.0f}/s, {before:,.0f}/s before"
    bound = f"{STABLE_S_MAX:.0f} s; 80 % of the goodput"
    ground.figure("until each client is served again", measured, bound, is_held)
    watch.say_memory()
    ground.cluster.restart(3)
    ground.read_back()
