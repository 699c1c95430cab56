"""Snapshots: canonical bytes, and the rule by which voters agree on one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.controller.cluster import Cluster, topic_id
from tidelog.controller.commands import AgreeSnapshot, DeleteTopic, TakeSnapshot
from tidelog.controller.sessions import Sessions
from tidelog.controller.snapshot import SnapshotUnreadable, decode_image, encode_image
from tidelog.controller.upkeep import next_snapshot
from tidelog.model.cluster import ClusterImage

SCRIPT = """
from tests.unit.controller.test_snapshot import rich
from tidelog.controller.snapshot import encode_image
print(encode_image(rich().image).decode())
"""


def rich() -> Cluster:
    cluster = Cluster(voters=3)
    cluster.start(10, 2, 1, racks={10: "b", 2: "a", 1: "a"})
    for name in ("zeta", "alpha", "gone"):
        cluster.create(name, 3, 2)
    cluster.do(DeleteTopic("gone", topic_id("gone")))
    return cluster


def test_an_image_comes_back_as_it_was() -> None:
    for image in (ClusterImage(""), rich().image):
        data = encode_image(image)
        assert decode_image(data) == image
        assert encode_image(decode_image(data)) == data
        assert list(decode_image(data).brokers) == list(image.brokers)


def test_another_process_writes_the_same_bytes() -> None:
    command = [sys.executable, "-c", SCRIPT]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[4])
    assert ran.stdout.rstrip("\n").encode() == encode_image(rich().image)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b'"format":10', b'"format":9', "canonical"),
        (b'"format":10', b'"format":11', "format 11"),
        (b'"cluster_id":"c1"', b'"cluster_id":"c1","more":1', "canonical"),
        (b'"cluster_id":"c1"', b'"cluster_id": "c1"', "canonical"),
        (b'"cluster_id":"c1"', b'"cluster_id":1', "cannot be understood"),
        (b"}", b"", "cannot be understood"),
    ],
)
def test_what_no_broker_wrote_is_refused(old: bytes, new: bytes, message: str) -> None:
    data = encode_image(rich().image)
    assert old in data
    with pytest.raises(SnapshotUnreadable, match=message):
        decode_image(data.replace(old, new))


# -- agreeing ------------------------------------------------------------------------------------------------------


def reported(cluster: Cluster, hashes: dict[int, tuple[int, str]]) -> Sessions:
    sessions = Sessions(9_000, 1_000)
    sessions.begin(cluster.image, 0.0)
    for node, snapshot in hashes.items():
        epoch = next(broker.epoch for broker in cluster.image.brokers.values() if broker.node_id == node)
        sessions.heard(node, epoch, 0.0, position=cluster.image.position, snapshot=snapshot)
    return sessions


def due(
    cluster: Cluster, hashes: dict[int, tuple[int, str]], every_records: int
) -> TakeSnapshot | AgreeSnapshot | None:
    return next_snapshot(cluster.image, reported(cluster, hashes), every_records=every_records)


def test_a_snapshot_is_due_when_the_log_has_grown() -> None:
    cluster = rich()
    assert due(cluster, {}, cluster.image.position + 1) is None
    assert due(cluster, {}, cluster.image.position) == TakeSnapshot()
    cluster.do(TakeSnapshot())
    assert cluster.image.snapshot_position == cluster.image.position
    assert due(cluster, {}, 10) is None


def test_a_majority_of_voters_must_report_the_same() -> None:
    cluster = Cluster(voters=3)
    cluster.start(1, 2, 3, 4)
    cluster.do(TakeSnapshot())
    position = cluster.image.position
    for hashes in (
        {1: (position, "a")},
        {1: (position, "a"), 4: (position, "a")},
        {1: (position, "a"), 2: (position, "b")},
        {1: (position, "a"), 2: (position - 1, "a")},
    ):
        assert due(cluster, hashes, 1_000) is None
    agreed = due(cluster, {1: (position, "b"), 2: (position, "a"), 3: (position, "a")}, 1_000)
    assert agreed == AgreeSnapshot(position, "a")
    cluster.do(agreed)
    assert cluster.image.snapshot_agreed == position
    assert due(cluster, {}, 1_000) is None


def test_voters_that_disagree_do_not_stop_later_snapshots() -> None:
    cluster = Cluster(voters=3)
    cluster.start(1, 2, 3)
    cluster.do(TakeSnapshot())
    first = cluster.image.snapshot_position
    cluster.create("t")
    assert due(cluster, {1: (first, "a"), 2: (first, "b"), 3: (first, "c")}, 1) == TakeSnapshot()
    cluster.do(TakeSnapshot())
    position = cluster.image.position
    cluster.do(AgreeSnapshot(first, "a"))
    assert cluster.image.snapshot_agreed == first
    cluster.do(AgreeSnapshot(position + 1, "a"))
    assert cluster.image.snapshot_agreed == first, "nobody can hold a snapshot that was never due"
