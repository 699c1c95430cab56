"""A replica of the log benchmark, a process: `python -m tidelog.bench.log_replica NODE DIRECTORY`.

A replica of a log by itself (`tidelog log replica`), with a writer beside it, as Mesos' benchmark is. Its parent talks
to it in lines of JSON: it tells its port, is told everybody's, tells when it leads, is told what to append, tells how
long each append took. It ends when its input does.
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
"""The timeouts of elections, longer than a cluster's: a benchmark that loses its leader because the machine was busy
has measured nothing."""
DISTINCT = 64
"""The number of different random payloads, which repeat after that: too many for any cache that matters here."""


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
    """Has the leader append, one after the other, and measures each append, as `measure` does; and the time of its
    fsyncs."""
    fsync_before_s = replica.stats.fsync_seconds
    measured = await measure(replica.append, appends)
    return msgspec.structs.replace(measured, fsync_seconds=replica.stats.fsync_seconds - fsync_before_s)


async def measure(append: Callable[[bytes], Awaitable[object]], appends: Appends) -> Measured:
    """Makes appends one after the other, each when the one before it is agreed on; measures how long each took, in
    seconds."""
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
    """Returns the payloads of a kind, as Mesos' benchmark offers them: all zeros, all ones, or random bytes."""
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
