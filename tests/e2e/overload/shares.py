"""F88: one client asks for ten times its share. Others do not pay for it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from tests.e2e.overload.books import Target
from tests.e2e.overload.ground import Ground, Watch, soon
from tests.e2e.overload.load import Pace, Report, paced, percentile
from tests.e2e.overload.rates import TOPIC
from tidelog.admin import AdminClient
from tidelog.model.quotas import REQUEST_RATE, Entity

GREEDY: Final = "greedy"
SHARE: Final = 50.0
"""Requests a second that the greedy client may send to each broker."""
FACTOR: Final = 10
MODEST_RATE: Final = 300.0
MODEST_S: Final = 20.0
LINKS: Final = 100


def f88(ground: Ground) -> None:
    """Modest clients by themselves, and then beside a greedy one."""
    targets = ground.topic(TOPIC)
    asyncio.run(_set_share(ground.cluster.bootstrap))
    with Watch(ground, TOPIC) as watch:
        alone, _ = _side_by_side(ground, targets, 0.0)
        beside, greedy = _side_by_side(ground, targets, FACTOR * SHARE * len(ground.places))
    assert greedy is not None
    ground.answered("the greedy client", greedy.ledger)
    allowed = SHARE * len(ground.places) * (greedy.seconds + 2)  # a second's worth at once, and as much that waits
    served = greedy.ledger.outcomes[200]
    ground.correct("served to the greedy client", f"{served:,}", f"{allowed:,.0f} at most", served <= allowed)
    goodput = beside.ledger.outcomes[200] / max(1, alone.ledger.outcomes[200])
    ground.figure("goodput of others, of that before", f"{100 * goodput:.0f} %", "95 % at least", goodput >= 0.95)
    before_s, after_s = (percentile(report.took_s, 0.99) for report in (alone, beside))
    measured = f"{1000 * before_s:.1f} ms, then {1000 * after_s:.1f} ms"
    ground.figure("p99 of others", measured, "2 x before", after_s <= 2 * before_s)
    watch.say_memory()
    watch.say_roles()
    ground.read_back()


async def _set_share(bootstrap: str) -> None:
    async with AdminClient(bootstrap) as admin:
        await admin.alter_quotas({Entity(client_id=GREEDY): {REQUEST_RATE: SHARE}})


def _side_by_side(ground: Ground, targets: Sequence[Target], greedy_rate: float) -> tuple[Report, Report | None]:
    """Has modest clients write, and the greedy one at that rate. Returns the reports of both."""
    seconds, begin_s = ground.spent(MODEST_S), soon()
    modest = ground.crew.start(paced, Pace(targets, MODEST_RATE, seconds, begin_s, next(ground.jobs), LINKS))
    greedy = None
    if greedy_rate:
        pace = Pace(targets, greedy_rate, seconds, begin_s, next(ground.jobs), LINKS, client_id=GREEDY)
        greedy = ground.crew.start(paced, pace)
    found = modest.result()
    reports = (found, greedy.result() if greedy else None)
    for report in filter(None, reports):
        ground.ledgers[TOPIC].merge(report.ledger)
    ground.answered(f"{MODEST_RATE:.0f} small writes a second", found.ledger)
    return reports
