"""Consumers by key: errors of handlers, the end of a run, and misuse."""

from __future__ import annotations

import asyncio
import logging
from functools import partial

import pytest

from tests.integration.clients.by_key.conftest import T0, WAIT_S, Handler, committed, consumer, produce, running, until
from tests.integration.http.conftest import Site
from tidelog.consumer import Consumer, ConsumerRecord
from tidelog.model.errors import InvalidRequest


async def test_the_first_error_ends_the_run_and_its_record_comes_again(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails(record: ConsumerRecord) -> None:
        if record.offset == 3:
            await handler.until(lambda: len(handler.started) == 9 and len(handler.finished) == 7)
            raise ValueError("no number")
        await handler(record)
        if record.offset == 5:
            raise ValueError("no number either")

    await produce(site, range(10))
    handler = Handler(4, 5)
    async with consumer(site, "t") as reader:
        task = asyncio.create_task(reader.run(fails))
        await until(lambda: reader._run is not None and reader._run._is_ending.is_set())
        handler.open(4, 5)
        async with asyncio.timeout(WAIT_S):
            with pytest.raises(ValueError, match=r"no number$"):
                await task
        assert "no number either" in caplog.text
        found = await committed(site)
        assert (found.low, found.intervals) == (3, [(4, 5), (6, 10)])
        assert await reader.position(T0) == 3
        again = Handler()
        task = asyncio.create_task(reader.run(again))
        await again.until_finished(2)
        await reader.stop()
        await task
        assert sorted(again.finished) == [3, 5]


async def test_a_run_that_is_cancelled_cancels_its_handlers(site: Site) -> None:
    await produce(site, range(10))
    handler = Handler(0, 1)
    async with consumer(site, "t") as reader:
        task = asyncio.create_task(reader.run(handler))
        await handler.until_finished(8)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert reader._run is None
    assert (await committed(site)).intervals == [(2, 10)]


async def test_handlers_that_take_too_long_at_the_end_are_cancelled(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    await produce(site, range(3))
    handler = Handler(0)
    async with running(consumer(site, "t"), handler, drain_timeout_ms=10):
        await handler.until_finished(2)
    assert "1 records are not processed after 0.01 s" in caplog.text
    assert (await committed(site)).intervals == [(1, 3)]


async def test_a_handler_cannot_stop_its_consumer(site: Site) -> None:
    async def stops(_: ConsumerRecord) -> None:
        await reader.stop()

    await produce(site, [1])
    async with consumer(site, "t") as reader, asyncio.timeout(WAIT_S):
        with pytest.raises(InvalidRequest, match="another task"):
            await reader.run(stops)


async def test_misuse_is_said_to_be(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(InvalidRequest, match="order must be total, key or none"):
        consumer(site, order="keys")
    with pytest.raises(InvalidRequest, match='order="none" is for consumers in a group'):
        Consumer("t", order="none")
    handler = Handler()
    async with consumer(site, "t") as by_key:
        for call in (by_key.getone, by_key.getmany, by_key.getbatch, partial(anext, by_key)):
            with pytest.raises(InvalidRequest, match=r'order="key" hands out no records: give `run`'):
                await call()
        for options in ({"workers": 0}, {"workers": 257}, {"drain_timeout_ms": -1}):
            with pytest.raises(InvalidRequest, match="workers"):
                await by_key.run(handler, **options)
    reader = consumer(site, "t", order="total")
    async with running(reader, handler):
        await until(lambda: reader._run is not None)
        with pytest.raises(InvalidRequest, match="runs already"):
            await reader.run(handler)
        with pytest.raises(InvalidRequest, match="none are handed out"):
            await reader.getmany()
    assert caplog.get_records("call") == [] or max(r.levelno for r in caplog.get_records("call")) < logging.ERROR
