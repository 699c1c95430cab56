"""A broker's wall clock is moved by an hour: it says so, nothing is deleted or refused. `make clocks` moves more."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.e2e.clocks.faking import LACK, give_clocks, library
from tests.e2e.clocks.moving import move
from tests.e2e.clocks.writing import BROKERS, Writer
from tidelog.admin import AdminClient
from tidelog.testing import LocalCluster

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(180)]

NODES = 3
MOVED = 1
HOUR_S = 3_600
HELD_S = 3.0
SKEW_MS_MAX = 30_000
SETTINGS = {"log.retention.check.interval.ms": "200", "clock.skew.ms.max": str(SKEW_MS_MAX)}


async def test_a_clock_that_is_an_hour_ahead_deletes_and_refuses_nothing(tmp_path: Path) -> None:
    loaded = library()
    if loaded is None:
        pytest.skip(LACK)
    cluster = LocalCluster(NODES, settings=SETTINGS, data_dir=tmp_path)
    clocks = give_clocks(cluster, tmp_path, loaded)
    async with cluster:
        writer = Writer(cluster.bootstrap, NODES)
        async with AdminClient(cluster.bootstrap) as admin:
            await writer.create(admin)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(writer.write())
            try:
                moved = await move(cluster, clocks, MOVED, HOUR_S, HELD_S)
            finally:
                writer.stop()
        await writer.read_back()
    assert moved.is_named
    assert writer.refused == {}
    assert all(book.sent for book in writer.books)
    assert sum(book.missing for book in writer.books) == 0
    assert max(book.off_ms_max for book in writer.books if book.times == BROKERS) <= SKEW_MS_MAX
