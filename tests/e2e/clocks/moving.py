"""A clock is moved, and put right: how long until the broker's log, its metric and `cluster describe` say so."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

from tests.e2e.clocks.faking import WallClock
from tidelog.admin import AdminClient
from tidelog.bench.target import read_counters
from tidelog.testing import LocalCluster

OFF: Final = "the clock is off"
"""The broker's log says so."""
LOOK_S: Final = 0.05
TOLD_S_MAX: Final = 60.0
CLI_S_MAX: Final = 60.0


class Move(NamedTuple):
    """A broker said so, these seconds after its clock was moved or put right."""

    node: int
    ahead_s: int
    role: str
    log_s: float
    metric_s: float
    describe_s: float
    right_s: float
    is_named: bool
    """True if the command `tidelog cluster describe` has named the broker."""


async def move(cluster: LocalCluster, clocks: Mapping[int, WallClock], node: int, ahead_s: int, held_s: float) -> Move:
    """Moves a broker's clock for `held_s` and some. Raises `TimeoutError` if nothing says so."""
    broker = cluster.broker(node)
    logged = broker.output.count(OFF)
    async with AdminClient(cluster.bootstrap) as admin:
        role = "controller" if (await admin.describe_cluster()).controller_id == node else ""

        def is_logged() -> bool:
            return broker.output.count(OFF) > logged

        async def is_off() -> bool:
            return (await read_counters(broker.url))["tidelog_clock_is_off"] == 1

        async def is_right() -> bool:
            return not await is_off()

        async def is_described() -> bool:
            brokers = [one for one in await admin.list_brokers() if one.broker_id == node]
            state = (await admin.broker_states(brokers))[node]
            return state is not None and state.clock_is_off

        clocks[node].move(ahead_s)
        begun_s = time.monotonic()
        try:
            log_s, metric_s, describe_s = await asyncio.gather(
                _until(begun_s, partial(asyncio.to_thread, is_logged)),
                _until(begun_s, is_off),
                _until(begun_s, is_described),
            )
            is_named = f"broker {node}'s clock is off" in await asyncio.to_thread(_describe, cluster.bootstrap)
            await asyncio.sleep(max(0.0, begun_s + held_s - time.monotonic()))
        finally:
            clocks[node].move(0)
        right_s = await _until(time.monotonic(), is_right)
    return Move(node, ahead_s, role, log_s, metric_s, describe_s, right_s, is_named)


async def _until(begun_s: float, is_said: Callable[[], Awaitable[bool]]) -> float:
    """Waits until it is said. Returns how long that took."""
    async with asyncio.timeout(TOLD_S_MAX):
        while not await is_said():
            await asyncio.sleep(LOOK_S)
    return time.monotonic() - begun_s


def _describe(bootstrap: str) -> str:
    words = [sys.executable, "-m", "tidelog", "cluster", "describe", "--bootstrap", bootstrap]
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=CLI_S_MAX).stdout
