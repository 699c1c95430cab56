"""Watching replicas move, with a bar: for `tidelog cluster rebalance` and the statements that add and remove brokers.

The brokers carry the moves out, and what is left to do is in their metadata. So nothing here has to survive: whoever
watches may stop, or lose a broker, and look again later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tidelog.admin import AdminClient, ReassignmentDescription
from tidelog.cli.tables import count_progress
from tidelog.cli.terminal import CommandError

POLL_S = 0.25
STALLED_S = 300.0
"""So long nothing may happen before watching ends; large partitions take their time."""


async def move(admin: AdminClient, *, leaving: Sequence[int] = ()) -> int:
    """Evens out the load, nothing on brokers that are `leaving`, and lets preferred leaders lead; returns when all is
    done how many partitions were moved. Raises as `AdminClient.rebalance`, and `CommandError` if nothing moves."""
    begun = await admin.rebalance(leaving=leaving)
    under_way = await admin.list_reassignments()
    count = max(len(begun), len(under_way))
    await watch(admin, max(1, len(under_way)))
    await admin.elect_preferred_leaders()
    return count


async def watch(admin: AdminClient, total: int) -> None:
    """Returns when nothing moves any more. Raises `CommandError` if nothing has happened for `STALLED_S`."""
    loop = asyncio.get_running_loop()
    changed_s, seen = loop.time(), None
    with count_progress() as progress:
        bar = progress.add_task("moving partitions", total=total)
        while left := await admin.list_reassignments():
            progress.update(bar, completed=max(0, total - len(left)))
            if left != seen:
                changed_s, seen = loop.time(), left
            elif loop.time() - changed_s > STALLED_S:
                raise CommandError(_stalled(left))
            await asyncio.sleep(POLL_S)


def _stalled(left: Sequence[ReassignmentDescription]) -> str:
    first = left[0]
    missing = [node_id for node_id in first.target_replicas if node_id not in first.isr]
    return (
        f"{len(left)} partitions still move, and nothing has happened for {STALLED_S:g} s: {first.topic_name}-"
        f"{first.partition_id} waits for {', '.join(f'broker {node_id}' for node_id in missing)}; the moves go on, or "
        "call them off with `tidelog cluster rebalance --cancel`"
    )
