"""The service manager of one broker (`Keeper`), which starts the broker again whenever it ends.

A fault keeps a machine down for a while with a hold of its own (`down`); the machine is started when the last hold is
released. A lock orders the ends and starts of one machine, so they never overlap when several faults hit it at once.
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
    """Service manager of one machine. `run` is its task; it waits `restart_s` seconds before it restarts a broker that
    has ended."""

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
        """True while a fault keeps the machine down."""
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
        """Starts the broker; returns False if it has ended, failed or been refused before it was ready."""
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
        """Returns when one of the tasks is done, or the broker has ended or failed."""
        if (broker := self.machine.broker) is None:
            return
        ends: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(broker.failed.wait()),
            asyncio.ensure_future(self.machine.wait_died()),
        ]
        happened = asyncio.Event()
        for future in [*ends, *tasks]:
            future.add_done_callback(lambda _: happened.set())
        try:
            await happened.wait()
        finally:
            for end in ends:
                end.cancel()

    async def _end_if_over(self) -> None:
        """Ends the machine's process if the broker in it failed or died by itself, so that it can be started again."""
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
        """Ends the machine in the given way, by default as a killed process, and keeps it down while the context is
        open."""
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
        """Cuts the machine's power and keeps it down for the rest of the run."""
        self._holds += 1
        self._free.clear()
        async with self._turn:
            if self.machine.has_life:
                await self.machine.cut_power()


async def _outcome(work: Awaitable[None]) -> BaseException | None:
    (outcome,) = await asyncio.gather(work, return_exceptions=True)
    return outcome
