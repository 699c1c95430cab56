"""A progress bar of moving replicas, for `tidelog cluster rebalance` and the statements that add and remove brokers.

The brokers move the replicas, and the pending moves are in their metadata. So the watching command may be stopped, or
lose a broker, and be repeated later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tidelog.admin import AdminClient, ReassignmentDescription
from tidelog.cli.tables import count_progress
from tidelog.cli.terminal import CommandError

POLL_S = 0.25
LOOK_CLOSER_S = 30.0
"""Seconds without progress after which the cause is checked; large partitions just take long."""


async def move(admin: AdminClient, *, leaving: Sequence[int] = (), throttle_bytes_per_s: int | None = None) -> int:
    """Rebalances the cluster, with no replicas left on brokers that are `leaving`, and elects preferred leaders;
    returns the number of reassigned partitions when all is done. Raises `NotFound` or `InvalidRequest` if the rebalance
    is rejected, and `CommandError` if a broker that is down blocks the moves."""
    begun = await admin.rebalance(leaving=leaving, throttle_bytes_per_s=throttle_bytes_per_s)
    under_way = await admin.list_reassignments()
    count = max(len(begun), len(under_way))
    await watch(admin, max(1, len(under_way)))
    await admin.elect_preferred_leaders()
    return count


async def watch(admin: AdminClient, total: int) -> None:
    """Waits until no replica is being moved. Raises `CommandError` if a receiving broker is down and there was no
    progress for `LOOK_CLOSER_S`."""
    loop = asyncio.get_running_loop()
    changed_s, seen = loop.time(), None
    with count_progress() as progress:
        bar = progress.add_task("moving partitions", total=total)
        while left := await admin.list_reassignments():
            progress.update(bar, completed=max(0, total - len(left)), description=_described(left))
            if left != seen:
                changed_s, seen = loop.time(), left
            elif loop.time() - changed_s > LOOK_CLOSER_S:
                changed_s = loop.time()
                await _check(admin, left)
            await asyncio.sleep(POLL_S)


def _described(left: Sequence[ReassignmentDescription]) -> str:
    rate = left[0].throttle_bytes_per_s
    return "moving partitions" if rate is None else f"moving partitions, at most {rate / 1e6:,.3g} MB/s a broker"


async def _check(admin: AdminClient, left: Sequence[ReassignmentDescription]) -> None:
    """Raises `CommandError` with the brokers that are down and block the moves."""
    fenced = [broker.broker_id for broker in await admin.list_brokers() if broker.is_fenced]
    for move_left in left:
        missing = [node for node in move_left.target_replicas if node not in move_left.isr and node in fenced]
        if missing:
            where = f"{move_left.topic_name}-{move_left.partition_id}"
            raise CommandError(
                f"{len(left)} partitions still move, and {where} waits for broker {missing[0]}, which is not heard of; "
                "start it again and the moves go on, or call them off with `tidelog cluster rebalance --cancel`"
            )
