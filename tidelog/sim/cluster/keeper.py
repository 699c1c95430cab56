"""The keeper of one broker: a service manager that starts it again whenever it ends.

Faults hold a machine down for a while (`down`), each with its own hold; it is started when the last hold is gone. One
thing happens to a machine at a time, so ends and starts never overlap, whatever several faults want of it at once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from tidelog.model.errors import TidelogError
from tidelog.sim.kit.machine import ConnectionLost, Machine

End = Callable[[Machine], Awaitable[None]]


class Keeper:
    """The keeper of one machine. `run` is its task; it waits `restart_s` before it starts again a broker that has
    ended.
    """

    def __init__(self, node: int, machine: Machine, restart_s: float, counters: Counter[str]) -> None:
        self.node = node
        self.machine = machine
        self.start_errors: list[str] = []
        self._restart_s = restart_s
        self._counters = counters
        self._holds = 0
        self._free = asyncio.Event()
        self._free.set()
        self._turn = asyncio.Lock()

    @property
    def is_held(self) -> bool:
        """True while a fault keeps it down."""
        return self._holds > 0

    async def run(self) -> None:
        """Starts the broker, and again when it has ended; until cancelled."""
        while True:
            await self._free.wait()
            if await self._start():
                await self._watch()
            await self._end_if_over()
            await asyncio.sleep(self._restart_s)

    async def _start(self) -> bool:
        """False if the broker has ended, or given up, before it was ready."""
        async with self._turn:
            if self.is_held or self.machine.is_running:
                return self.machine.is_running
            outcome = await _outcome(self.machine.make_broker())
        if outcome is None:
            outcome = await self._outcome_of_start()
        if isinstance(outcome, ConnectionLost | asyncio.CancelledError):
            self._counters["death in a start"] += 1
        elif isinstance(outcome, TidelogError | OSError):
            self._counters["start refused"] += 1
            self.start_errors.append(f"{type(outcome).__name__}: {outcome}")
        elif outcome is not None:
            raise outcome
        return outcome is None

    async def _outcome_of_start(self) -> BaseException | None:
        begun = asyncio.ensure_future(self.machine.start_broker())
        try:
            await self._watch(begun)
        finally:
            if not begun.done():
                begun.cancel()
        return await _outcome(begun)

    async def _watch(self, *tasks: asyncio.Future[None]) -> None:
        """Returns when one of these is done, or the broker has ended, or has given up."""
        if (broker := self.machine.broker) is None:
            return
        ends: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(broker.failed.wait()),
            asyncio.ensure_future(self.machine.wait_died()),
        ]
        happened = asyncio.Event()
        for one in [*ends, *tasks]:
            one.add_done_callback(lambda _: happened.set())
        try:
            await happened.wait()
        finally:
            for end in ends:
                end.cancel()

    async def _end_if_over(self) -> None:
        """Clears away what ended by itself: a process that gave up, a start that failed, a planned death."""
        async with self._turn:
            if not self.is_held and self.machine.has_life:
                broker = self.machine.broker
                if broker is not None and broker.failed.is_set():
                    self._counters["broker gave up"] += 1
                if self.machine.is_running:
                    await self.machine.kill()
                else:
                    await self.machine.cut_power()

    # -- faults ------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def down(self, end: End | None = None) -> AsyncIterator[None]:
        """Ends the machine's life in the given way, by a killed process if none is given; keeps it down meanwhile."""
        self._holds += 1
        self._free.clear()
        try:
            async with self._turn:
                if self.machine.has_life:
                    await (end or Machine.kill)(self.machine)
            yield
        finally:
            self._holds -= 1
            if not self.is_held:
                self._free.set()

    async def lose(self) -> None:
        """Takes the machine away, for good."""
        self._holds += 1
        self._free.clear()
        async with self._turn:
            if self.machine.has_life:
                await self.machine.cut_power()


async def _outcome(work: Awaitable[None]) -> BaseException | None:
    (outcome,) = await asyncio.gather(work, return_exceptions=True)
    return outcome
