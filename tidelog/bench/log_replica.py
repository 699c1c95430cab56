"""A replica process of the log benchmark: `python -m tidelog.bench.log_replica NODE DIRECTORY`.

It is a replica of a standalone log (`tidelog log replica`) with a writer in the same process, as in Mesos' benchmark.
It exchanges JSON lines with its parent: it prints its port, reads the ports of all replicas, prints a line when it
leads, reads the appends to make, and prints how long each took. It ends at the end of its input.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable

import msgspec
import msgspec.structs
import uvloop

from tidelog.adapters.disk_threads import DiskThreads
from tidelog.adapters.log_lines import log_to_standard_error
from tidelog.model.errors import TidelogError
from tidelog.replication.election_settings import ElectionSettings
from tidelog.standalone.process import initialise_directory, make_replica
from tidelog.standalone.replica import LogReplica

HOST = "127.0.0.1"
APPEND_S_MAX = 10.0
PATIENT = ElectionSettings(heartbeat_ms=200, lease_ms=1_000, timeout_ms=3_000)
"""Election timeouts, longer than a cluster's: a leader change because the machine was busy would spoil the
measurement."""
DISTINCT = 64
"""Number of different random payloads, which then repeat: too many for any cache that matters here."""


class Appends(msgspec.Struct):
    """The appends that the leader is to make: payloads of these sizes, one after the other."""

    sizes: list[int]
    kind: str


class Measured(msgspec.Struct):
    """The measurements of a series of appends."""

    seconds: list[float]
    """The seconds that each append took."""
    fsync_seconds: float | None
    """The seconds that the leader's disk thread spent in fsyncs meanwhile; None if that was not measured."""
    elapsed_s: float
    started_s: float
    """The Unix time of the first append."""


async def measure_at(replica: LogReplica, appends: Appends) -> Measured:
    """Makes the appends on the leader, one after the other; returns the times of the appends and of its fsyncs."""
    fsync_before_s = replica.stats.fsync_seconds
    measured = await measure(replica.append, appends)
    return msgspec.structs.replace(measured, fsync_seconds=replica.stats.fsync_seconds - fsync_before_s)


async def measure(append: Callable[[bytes], Awaitable[object]], appends: Appends) -> Measured:
    """Makes the appends one after the other, each when the one before it is committed; returns the seconds that each
    took."""
    # Away from the loop: 64 random payloads of megabytes take longer than a leader may be silent.
    payloads = {size: await asyncio.to_thread(make_payloads, appends.kind, size) for size in sorted(set(appends.sizes))}
    seconds: list[float] = []
    started_s, unix_s = time.perf_counter(), time.time()
    before_s = started_s
    for number, size in enumerate(appends.sizes):
        async with asyncio.timeout(APPEND_S_MAX):
            await append(payloads[size][number % len(payloads[size])])
        now_s = time.perf_counter()
        seconds.append(now_s - before_s)
        before_s = now_s
    return Measured(seconds, None, before_s - started_s, unix_s)


def make_payloads(kind: str, size: int) -> list[bytes]:
    """Returns the payloads of a kind, as in Mesos' benchmark: all zero bytes, all 0xff bytes, or random bytes."""
    if kind == "random":
        return [os.urandom(size) for _ in range(DISTINCT)]
    return [(b"\x00" if kind == "zero" else b"\xff") * size]


# -- the process -----------------------------------------------------------------------------------------------------


def _say(message: object) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(message) + b"\n")
    sys.stdout.buffer.flush()


async def _run(node: int, directory: str) -> None:
    initialise_directory(directory)
    disk = DiskThreads()
    replica = make_replica(node, directory, disk, PATIENT)
    _say((await replica.listen((HOST, 0)))[1])
    ports = msgspec.json.decode(await asyncio.to_thread(sys.stdin.buffer.readline), type=list[int])
    await replica.start([(HOST, port) for port in ports])
    announcing = asyncio.get_running_loop().create_task(_announce(replica, node))
    while line := await asyncio.to_thread(sys.stdin.buffer.readline):
        try:
            _say(await measure_at(replica, msgspec.json.decode(line, type=Appends)))
        except (TidelogError, TimeoutError) as error:
            _say(str(error) or "an append had no outcome in time")
    announcing.cancel()
    await replica.close()
    disk.close()


async def _announce(replica: LogReplica, node: int) -> None:
    await replica.leads.wait()
    _say({"leader": node})


if __name__ == "__main__":
    log_to_standard_error("error")  # that peers come and go is no news here
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal tells all; the parent ends this one
    uvloop.run(_run(int(sys.argv[1]), sys.argv[2]))
