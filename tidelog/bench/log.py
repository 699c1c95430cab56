"""Benchmark workload `log`: appends to a replicated log, one at a time, each durable on a quorum before the next.

The same is measured by `mesos-log benchmark` of Mesos: a list of sizes, each appended when the one before it is
committed. The replicas are processes of this machine, on one disk, so the figures depend on its fsyncs more than on
networks; the share of fsyncs is reported. Or they run already (`tidelog log replica`): then the figures include a round
trip from this machine to the leader in each append.
"""

from __future__ import annotations

import asyncio
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import msgspec

from tidelog.bench.log_replica import APPEND_S_MAX, Appends, Measured, measure
from tidelog.bench.result import Result, percentiles_ms
from tidelog.broker.consensus.founding import Address
from tidelog.model.errors import TidelogError
from tidelog.standalone.process import make_client
from tidelog.testing.broker_process import child_environment

SIZES = (10, 100, 1_000, 10_000, 50_000)
APPENDS = 1_000
DEFAULT_RUNS = tuple((size,) * APPENDS for size in SIZES)
ELECTED_S_MAX = 30.0
STOP_S_MAX = 10.0


class BenchmarkFailed(Exception):
    """Raised if the replicas did not finish the appends; there is no measurement then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """Options of the workload `log`. `runs` are lists of payload sizes in bytes, each measured by itself, in order, on
    the same log."""

    runs: Sequence[Sequence[int]] = DEFAULT_RUNS
    replicas: int = 3
    kind: str = "zero"
    """Content of the payloads: zero, one or random."""
    directory: Path = Path()
    """Directory on the disk to be measured. The replicas create a subdirectory in it, and remove it."""
    servers: Sequence[Address] = ()
    """Addresses of replicas that run already; empty to start `replicas` in `directory`."""
    secret_file: str | None = None
    """File with the secret of the running replicas."""


@dataclass(frozen=True, slots=True)
class LogRun:
    """The appends of one list of sizes, and the time that each took."""

    sizes: Sequence[int]
    measured: Measured

    def result(self, options: LogOptions) -> Result:
        """Returns the figures of the run."""
        seconds = self.measured.seconds
        figures = {
            "appends_per_s": len(seconds) / self.measured.elapsed_s,
            "mean_ms": 1000 * sum(seconds) / len(seconds),
            **percentiles_ms(seconds),
        }
        if self.measured.fsync_seconds is not None:
            figures["fsync_share"] = self.measured.fsync_seconds / self.measured.elapsed_s
        parameters = {"bytes": self.sizes[0] if len(set(self.sizes)) == 1 else None, "appends": len(self.sizes)}
        replicas = len(options.servers) or options.replicas
        return Result("log", {**parameters, "replicas": replicas, "kind": options.kind}, figures)


def run_log(options: LogOptions, progress: Callable[[int, int], None] | None = None) -> list[LogRun]:
    """Measures each run, inside the leader of replicas started here, or from this process if they run already. Raises
    `BenchmarkFailed`."""
    report = progress or (lambda done, total: None)
    if options.servers:
        return asyncio.run(_run_against(options, report))
    total = sum(map(len, options.runs))
    runs: list[LogRun] = []
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="tidelog-benchmark-", dir=options.directory))
        children = [_start(stack, node, directory) for node in range(1, options.replicas + 1)]
        ports = [_hear(child, int) for child in children]
        for child in children:
            _tell(child, ports)
        leader = _leader(children)
        for sizes in options.runs:
            _tell(leader, Appends(list(sizes), options.kind))
            answer = _hear(leader, Measured | str)
            if isinstance(answer, str):
                raise BenchmarkFailed(answer)
            runs.append(LogRun(sizes, answer))
            report(sum(len(run.sizes) for run in runs), total)
    return runs


async def _run_against(options: LogOptions, report: Callable[[int, int], None]) -> list[LogRun]:
    client = make_client(options.servers, options.secret_file)
    total = sum(map(len, options.runs))
    runs: list[LogRun] = []
    try:
        await client.append(b"", deadline_s=APPEND_S_MAX)  # finds the leader
        for sizes in options.runs:
            append = partial(client.append, deadline_s=APPEND_S_MAX)
            runs.append(LogRun(sizes, await measure(append, Appends(list(sizes), options.kind))))
            report(sum(len(run.sizes) for run in runs), total)
    except (TidelogError, TimeoutError) as error:
        raise BenchmarkFailed(str(error) or "an append had no outcome in time") from error
    finally:
        await client.close()
    return runs


def _start(stack: ExitStack, node: int, directory: str) -> subprocess.Popen[bytes]:
    arguments = [str(node), str(Path(directory) / str(node))]
    child = subprocess.Popen(
        [sys.executable, "-m", "tidelog.bench.log_replica", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=child_environment(),
    )
    stack.callback(_stop, child)
    return child


def _stop(child: subprocess.Popen[bytes]) -> None:
    """Closes the input of a replica process, which ends it; kills it after `STOP_S_MAX` seconds."""
    try:
        child.communicate(timeout=STOP_S_MAX)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()


def _leader(children: Sequence[subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    """Returns the replica process that first reports to be the leader. Raises `BenchmarkFailed` if none does within
    `ELECTED_S_MAX` seconds."""
    until_s = time.monotonic() + ELECTED_S_MAX
    with selectors.DefaultSelector() as selector:
        for child in children:
            selector.register(_pipe(child.stdout), selectors.EVENT_READ, child)
        ready = selector.select(until_s - time.monotonic())
    if not ready:
        raise BenchmarkFailed(f"the replicas elected no leader within {ELECTED_S_MAX:.0f} s")
    leader: subprocess.Popen[bytes] = ready[0][0].data
    _hear(leader, dict[str, int])
    return leader


def _tell(child: subprocess.Popen[bytes], message: object) -> None:
    try:
        _pipe(child.stdin).write(msgspec.json.encode(message) + b"\n")
        _pipe(child.stdin).flush()
    except OSError as error:
        raise BenchmarkFailed(f"a replica has ended: {error}") from error


def _hear(child: subprocess.Popen[bytes], type_: Any) -> Any:
    line = _pipe(child.stdout).readline()
    if not line:
        raise BenchmarkFailed("a replica has ended; what it said is above")
    return msgspec.json.decode(line, type=type_)


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe
