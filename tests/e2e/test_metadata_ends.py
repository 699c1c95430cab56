"""Damage to the metadata that voters mend together: the last record of the log rots right after its acknowledgement;
snapshots of one position are damaged in different blocks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.asking import Asked, readiness, until
from tidelog.testing import LocalCluster

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(240)]

LAST = "the-last-topic"
READY_S_MAX = 60.0
NO_COPY = "no broker that answers has a good copy of the entry there"
RECOVER = "tidelog cluster recover --data-dir"


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=3) as cluster:
        yield cluster


def spoil_last(data: Path) -> None:
    """Flips a bit of the record that creates the last topic."""
    for path in (data / "metadata").glob("*.log"):
        content = bytearray(path.read_bytes())
        at = content.rfind(LAST.encode())
        if at >= 0:
            content[at] ^= 1
            path.write_bytes(content)
            return
    raise AssertionError(f"no metadata log in {data} has the last topic")


def test_two_of_three_copies_of_the_last_record_rot(cluster: LocalCluster) -> None:
    """The two brokers alone cannot go on without it; the third one brings it back to them."""
    assert Asked(cluster, 1).create(LAST, 1, 3).status == 201
    cluster.kill(1, 2, 3)
    has_it = [node for node in (1, 2, 3) if _holds(cluster.broker(node).data_dir)]
    good = has_it.pop()
    for node_id in has_it:
        spoil_last(cluster.broker(node_id).data_dir)
    others = sorted({1, 2, 3} - {good})
    for node_id in others:
        cluster.broker(node_id).begin()
    time.sleep(6)  # their chance to go on without the record
    cluster.broker(good).begin()
    for node_id in (1, 2, 3):
        cluster.broker(node_id).wait_until_ready(time.monotonic() + READY_S_MAX)
    assert all(LAST in Asked(cluster, node_id).topics for node_id in (1, 2, 3))
    until(lambda: Asked(cluster, 1).produce(LAST, 0, "a").status == 200)  # its replicas come into sync


def says(cluster: LocalCluster, node_id: int, words: str) -> bool:
    return words in readiness(cluster, node_id)


def _holds(data: Path) -> bool:
    return any(LAST.encode() in path.read_bytes() for path in (data / "metadata").glob("*.log"))


def test_all_copies_of_the_last_record_rot(cluster: LocalCluster) -> None:
    """No broker is ready without it. All name its position and the command, and one good copy brings all back."""
    assert Asked(cluster, 1).create(LAST, 1, 3).status == 201
    until(lambda: all(_holds(cluster.broker(node_id).data_dir) for node_id in (1, 2, 3)))
    cluster.kill(1, 2, 3)
    kept = {path: path.read_bytes() for path in (cluster.broker(3).data_dir / "metadata").glob("*.log")}
    for node_id in (1, 2, 3):
        spoil_last(cluster.broker(node_id).data_dir)
        cluster.broker(node_id).begin()
    for node_id in (1, 2, 3):
        until(partial(says, cluster, node_id, NO_COPY), READY_S_MAX)
        assert RECOVER in readiness(cluster, node_id)
        assert NO_COPY in cluster.broker(node_id).output, "and its log says so"
    cluster.kill(3)
    for path, content in kept.items():
        path.write_bytes(content)
    cluster.broker(3).begin()
    for node_id in (1, 2, 3):
        cluster.broker(node_id).wait_until_ready(time.monotonic() + READY_S_MAX)
    assert all(LAST in Asked(cluster, node_id).topics for node_id in (1, 2, 3))


# -- snapshots ---------------------------------------------------------------------------------------------------------

SNAPSHOTS = {"metadata.log.snapshot.records": "10", "log.scrub.period.ms": "2000"}
BLOCK_BYTES = 4096
PARTITIONS = 12
"""They make the snapshots several blocks long."""


@pytest.fixture
def scrubbed() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=3, settings=SNAPSHOTS, start_timeout_s=READY_S_MAX) as cluster:
        yield cluster


def newest_body(cluster: LocalCluster, node_id: int) -> Path:
    """The body of a broker's newest snapshot of the metadata."""
    bodies = sorted((cluster.broker(node_id).data_dir / "snapshots").glob("*.body"))
    return bodies[-1]


def reads(path: Path, content: bytes) -> bool:
    return path.read_bytes() == content


def knows(cluster: LocalCluster, node_id: int, topics: list[str]) -> bool:
    return Asked(cluster, node_id).topics == sorted(topics)


def test_snapshots_are_of_different_positions(scrubbed: LocalCluster) -> None:
    """Two brokers have another block of one snapshot damaged, and mend each other's; the third has only older ones,
    whole, and nothing of theirs is taken."""
    cluster = scrubbed
    created = [f"topic-{number}" for number in range(24)]
    for topic in created[:12]:
        assert Asked(cluster, 1).create(topic, PARTITIONS, 3).status == 201
    until(lambda: any((cluster.broker(3).data_dir / "snapshots").glob("*.body")))
    cluster.stop(3)
    older = newest_body(cluster, 3)
    for topic in created[12:]:
        assert Asked(cluster, 1).create(topic, 1, 2).status == 201
    until(lambda: newest_body(cluster, 1).name == newest_body(cluster, 2).name > older.name)
    time.sleep(5)  # what one of them is about to take as a snapshot, both have then
    cluster.kill(1, 2)
    newest = {node_id: newest_body(cluster, node_id) for node_id in (1, 2)}
    was = newest[1].read_bytes()
    assert was == newest[2].read_bytes() and len(was) > BLOCK_BYTES + 100
    assert older.read_bytes()[:BLOCK_BYTES] != was[:BLOCK_BYTES]
    for block, path in enumerate(newest.values()):
        content = bytearray(path.read_bytes())
        content[block * BLOCK_BYTES + 100] ^= 1
        path.write_bytes(content)
    for node_id in (1, 2, 3):
        cluster.broker(node_id).begin()
    for node_id in (1, 2, 3):
        cluster.broker(node_id).wait_until_ready(time.monotonic() + READY_S_MAX)
    for path in newest.values():
        until(partial(reads, path, was), READY_S_MAX)
    for node_id in (1, 2, 3):
        until(partial(knows, cluster, node_id, created))
    assert all(Asked(cluster, node_id).voters.keys() == {1, 2, 3} for node_id in (1, 2, 3))
