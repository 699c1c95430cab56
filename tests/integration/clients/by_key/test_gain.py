"""Consumers by key: how long other keys take while a slow record is processed."""

from __future__ import annotations

import asyncio
import sys

import pytest

from tests.integration.clients.by_key.conftest import WAIT_S, consumer, url
from tests.integration.http.conftest import Site
from tidelog.consumer import ConsumerRecord
from tidelog.producer import Producer


@pytest.mark.slow
@pytest.mark.parametrize("order", ["key", "total"])
@pytest.mark.timeout(600)
async def test_the_time_until_all_other_keys_are_processed(
    site: Site, order: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prints how long other keys of a partition take while one record of 10,000 takes 5 s: 1,000 keys, 16 workers."""

    others, are_done = 0, asyncio.Event()

    async def handle(record: ConsumerRecord) -> None:
        nonlocal others
        if record.offset == 100:
            await asyncio.sleep(5)
        others += record.key != b"100"
        if others == 9_990:
            are_done.set()

    async with Producer(url(site)) as producer:
        await producer.send_batch("t", [b""] * 10_000, keys=[b"%d" % (n % 1_000) for n in range(10_000)], partition=0)
    async with consumer(site, "t", order=order, session_timeout_ms=45_000) as reader:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        task = asyncio.create_task(reader.run(handle))
        async with asyncio.timeout(100 * WAIT_S):
            await are_done.wait()
        with capsys.disabled():
            sys.stdout.write(f'\norder="{order}": {loop.time() - began_s:.2f} s until all other keys were processed\n')
        await reader.stop()
        await task
