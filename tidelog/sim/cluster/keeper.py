"""Who keeps one broker running: a service manager that starts it again whenever it ends.

Faults hold a machine down for a while (`down`), each with its own hold; it is started when the last hold is gone. One
thing happens to a machine at a time, so ends and starts never overlap, whatever several faults want of it at once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from tidelog.model.errors import TidelogError
from tidelog.sim.machine import ConnectionLost, Machine

RESTART_S = 0.3
"""How long a service manager waits before it starts again what ended by itself."""

End = Callable[[Machine], Awaitable[None]]


class Keeper:
    """Of one machine. `run` is its task."""

    def __init__(self, node: int, machine: Machine, counters: Counter[str]) -> None:
        self.node = node
        self.machine = machine
        self.has_started_before = False
        self.start_errors: list[str] = []
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
            await asyncio.sleep(RESTART_S)

    async def _start(self) -> bool:
        async with self._turn:
            if self.is_held or self.machine.is_running:
                return self.machine.is_running
            begun = asyncio.ensure_future(self.machine.boot())
            await asyncio.sleep(0)
        try:
            await begun
        except ConnectionLost:
            self._counters["death in a start"] += 1
            return False
        except (TidelogError, OSError) as error:
            self._counters["start refused"] += 1
            self.start_errors.append(f"{type(error).__name__}: {error}")
            return False
        self.has_started_before = True
        return True

    async def _watch(self) -> None:
        """Returns when the broker has ended, or has to be."""
        broker = self.machine.broker
        if broker is None:
            return
        failed = asyncio.ensure_future(broker.failed.wait())
        died = asyncio.ensure_future(self.machine.wait_died())
        happened = asyncio.Event()
        for one in (failed, died):
            one.add_done_callback(lambda _: happened.set())
        try:
            await happened.wait()
        finally:
            failed.cancel()
            died.cancel()

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
