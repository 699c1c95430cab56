"""How late a broker's event loop is, seen from outside: a process that asks for `/healthz` again and again.

That request does nothing but wait for its turn, so what it takes longer than usual is what others took of the loop at
a time. It has a process of its own, because the workload's loop is busy when the broker's is. Its times are of the
machine's monotonic clock, and so comparable with those of the workload.

It prints a line for each: when it was asked, and the seconds it took.
"""

from __future__ import annotations

import asyncio
import http.client
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

PROGRAM = "from tidelog.bench.probe import main; main()"
EVERY_S = 0.005
TIMEOUT_S = 30.0


class Probe:
    """What one process has measured so far."""

    def __init__(self) -> None:
        self._times: list[tuple[float, float]] = []

    def told(self, line: bytes) -> None:
        """The next line."""
        asked_s, seconds = map(float, line.split())
        self._times.append((asked_s, seconds))

    def between(self, begin_s: float, end_s: float) -> list[float]:
        """How long those took that were under way then."""
        return [seconds for asked_s, seconds in self._times if asked_s < end_s and begin_s <= asked_s + seconds]


@asynccontextmanager
async def probing(url: str) -> AsyncIterator[Probe]:
    """Asks the broker at `url` until the end of the block."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", PROGRAM, url, stdout=PIPE)
    assert process.stdout is not None
    probe = Probe()
    probe.told(await process.stdout.readline())

    async def listen() -> None:
        assert process.stdout is not None
        while (line := await process.stdout.readline()).endswith(b"\n"):
            probe.told(line)

    listening = asyncio.create_task(listen())
    try:
        yield probe
    finally:
        process.terminate()
        await process.wait()
        await listening


def main() -> None:
    """Asks until it is killed."""
    connection = http.client.HTTPConnection(urlsplit(sys.argv[1]).netloc, timeout=TIMEOUT_S)
    while True:
        asked_s = time.monotonic()
        connection.request("GET", "/healthz")
        connection.getresponse().read()
        print(asked_s, time.monotonic() - asked_s, flush=True)
        time.sleep(EVERY_S)  # a process of its own, without an event loop
