"""Three whole brokers, all killed, and one whose log has lost its end: batches and catalog rows, on this disk alone.

Nothing there tells how long the log was. If it counted as a short one it would lead, and the others, who have
everything, would truncate what was acknowledged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

import pytest

from tidelog.broker.broker import Broker
from tidelog.model.ids import PartitionId
from tidelog.sim.kit import rot
from tidelog.sim.kit.inode import SECTOR_BYTES
from tidelog.sim.kit.loop import run
from tidelog.sim.kit.medium import Medium
from tidelog.sim.sweep.brokers import Brokers, brokers_of
from tidelog.sim.sweep.cases import ENTRIES, Plan, Protocol, Stop, Variant
from tidelog.sim.sweep.partitions import TOPIC, Written, write
from tidelog.sim.sweep.reading import append
from tidelog.storage.log_manager import log_directory
from tidelog.storage.rows import ROW_BYTES


def zero(medium: Medium, path: str, begin: int) -> None:
    rot.overwrite(medium, path, begin, bytes(len(medium.walk()[path].data) - begin))


def make_unreadable(medium: Medium, path: str, begin: int) -> None:
    """Each sector by itself, as disks do."""
    for at in range(begin, len(medium.walk()[path].data), SECTOR_BYTES):
        rot.make_unreadable(medium, path, at, SECTOR_BYTES)


Harm = Callable[[Medium, str, int], None]
HARMS: Final = {"zero": zero, "cut": rot.truncate, "eio": make_unreadable}


async def read_all(broker: Broker, partition_id: PartitionId) -> int:
    """Returns how many offsets this broker's own copy shows, without a gap."""
    copy = broker.data.local_copy(partition_id)
    return 0 if copy is None else (await copy.read(0, bytes_max=1 << 20)).next_offset


async def play(written: Written, node: int, harm: Harm, keeps_rows: int) -> None:
    partition_id = PartitionId(written.topic_id, 0)
    async with brokers_of(written.plan, "played") as brokers:
        brokers.restore(written.disks)
        medium = brokers.media[node]
        stem = f"{log_directory(partition_id)}/{0:020}"
        rows = -(-keeps_rows * ROW_BYTES // SECTOR_BYTES) * SECTOR_BYTES
        harm(medium, f"{stem}.catalog", rows)
        harm(medium, f"{stem}.log", 0)
        for other in written.plan.nodes:
            brokers.start(other)
        assert await brokers.are_up(), brokers.words()
        await check(brokers, written, partition_id)


async def check(brokers: Brokers, written: Written, partition_id: PartitionId) -> None:
    """All brokers show all that was acknowledged, and what is written then lies behind it."""
    write_after = partial(append, topic=TOPIC, number=0, value=b"after")
    assert await brokers.insist(write_after, lambda: 1) == ENTRIES == len(written.offsets[0])
    async with asyncio.timeout(60):
        for node in written.plan.nodes:
            while await brokers.ask(node, partial(read_all, partition_id=partition_id)) != ENTRIES + 1:
                await asyncio.sleep(0.1)


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("stop", [Stop.ACKNOWLEDGED, Stop.IDLE])
def test_a_log_that_has_lost_batches_and_catalog_does_not_lead_before_it_is_filled(stop: Stop, harm: str) -> None:
    written = run(partial(write, Plan(Protocol.ISR, stop, Variant.PLAIN, seed=1), 1))
    for node in written.plan.nodes:  # who leads depends on the order of their starts
        run(partial(play, written, node, HARMS[harm], keeps_rows=0))


def test_what_the_disk_refuses_to_read_at_the_end_was_not_torn() -> None:
    """The catalog's header, and the rows beside it in its sector, are sound."""
    written = run(partial(write, Plan(Protocol.ISR, Stop.ACKNOWLEDGED, Variant.PLAIN, seed=1), 1))
    for node in written.plan.nodes:
        run(partial(play, written, node, make_unreadable, keeps_rows=4))
