"""One voter's metadata files are damaged while it is away: it comes back by itself, with its cluster's help.

What a disk spoilt is asked of the others; a disk that cannot say what it promised is another voter from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.asking import Asked, controller_of, until
from tidelog.testing import LocalCluster

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(120)]

RECORDS = 40
SETTINGS = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "metadata.log.snapshot.records": "30",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Each test leaves it whole; it has taken snapshots, and has a log behind the newest one."""
    with LocalCluster(brokers=3, settings=SETTINGS) as cluster:
        for i in range(RECORDS):
            assert Asked(cluster, 1).create(f"topic-{i:02}").status == 201
        yield cluster


def flip(path: Path, at: float) -> None:
    """Changes one bit of the byte that is so far into a file (0 to 1)."""
    content = bytearray(path.read_bytes())
    content[int(at * (len(content) - 1))] ^= 0x10
    path.write_bytes(content)


def files(data: Path, pattern: str) -> list[Path]:
    """Files of the newest replica of the metadata log, or of the snapshots. A disk that forgot keeps what it has, and
    begins another directory."""
    newest = max(data.glob("metadata*"), key=lambda path: path.stat().st_mtime_ns)
    found = sorted((data / "snapshots" if pattern.startswith("*.body") else newest).glob(pattern))
    assert found, sorted(data.rglob("*"))
    return found


Damage = Callable[[Path], None]


def one_byte(pattern: str, at: float) -> Damage:
    return lambda data: flip(files(data, pattern)[-1], at)


def each(pattern: str, do: Callable[[Path], None]) -> Damage:
    def damage(data: Path) -> None:
        for path in files(data, pattern):
            do(path)

    return damage


def halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip_middle(path: Path) -> None:
    flip(path, 0.5)


KEEPS, FORGETS, EITHER = True, False, None
"""Whether the voter knows afterwards what it promised, or has to become another voter."""

DAMAGES: dict[str, tuple[Damage, bool | None]] = {
    "a byte of a value": (one_byte("*.log", 0.4), KEEPS),
    "the last value": (one_byte("*.log", 1.0), KEEPS),
    "a byte of a row": (one_byte("*.catalog", 0.4), KEEPS),
    "one copy of the metainfo": (one_byte("metainfo.0", 0.2), KEEPS),
    "both copies of the metainfo": (each("metainfo.*", flip_middle), FORGETS),
    "a chunk of a snapshot": (one_byte("*.body", 0.5), KEEPS),
    "all snapshots": (each("*.body*", flip_middle), KEEPS),
    "half of the log": (each("*.log", halve), EITHER),
    "no log": (each("*.log", Path.unlink), EITHER),
    "no catalog": (each("*.catalog", Path.unlink), EITHER),
    "no metadata": (each("*", Path.unlink), FORGETS),
}


@pytest.mark.parametrize(("damage", "keeps"), DAMAGES.values(), ids=DAMAGES.keys())
def test_a_voter_whose_metadata_are_damaged_comes_back(
    cluster: LocalCluster, damage: Damage, keeps: bool | None
) -> None:
    controller = controller_of(cluster)
    victim = next(node_id for node_id in (3, 2) if node_id != controller)
    witness = Asked(cluster, controller)
    before = witness.voters[victim]
    cluster.stop(victim)
    damage(cluster.broker(victim).data_dir)
    cluster.restart(victim)
    asked = Asked(cluster, victim)
    if keeps is False:
        until(lambda: witness.voters.get(victim, before) > before)
    until(lambda: asked.brokers == {1: True, 2: True, 3: True})
    until(lambda: sorted(asked.voters) == [1, 2, 3])
    assert not keeps or asked.voters[victim] == before
    assert asked.topics == witness.topics
    assert asked.create(f"after-{len(witness.topics)}").status == 201
    assert "Traceback" not in cluster.broker(victim).output
