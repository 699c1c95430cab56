"""Ports of one simulated machine: clock, entropy, and the thread that runs blocking calls to the disk."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import TypeVar

from tidelog.sim.kit.faults import Crashed

T = TypeVar("T")

WALL_START_MS = 1_700_000_000_000
DISK_DELAY_S = 0.002


class SimClock:
    """`Clock` on the loop's time, as the calling process reads it. `wall_skew_ms` may be changed at any time, either
    way."""

    def __init__(self, loop: asyncio.AbstractEventLoop, wall_start_ms: int = WALL_START_MS) -> None:
        self._loop = loop
        self._wall_start_ms = wall_start_ms
        self.wall_skew_ms = 0

    def monotonic_s(self) -> float:
        return self._loop.time()

    def wall_ms(self) -> int:
        return self._wall_start_ms + self.wall_skew_ms + int(self._loop.time() * 1000)


class SimEntropy:
    """`Entropy` port on a seeded random stream."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def token_hex(self, bytes_count: int) -> str:
        return self._rng.randbytes(bytes_count).hex()

    def uniform(self, low: float, high: float) -> float:
        return low + (high - low) * self._rng.random()


class SimRunner:
    """`BlockingRunner` port: one call at a time, in order, each taking a drawn stretch of virtual time.

    The call takes effect at some instant within that stretch. A sync covers what others wrote before that instant, and
    not what they wrote after it but before the call returned: both races of a real disk thread. A call goes through
    even if its caller has stopped waiting, and a call that the machine did not survive never returns.
    """

    def __init__(self, rng: random.Random, mean_s: float = DISK_DELAY_S) -> None:
        self._rng = rng
        self.mean_s = mean_s
        self._free_at = 0.0

    async def run(self, call: Callable[[], T]) -> T:
        return (await self.run_all([call]))[0]

    async def run_all(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Runs calls that may take effect in any order within one stretch of time, with a crash possibly in between;
        returns their results in the given order."""
        loop = asyncio.get_running_loop()
        start = max(loop.time(), self._free_at)
        duration = self._rng.expovariate(1 / self.mean_s)
        self._free_at = start + duration
        futures: list[asyncio.Future[T]] = [loop.create_future() for _ in calls]
        for call, future in zip(calls, futures, strict=True):
            loop.call_at(start + duration * self._rng.random(), self._execute, call, future, self._free_at)
        return [await future for future in futures]

    def _execute(self, call: Callable[[], T], future: asyncio.Future[T], end_s: float) -> None:
        loop = future.get_loop()
        try:
            result = call()
        except Crashed:
            return
        except Exception as error:  # noqa: BLE001 - it belongs to whoever awaits the call
            loop.call_at(end_s, _settle, future, future.set_exception, error)
        else:
            loop.call_at(end_s, _settle, future, future.set_result, result)


def _settle(future: asyncio.Future[T], setter: Callable[..., None], outcome: object) -> None:
    if not future.done():
        setter(outcome)
