"""A broker comes back with less than it acknowledged, and before all others: a partition's directory is gone, its data
directory is an old copy, or the last batch of a log or a journal has rotted.

Whoever believed what its disk shows would have it lead, or vote, and would truncate what the others have. Nothing that
was acknowledged may be lost, and the broker is filled again.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.asking import Asked, until
from tests.e2e.clusters import ISR, PAXOS, only, running
from tests.e2e.loading import create, metric, own_copy, read, whole
from tidelog.storage.rows import ROW_BYTES, Kind
from tidelog.testing import LocalCluster

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(180)]

TOPIC: Final = "kept"
NODES: Final = (1, 2, 3)
LEADER, FOLLOWER = 1, 2
ALONE_S: Final = 3.0
"""How long the broker that has lost something runs before the others start."""
READY_S_MAX: Final = 60.0
ATTEMPTS_MAX: Final = 20
APPLIED_S_MAX: Final = 0.4
STAMPS: Final = 6
"""Copies are older than this many stamps; three are enough where no heartbeat is late."""
SETTINGS: Final = {
    "broker.heartbeat.interval.ms": "500",
    "broker.stamp.interval.ms": "500",
    "log.scrub.period.ms": "3600000",
}
"""It is not the scrubber who finds damage here."""
SAID: Final = {
    ISR: "logs are lost; what stands in for them is empty",
    PAXOS: "a journal has lost what it promised; this replica needs another id",
}
"""The log line of a broker whose replica is gone."""

PROTOCOLS = only(ISR, PAXOS)
VICTIMS = pytest.mark.parametrize("victim", [LEADER, FOLLOWER], ids=["leader", "follower"])


@pytest.fixture
def cluster(protocol: str) -> Iterator[LocalCluster]:
    """All brokers have the topic's only partition, which the first of them leads."""
    with running(protocol, settings=SETTINGS) as cluster:
        asyncio.run(create(cluster, TOPIC))
        yield cluster


def write(cluster: LocalCluster, *values: str) -> list[str]:
    """Each acknowledged, in a batch of its own."""
    for value in values:
        Asked(cluster, LEADER).append(TOPIC, 0, value)
    return [*values]


def directory(cluster: LocalCluster, node_id: int) -> Path:
    """Returns the directory of a broker's replica."""
    (found,) = (cluster.broker(node_id).data_dir / "topics").iterdir()
    return found / "0"


def content(log: Path) -> bytes:
    """All batches of a log, or of a journal."""
    return b"".join(path.read_bytes() for path in sorted(log.glob("*.log")))


def start_first(cluster: LocalCluster, victim: int) -> int:
    """Starts a broker, and the others when it had time to do harm. Returns the first one's process id."""
    cluster.broker(victim).begin()
    pid = cluster.broker(victim).pid
    time.sleep(ALONE_S)  # its chance to do harm: no outcome waits for it
    for node_id in set(NODES) - {victim}:
        cluster.broker(node_id).begin()
    for node_id in NODES:
        cluster.broker(node_id).wait_until_ready(time.monotonic() + READY_S_MAX)
    return pid


def check_nothing_is_lost(cluster: LocalCluster, values: list[str]) -> None:
    """All are in sync, have the same, and go on. A leader that begins knows of nothing yet that it is committed."""
    until(lambda: len(asyncio.run(read(cluster, TOPIC))) >= len(values))
    assert asyncio.run(read(cluster, TOPIC)) == values
    asyncio.run(whole(cluster, TOPIC))
    until(lambda: Asked(cluster, LEADER).produce(TOPIC, 0, "after").status == 200)  # its leader may change meanwhile
    for node_id in NODES:
        until(partial(has, cluster, node_id, [*values, "after"]))
        until(partial(is_undamaged, cluster, node_id))
        assert "Traceback" not in cluster.broker(node_id).output


def has(cluster: LocalCluster, node_id: int, values: list[str]) -> bool:
    return own_copy(cluster, node_id, TOPIC) == values


def is_undamaged(cluster: LocalCluster, node_id: int) -> bool:
    return metric(Asked(cluster, node_id), "tidelog_damaged_ranges") == 0


@PROTOCOLS
@VICTIMS
def test_a_partitions_directory_is_gone(cluster: LocalCluster, protocol: str, victim: int) -> None:
    values = write(cluster, *(f"value {number}" for number in range(20)))
    asyncio.run(whole(cluster, TOPIC))
    cluster.stop(*NODES)
    shutil.rmtree(directory(cluster, victim))
    start_first(cluster, victim)
    check_nothing_is_lost(cluster, values)
    assert SAID[protocol] in cluster.broker(victim).output
    until(lambda: all(value.encode() in content(directory(cluster, victim)) for value in values))


@PROTOCOLS
@VICTIMS
def test_a_partitions_directory_is_gone_another_lags_and_the_third_is_down(
    cluster: LocalCluster, protocol: str, victim: int
) -> None:
    """An emptied replica and one that is behind are two of three, and neither has all that was acknowledged."""
    behind, whole_one = 3, LEADER + FOLLOWER - victim
    values = write(cluster, "a", "b")
    asyncio.run(whole(cluster, TOPIC))
    cluster.kill(behind)
    until(lambda: Asked(cluster, LEADER).produce(TOPIC, 0, "later 1").status == 200)
    found = Asked(cluster, LEADER).values(TOPIC, 0)
    values += found[2:] + write(cluster, "later 2", "later 3")
    cluster.kill(LEADER, FOLLOWER)
    assert b"later" not in content(directory(cluster, behind))
    shutil.rmtree(directory(cluster, victim))
    for node_id in (victim, behind):
        cluster.broker(node_id).begin()
    for node_id in (victim, behind):
        cluster.broker(node_id).wait_until_ready(time.monotonic() + READY_S_MAX)
    until(lambda: Asked(cluster, behind).brokers.get(whole_one) is False)
    time.sleep(ALONE_S)  # their chance to do harm: no outcome waits for it
    for node_id in (victim, behind):
        assert Asked(cluster, node_id).produce(TOPIC, 0, "refused", timeout_ms=1_000).status != 200
    cluster.broker(whole_one).begin()
    cluster.broker(whole_one).wait_until_ready(time.monotonic() + READY_S_MAX)
    check_nothing_is_lost(cluster, values)
    assert SAID[protocol] in cluster.broker(victim).output
    until(lambda: all(value.encode() in content(directory(cluster, victim)) for value in values))


# -- an old copy of a data directory -------------------------------------------------------------------------------


def stamp(data: Path) -> int:
    """The newest stamp in a data directory. A copy that is being written may lack it."""
    found = [re.search(rb'"stamp":(\d+)', path.read_bytes()) for path in data.glob("identity.?")]
    return max((int(match[1]) for match in found if match is not None), default=0)


def copy_stopped(cluster: LocalCluster, victim: int, kept: Path) -> None:
    cluster.stop(victim)
    shutil.copytree(cluster.broker(victim).data_dir, kept)
    cluster.restart(victim)


def copy_running(cluster: LocalCluster, victim: int, kept: Path) -> None:
    """Copies all files of one moment, as a volume's snapshot does: the broker knows nothing of it."""
    data = cluster.broker(victim).data_dir
    cluster.pause(victim)
    shutil.copytree(data, kept)
    cluster.resume(victim)
    until(lambda: stamp(data) >= stamp(kept) + STAMPS)


Copy = Callable[[LocalCluster, int, Path], None]


@PROTOCOLS
@VICTIMS
@pytest.mark.parametrize("copy", [copy_stopped, copy_running])
def test_a_data_directory_is_an_old_copy(cluster: LocalCluster, tmp_path: Path, victim: int, copy: Copy) -> None:
    data, kept = cluster.broker(victim).data_dir, tmp_path / "kept"
    values = write(cluster, "a", "b")
    asyncio.run(whole(cluster, TOPIC))
    copy(cluster, victim, kept)
    asyncio.run(whole(cluster, TOPIC))
    before = Asked(cluster, LEADER).voters[victim]
    values += write(cluster, "later 1", "later 2", "later 3")
    cluster.kill(*NODES)
    shutil.rmtree(data)
    shutil.copytree(kept, data)
    assert b"later" not in content(directory(cluster, victim))
    pid = start_first(cluster, victim)
    check_nothing_is_lost(cluster, values)
    output = cluster.broker(victim).output
    assert "the data directory is an old copy" in output and "beginning anew on the data directory" in output
    assert cluster.broker(victim).pid == pid, "it began anew by itself"
    until(lambda: Asked(cluster, LEADER).voters.get(victim, 0) > before)  # it votes as another disk
    until(lambda: sorted(Asked(cluster, LEADER).voters) == [*NODES])


# -- the last batch has rotted -------------------------------------------------------------------------------------


def kill_right_after(cluster: LocalCluster, victim: int, log: Path) -> list[str]:
    """Kills all as soon as an acknowledged record ends a log of the victim's, and before a row there says that it was
    durable: an idle log notes that after half a second. Returns what was acknowledged."""
    values = write(cluster, "before")
    for number in range(ATTEMPTS_MAX):
        values += write(cluster, f"value {number}")
        look_until_s = time.monotonic() + APPLIED_S_MAX  # a follower applies what is committed a little later
        while values[-1].encode() not in last_batch(log) and time.monotonic() < look_until_s:
            time.sleep(0.01)  # it leaves the disk to the broker; a row follows after half a second
        cluster.pause(victim)
        if values[-1].encode() in last_batch(log):
            cluster.kill(victim, *NODES)
            return values
        cluster.resume(victim)
    raise AssertionError("the log never ended with what was acknowledged last")


def last_batch(log: Path) -> bytes:
    """The batch that ends a log, by its row; empty if another row ends its catalog."""
    path = max(log.glob("*.log"))
    row = path.with_suffix(".catalog").read_bytes()[-ROW_BYTES:]
    kind, file_position = row[3], int.from_bytes(row[48:56], "little")
    return path.read_bytes()[file_position:] if kind == Kind.BATCH else b""


def flip(log: Path, value: str) -> None:
    """Changes one bit of a record's value."""
    path = max(log.glob("*.log"))
    batches = bytearray(path.read_bytes())
    batches[batches.rindex(value.encode())] ^= 0x10
    path.write_bytes(batches)


@PROTOCOLS
@VICTIMS
def test_the_last_batch_of_a_log_has_rotted(cluster: LocalCluster, protocol: str, victim: int) -> None:
    log = directory(cluster, victim)
    values = kill_right_after(cluster, victim, log)
    flip(log, values[-1])
    assert values[-1].encode() not in content(log)
    start_first(cluster, victim)
    check_nothing_is_lost(cluster, values)
    until(lambda: values[-1].encode() in content(log))
    if protocol == ISR:  # with Paxos it may be applied again from the journals
        repaired = metric(Asked(cluster, victim), "tidelog_repaired_batches_total")
        assert repaired == 1, "the batch was never taken for torn"


@only(PAXOS)
@VICTIMS
def test_the_last_value_of_a_journal_has_rotted(cluster: LocalCluster, victim: int) -> None:
    journal = directory(cluster, victim) / "journal"
    values = kill_right_after(cluster, victim, journal)
    flip(journal, values[-1])
    assert values[-1].encode() not in content(journal)
    start_first(cluster, victim)
    check_nothing_is_lost(cluster, values)
