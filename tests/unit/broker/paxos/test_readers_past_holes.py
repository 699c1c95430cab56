"""Readers in total order, deletion and searches by time, in a topic whose order is not total: a batch that is
acknowledged above a hole is not there for them, on any replica, before the hole is filled."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.broker.isr.stage import until
from tests.unit.broker.paxos.stage import Stage
from tests.unit.broker.paxos.test_commit_order import Hole, ask, offset_of, pause, play_order
from tidelog.broker.paxos.partition import PaxosPartition
from tidelog.model.errors import OffsetOutOfRange, TimedOutAfterAppend


@pytest.mark.parametrize("order", ["key", "none"])
def test_what_is_acknowledged_above_a_hole_is_there_when_the_hole_is_filled(order: str) -> None:
    async def story(stage: Stage, leader: PaxosPartition) -> None:
        assert offset_of(await ask(stage, b"zero", b"z")) == 0
        hole = Hole(stage, at=2)
        stuck = ask(stage, b"one", b"a")
        await pause()
        assert offset_of(await ask(stage, b"two", b"b")) == 2
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        await leader.wait_for_data(1, bytes_min=1, deadline_s=begun_s + 3.0)
        assert loop.time() - begun_s >= 3.0, "nothing came for a reader in total order"
        extent, fetched = await leader.extent(), await leader.read(0, bytes_max=1 << 20)
        assert (extent.high_watermark, fetched.next_offset, fetched.high_watermark) == (1, 1, 1)
        assert (await leader.read(1, bytes_max=1 << 20)).data == b""
        for offset in (2, 3):
            fetched = await leader.read(offset, bytes_max=1 << 20)
            assert (fetched.data, fetched.next_offset, fetched.high_watermark) == (b"", offset, 1), "no error: it comes"
        with pytest.raises(OffsetOutOfRange):
            await leader.read(4, bytes_max=1 << 20)
        found = await leader.offset_for_timestamp(0)
        assert found is not None and found[0] == 0
        assert isinstance(await stage.delete(1, 3), OffsetOutOfRange)
        assert isinstance(await stage.delete(1, 1), TimedOutAfterAppend), "a DELETE takes effect in order"
        hole.is_open = False
        assert offset_of(await stuck) == 1
        await until(lambda: leader.high_watermark == 3 and leader.log_start_offset == 1)
        fetched = await leader.read(1, bytes_max=1 << 20)
        assert fetched.next_offset == 3 and bytes(fetched.data).index(b"one") < bytes(fetched.data).index(b"two")
        assert await stage.delete(1, 3) is None
        await stage.quiet()
        assert {site.replica.log.log_start_offset for site in stage.sites.values()} == {3}

    play_order(order, story)
