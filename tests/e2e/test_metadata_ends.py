"""The last record of the metadata log rots right after its acknowledgement: no majority of voters forgets it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.asking import Asked, until
from tidelog.testing import LocalCluster

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(120)]

LAST = "the-last-topic"


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
        cluster.broker(node_id).wait_until_ready(time.monotonic() + 40)
    assert all(LAST in Asked(cluster, node_id).topics for node_id in (1, 2, 3))
    until(lambda: Asked(cluster, 1).produce(LAST, 0, "a").status == 200)  # its replicas come into sync


def _holds(data: Path) -> bool:
    return any(LAST.encode() in path.read_bytes() for path in (data / "metadata").glob("*.log"))
