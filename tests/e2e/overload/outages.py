"""F92: clients try again without back-off while nobody can serve them, and must not keep the brokers down by that."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from tests.e2e.overload.ground import Ground, Watch, soon
from tests.e2e.overload.load import Crowd, crowded
from tests.e2e.overload.rates import TOPIC
from tests.e2e.overload.wire import Ended

CLIENTS: Final = 300
BEFORE_S: Final = 10.0
OUTAGE_S: Final = 30.0
BACK_S_MAX: Final = 30.0
BALANCED_SETTINGS: Final[Mapping[str, str]] = {"leader.imbalance.check.interval.seconds": "10"}
"""The broker that stayed leads all partitions at first, which takes a fifth of the goodput until they go back."""
RATE_S: Final = 3.0
"""The time over which the goodput is taken."""


def f92(ground: Ground) -> None:
    """Two of three brokers are killed, so that nobody has a majority, and come back later."""
    targets = ground.topic(TOPIC)
    clients, before_s = ground.scaled(CLIENTS), ground.spent(BEFORE_S, RATE_S + 2)
    outage_s, begin_s = ground.spent(OUTAGE_S, 5.0), soon()
    killed_s = begin_s + before_s
    seconds = before_s + outage_s + 2 * BACK_S_MAX
    crowd = Crowd(targets, ground.places, clients, seconds, begin_s, next(ground.jobs), 0.0, killed_s + outage_s)
    with Watch(ground, TOPIC) as watch:
        job = ground.crew.start(crowded, crowd)
        time.sleep(max(0.0, killed_s - time.monotonic()))
        before = (time.monotonic() - RATE_S, time.monotonic())
        ground.cluster.kill(2, 3)
        time.sleep(outage_s)
        began_s = time.monotonic()
        ground.cluster.restart(2, 3)
        ready_s = time.monotonic()
        report = job.result()
    ground.ledgers[TOPIC].merge(report.ledger)
    lost = report.ledger.outcomes[Ended.UNANSWERED]
    done = f"{clients} clients without back-off; two brokers are away for {outage_s:.0f} s"
    ground.correct(done, report.ledger.told(), "each is answered, or sees the end of its broker", not lost)
    heard = len(report.last_ok_s)
    ground.correct("clients served again", f"{heard:,}", "all", heard == clients)
    ground.figure("the start of the brokers that were away", f"{ready_s - began_s:.1f} s")
    goodput = report.rate(*before)
    end_s, back_s = begin_s + seconds, began_s
    while back_s + RATE_S < end_s and report.rate(back_s, back_s + RATE_S) < 0.8 * goodput:
        back_s += 0.5
    back_s = back_s if back_s + RATE_S < end_s else float("inf")
    after = report.rate(end_s - BACK_S_MAX, end_s)
    ground.figure("goodput", f"{goodput:,.0f}/s before, {after:,.0f}/s in the last {BACK_S_MAX:.0f} s")
    is_held = back_s - began_s <= BACK_S_MAX
    done = "until 80 % of that, after the brokers were started"
    ground.figure(done, f"{back_s - began_s:.1f} s", f"{BACK_S_MAX:.0f} s", is_held)
    watch.say_memory()
    ground.read_back()
