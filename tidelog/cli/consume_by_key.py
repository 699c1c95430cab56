"""`tidelog consume --order key` and `none`: prints records in the order in which a consumer's `run` hands them out,
which may be before the high watermark has passed them.

The records that come while others are written are written together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from tidelog.cli.record_text import Show
from tidelog.consumer import Consumer, ConsumerRecord

WORKERS: Final = 64
POLL_S: Final = 0.5
"""Seconds to wait for records before checking whether the time without any is over."""


class Printer:
    """The handler of a `run` that prints at most `records_max` records. One that it cannot print it cancels, so that it
    is not processed."""

    def __init__(
        self, consumer: Consumer, show: Show, write: Callable[[bytes], Awaitable[None]], records_max: int
    ) -> None:
        self._consumer = consumer
        self._show = show
        self._write = write
        self._left = self._unprinted = records_max
        self._lines: list[bytes] = []
        self._turn = asyncio.Lock()
        self._is_broken = False
        self._has_printed = asyncio.Event()

    async def __call__(self, record: ConsumerRecord) -> None:
        """Prints a record, together with those that came while others were written."""
        if not self._left:  # of a partition that was assigned just now
            raise asyncio.CancelledError
        self._left -= 1
        if not self._left:
            self._consumer.pause(*self._consumer.assignment())
        self._lines.append(self._show(record))
        async with self._turn:
            await self._print()
        self._unprinted -= 1
        self._has_printed.set()

    async def _print(self) -> None:
        if self._is_broken:  # the line may be among those that could not be written
            raise asyncio.CancelledError
        lines, self._lines = self._lines, []
        try:
            if lines:
                await self._write(b"".join(lines))
        except BaseException:
            self._is_broken = True
            raise

    async def until_over(self, idle_s_max: float, join_s: float) -> None:
        """Returns when all are printed that may be, or nothing has come for `idle_s_max`; the first assignment may take
        `join_s` besides."""
        loop = asyncio.get_running_loop()
        join_deadline_s = loop.time() + join_s
        since_s = loop.time()
        while self._unprinted and loop.time() < since_s + idle_s_max:
            self._has_printed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(min(POLL_S, idle_s_max)):
                    await self._has_printed.wait()
                    since_s = loop.time()
            if not self._consumer.assignment() and loop.time() < join_deadline_s:
                since_s = loop.time()


async def consume_by_key(consumer: Consumer, printer: Printer, idle_s_max: float, join_s: float) -> None:
    """Prints records until `printer` has printed enough, or none have come for `idle_s_max`. Raises what reading or
    writing raises."""
    loop = asyncio.get_running_loop()
    running = loop.create_task(consumer.run(printer, workers=WORKERS))
    ending = loop.create_task(printer.until_over(idle_s_max, join_s))
    try:
        await asyncio.wait([running, ending], return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            await consumer.stop()
            await asyncio.wait([running])
        if not running.cancelled():
            running.result()
    finally:
        ending.cancel()
        running.cancel()
        await asyncio.gather(running, ending, return_exceptions=True)
