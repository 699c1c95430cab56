"""F87: readers of large answers who do not read, or a little a second: they are cut, and cost no memory for long."""

from __future__ import annotations

import asyncio
import socket
import time
from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import Final, cast

from tests.e2e.overload.books import Ledger, Target
from tests.e2e.overload.ground import Ground, Watch, metrics, soon
from tests.e2e.overload.large import produce_large
from tests.e2e.overload.rates import TOPIC, quiet
from tests.e2e.overload.wire import Ended, get, head

READ_TOPIC: Final = "read"
BATCHES: Final = 96
BATCH_BYTES: Final = 1_000_000
"""A reader asks for all of these: more than the buffers of both kernels hold."""
STALLED: Final = 500
TRICKLING: Final = 500
RECEIVE_BYTES: Final = 8_192
TRICKLE_S: Final = 1.0
ASK_S: Final = 20.0
"""A reader that is refused asks again for so long."""
KEEP_ALIVE: Final = {
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE): 1,
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE): 3,
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL): 3,
}
"""A reset that a full window did not let through comes again when it is asked for."""
CUT_S_MAX: Final = 30.0
GRACE_S: Final = 15.0
LOOK_S: Final = 0.5
TCP_ESTABLISHED: Final = 1


@dataclass(slots=True)
class Slow:
    """Counts slow readers by how they ended."""

    outcomes: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    cut_s: array[float] = field(default_factory=lambda: array("d"))


class _Reader(asyncio.Protocol):
    """Reads the head of an answer, and then nothing, or what its small buffer holds every `TRICKLE_S`."""

    def __init__(self, *, is_stalled: bool) -> None:
        self.status: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.is_lost = False
        self._is_stalled = is_stalled
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        if not self.status.done():
            self.status.set_result(int(data[9:12]))
        self._transport.pause_reading()
        if not self._is_stalled:
            asyncio.get_running_loop().call_later(TRICKLE_S, self._read_on)

    def _read_on(self) -> None:
        if self._transport is not None and not self.is_lost:
            self._transport.resume_reading()

    def connection_lost(self, exc: BaseException | None) -> None:
        self.is_lost = True
        if not self.status.done():
            self.status.set_result(Ended.CLOSED if exc is None else Ended.RESET)


async def read_slowly(target: Target, stalled: int, trickling: int, begin_s: float) -> Slow:
    """Job: that many readers of both kinds, at one time."""
    found = Slow()
    request = head(
        "GET", target.place, f"/topics/{target.topic}/partitions/{target.partition}/batches?offset=0&to=1000000"
    )
    await asyncio.sleep(max(0.0, begin_s - time.monotonic()))
    kinds = [True] * stalled + [False] * trickling
    await asyncio.gather(*(_read(target, request, found, begin_s + ASK_S, is_stalled=kind) for kind in kinds))
    return found


async def _read(target: Target, request: bytes, found: Slow, end_s: float, *, is_stalled: bool) -> None:
    loop = asyncio.get_running_loop()
    status = 503
    while status == 503:
        wire = socket.socket()
        wire.setblocking(False)
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        for option, value in KEEP_ALIVE.items():
            wire.setsockopt(*option, value)
        try:
            await loop.sock_connect(wire, target.place)
            transport, reader = await loop.create_connection(lambda: _Reader(is_stalled=is_stalled), sock=wire)
        except OSError:
            wire.close()
            status = Ended.UNCONNECTED
            break
        transport.write(request)
        status = await reader.status
        if status == 200:
            await _until_cut(wire, reader, found)
        transport.abort()
        if status != 503 or time.monotonic() > end_s:
            break
        found.refused += 1
        await asyncio.sleep(1.0)  # as it was told
    if status != 200:
        found.outcomes[str(status)] += 1


async def _until_cut(wire: socket.socket, reader: _Reader, found: Slow) -> None:
    """Looks whether a connection has ended: a client that does not read is not told, its kernel is."""
    begun_s = time.monotonic()
    duplicate = wire.dup()
    try:
        while (passed_s := time.monotonic() - begun_s) < CUT_S_MAX + GRACE_S:
            if reader.is_lost or duplicate.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != TCP_ESTABLISHED:
                found.outcomes["cut"] += 1
                found.cut_s.append(passed_s)
                return
            await asyncio.sleep(LOOK_S)
        found.outcomes["never cut"] += 1
    finally:
        duplicate.close()


def f87(ground: Ground) -> None:
    """Readers of one partition; and small writes to the same broker beside them."""
    [read] = ground.topic(READ_TOPIC, partitions=1, leader=1)
    writes = ground.topic(TOPIC, leader=1)
    filled = ground.crew.start(produce_large, read, BATCH_BYTES, BATCHES, soon(), next(ground.jobs)).result()
    ground.ledgers[READ_TOPIC].merge(filled)
    stalled, trickling = ground.scaled(STALLED), ground.scaled(TRICKLING)
    with Watch(ground, READ_TOPIC) as watch:
        slow = ground.crew.start(read_slowly, read, stalled, trickling, soon())
        quiet(ground, writes)
        found = slow.result()
    _say(ground, found, f"{stalled} stalled and {trickling} trickling readers of {BATCHES * BATCH_BYTES // 10**6} MB")
    held = metrics(ground.place(1))["tidelog_http_answer_bytes"]
    ground.figure("memory of answers after it", f"{held:,.0f} bytes", "0", held == 0)
    again = get(read.place, f"/topics/{READ_TOPIC}/partitions/0/batches?offset=0")
    ledger = Ledger()
    ledger.outcomes[again.outcome] += 1
    ground.correct("a reader that reads, after it", ledger.told(), "is served", again.outcome == 200)
    watch.say_memory()
    ground.read_back()


def _say(ground: Ground, found: Slow, done: str) -> None:
    told = ", ".join(f"{count} {what}" for what, count in sorted(found.outcomes.items()))
    wrong = set(found.outcomes) - {"cut", "503"}
    ground.correct(done, f"{told}; {found.refused:,} x told to come later", "each is cut, or reads its 503", not wrong)
    longest_s = max(found.cut_s, default=0.0)
    ground.figure("until the last is cut", f"{longest_s:.1f} s", f"{CUT_S_MAX:.0f} s", longest_s <= CUT_S_MAX)
