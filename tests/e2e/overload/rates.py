"""F85: more is asked than can be done. What is done then is as much as ever, and as quickly."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from tests.e2e.overload.books import Target
from tests.e2e.overload.ground import Ground, Watch, soon
from tests.e2e.overload.load import Crowd, Pace, Report, crowded, paced, percentile

TOPIC: Final = "small"
CLOSED_CLIENTS: Final = 240
CAPACITY_S: Final = 10.0
WARM_SHARE: Final = 0.3
QUIET_RATE: Final = 50.0
QUIET_S: Final = 10.0
FACTORS: Final = (1, 2, 10)
LINKS: Final = 1_900
"""For each broker, which lets 2,000 in: more clients than that cannot wait for it at one time."""
AFTER_S: Final = 5.0


def f85(ground: Ground) -> None:
    """Small produces at rest, at the capacity, at twice that and ten times that, and at rest again."""
    targets = ground.topic(TOPIC)
    rest_s = percentile(quiet(ground, targets, ground.spent(QUIET_S)).took_s, 0.99)
    ground.figure("p99 of a small write, brokers at rest", f"{1000 * rest_s:.1f} ms")
    capacity = measure_capacity(ground, targets)
    ground.figure(f"capacity: {CLOSED_CLIENTS} clients in a closed loop", f"{capacity:,.0f}/s")
    with Watch(ground, TOPIC) as watch:
        goodputs = {factor: _flood(ground, targets, factor, capacity) for factor in FACTORS}
        ended_s = time.monotonic()
        after = quiet(ground, targets)
    peak = max(capacity, *goodputs.values())
    share = goodputs[FACTORS[-1]] / peak
    ground.figure(f"goodput at {FACTORS[-1]}x, of the peak", f"{100 * share:.0f} %", "80 % at least", share >= 0.8)
    watch.say_memory()
    watch.say_roles()
    after_s = percentile(after.durations(ended_s + AFTER_S), 0.99)
    done = f"p99 of a small write from {AFTER_S:.0f} s after the end on"
    ground.figure(done, f"{1000 * after_s:.1f} ms", "2 x at rest", after_s <= 2 * rest_s)
    ground.read_back()


def quiet(ground: Ground, targets: Sequence[Target], seconds: float = QUIET_S) -> Report:
    """Writes little, as the brokers' only client or beside others."""
    pace = Pace(targets, QUIET_RATE, seconds, soon(), next(ground.jobs))
    report = ground.crew.start(paced, pace).result()
    ground.ledgers[targets[0].topic].merge(report.ledger)
    ground.answered(f"{QUIET_RATE:.0f} small writes a second", report.ledger)
    return report


def measure_capacity(ground: Ground, targets: Sequence[Target]) -> float:
    """Returns how many small writes a second are acknowledged to clients that wait for each."""
    seconds, begin_s = ground.spent(CAPACITY_S), soon()
    places = list(dict.fromkeys(target.place for target in targets))
    crowd = Crowd(targets, places, CLOSED_CLIENTS, seconds, begin_s, next(ground.jobs))
    report = ground.crew.start(crowded, crowd).result()
    ground.ledgers[targets[0].topic].merge(report.ledger)
    ground.answered(f"{CLOSED_CLIENTS} clients in a closed loop", report.ledger)
    return report.rate(begin_s + WARM_SHARE * seconds, begin_s + seconds)


def _flood(ground: Ground, targets: Sequence[Target], factor: int, capacity: float) -> float:
    """Sends at that many times the capacity. Returns the goodput."""
    seconds, begin_s = ground.seconds, soon()
    links = ground.scaled(LINKS, 20)
    pace = Pace(targets, factor * capacity, seconds, begin_s, next(ground.jobs), links)
    report = ground.crew.start(paced, pace).result()
    ground.ledgers[TOPIC].merge(report.ledger)
    ground.answered(f"{factor}x, open loop, {seconds:.0f} s", report.ledger)
    goodput = report.rate(begin_s + WARM_SHARE * seconds, begin_s + seconds)
    offered = f"{report.sent / seconds:,.0f}/s sent, {report.held_back / seconds:,.0f}/s found no free connection"
    ground.figure(f"{factor}x: offered", f"{offered}; the generator took {report.cpu_s / seconds:.2f} cores")
    ground.figure(f"{factor}x: goodput", f"{goodput:,.0f}/s")
    took_s = percentile(report.took_s, 0.99)
    ground.figure(f"{factor}x: p99 of what is admitted", f"{1000 * took_s:,.0f} ms", "1 s at most", took_s <= 1.0)
    return goodput
