"""One broker's disk is full, or fails to sync or write: what it acknowledged stays, and the cluster goes on.

The full disk is a small file system in memory, mounted for the test; failing system calls are injected by `strace` into
the running broker. Both take root; where they cannot be had the tests are skipped, and say so.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.asking import Asked, until
from tests.e2e.clusters import ISR, running, vouching
from tests.e2e.loading import Load, Probes, create, own_copy, partition, read, records, whole

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(180)]

SETTINGS = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "1500",
}
DISK_BYTES = 48 << 20
BALLAST = "ballast"
BROKEN = 1
"""The broker with the bad disk; it leads the partitions of all tests."""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of broker 1's own. It is gone afterwards, whoever still uses it."""
    directory = tmp_path / f"broker-{BROKEN}"
    directory.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tidelog-test", str(directory)]
    try:
        subprocess.run(words, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no file system can be mounted here: {error}")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


def fill(disk: Path) -> None:
    """Takes all space that is left."""
    with (disk / BALLAST).open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


async def test_a_full_disk_refuses_or_hands_over_and_goes_on_when_there_is_space(
    small_disk: Path, tmp_path: Path, protocol: str
) -> None:
    with running(protocol, settings=SETTINGS, data_dir=tmp_path) as cluster:
        await create(cluster, "full")
        asked, pid = Asked(cluster, BROKEN), cluster.broker(BROKEN).pid
        before = [f"before {number}" for number in range(20)]
        asked.append("full", 0, *before)
        fill(small_disk)
        large = partial(asked.produce, "full", 0, "x" * 20_000, timeout_ms=2_000)
        answers = [await asyncio.to_thread(large) for _ in range(40)]
        assert {answer.status for answer in answers} <= {200, 503, 504, 507}
        assert (await read(cluster, "full"))[: len(before)] == before, "reading goes on"
        if protocol != ISR:
            await asyncio.to_thread(until, lambda: partition(asked, "full")["leader"] not in (-1, BROKEN))
            assert asked.produce("full", 0, "the others have room").status == 200
        (small_disk / BALLAST).unlink()
        await whole(cluster, "full")
        until(lambda: asked.produce("full", 0, "after").status == 200)
        assert cluster.broker(BROKEN).pid == pid, "nobody had to restart it"
        values = await read(cluster, "full")
        assert values.count("x" * 20_000) >= sum(answer.status == 200 for answer in answers)
        await asyncio.to_thread(until, lambda: own_copy(cluster, BROKEN, "full") == values)


@pytest.mark.parametrize(
    ("calls", "injected"),
    [("fsync,fdatasync", "error=EIO:when=1"), ("pwritev,pwritev2,pwrite64", "error=EIO:when=1")],
)
async def test_a_call_that_fails_once_takes_the_replica_out_and_nothing_is_lost(
    tmp_path: Path, protocol: str, calls: str, injected: str
) -> None:
    if shutil.which("strace") is None or os.geteuid():
        pytest.skip("strace is not installed, or may not be used")
    with running(protocol, settings=SETTINGS, data_dir=tmp_path / "data") as cluster:
        await create(cluster, "failing")
        await create(cluster, "failing-direct")
        probes = Probes(cluster, BROKEN, "failing-direct")
        assert len(await probes.send()) >= vouching(protocol, 3)
        log = tmp_path / "strace.log"
        async with Load(cluster, "failing") as load:
            with tracing(cluster.broker(BROKEN).pid, calls, injected, log):
                await asyncio.to_thread(until, lambda: "INJECTED" in log.read_text())
                for _ in range(10):
                    await probes.send()
                acknowledged = len(load.acknowledged)
                await asyncio.to_thread(until, lambda: len(load.acknowledged) > acknowledged)
            cluster.kill(BROKEN)  # it may be stopping by itself: the call that failed may have been the metadata log's
            await asyncio.to_thread(cluster.restart, BROKEN)
        for topic, check in (("failing", load.check), ("failing-direct", probes.check)):
            await whole(cluster, topic)
            check(await records(cluster, topic))
    assert not synced_again(log.read_text())


@contextlib.contextmanager
def tracing(pid: int, calls: str, injected: str, log: Path) -> Iterator[None]:
    """Makes system calls of a process fail, from now on to the end of the `with`."""
    words = ["strace", "-f", "-y", "-qq", "-e", f"trace={calls}", "-e", f"inject={calls}:{injected}"]
    log.touch()
    tracer = subprocess.Popen([*words, "-o", str(log), "-p", str(pid)])
    try:
        yield
    finally:
        tracer.terminate()
        tracer.wait()


def synced_again(traced: str) -> list[str]:
    """Syncs of files of which one had failed before: by then the system has forgotten what was not written."""
    failed: set[str] = set()
    again = []
    for line in traced.splitlines():
        if call := re.search(r"f(?:data)?sync\(\d+<([^>]*)>\)", line):
            if call[1] in failed:
                again.append(line)
            if "INJECTED" in line:
                failed.add(call[1])
    return again
