"""`metadata/` is gone, on one broker, on most, on all: healed, or said what to do. Never an empty cluster over data."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.asking import Asked, readiness, until
from tidelog.broker.metadata.remains import look
from tidelog.storage.disk_files import DiskFiles
from tidelog.testing import BrokerFailed, LocalCluster

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(120)]

SETTINGS = {"metadata.log.snapshot.records": "5"}
RECOVER = "tidelog cluster recover --data-dir"


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=3, settings=SETTINGS) as cluster:
        assert Asked(cluster, 1).create("kept", 1, 3).status == 201
        Asked(cluster, 1).append("kept", 0, "a", "b")
        yield cluster


def lose_metadata(data: Path) -> None:
    shutil.rmtree(data / "metadata")


def spoil_metainfo(data: Path) -> None:
    for path in (data / "metadata").glob("metainfo.*"):
        path.write_bytes(bytes(512))


LOSSES = pytest.mark.parametrize("lose", [lose_metadata, spoil_metainfo])


def until_it_says(cluster: LocalCluster, node_id: int, words: str) -> None:
    until(lambda: words in readiness(cluster, node_id))


@LOSSES
def test_one_broker_is_healed_at_once_though_it_was_killed(cluster: LocalCluster, lose: object) -> None:
    """A wiped broker is admitted at once: its directory says that the disk before is dead."""
    assert callable(lose)
    cluster_id = cluster.cluster_id
    cluster.kill(2)
    lose(cluster.broker(2).data_dir)
    begin_s = time.monotonic()
    cluster.restart(2)
    assert time.monotonic() - begin_s < 8.0, "it waited for the end of a session"
    assert cluster.broker(2).cluster_id == cluster_id
    until(lambda: sorted(Asked(cluster, 2).voters) == [1, 2, 3])
    assert Asked(cluster, 2).values("kept", 0) == ["a", "b"]


@LOSSES
def test_most_brokers_say_what_to_do(cluster: LocalCluster, lose: object) -> None:
    assert callable(lose)
    cluster.kill(1, 2, 3)
    for node_id in (1, 2):
        lose(cluster.broker(node_id).data_dir)
    for node_id in (1, 2, 3):
        cluster.broker(node_id).begin()
    for node_id in (1, 2, 3):
        until_it_says(cluster, node_id, "1, 2 lost the metadata log")
        assert RECOVER in readiness(cluster, node_id)


@LOSSES
def test_all_brokers_say_what_to_do_and_found_nothing_even_with_a_new_one(cluster: LocalCluster, lose: object) -> None:
    assert callable(lose)
    cluster_id = cluster.cluster_id
    cluster.kill(1, 2, 3)
    for node_id in (1, 2):
        lose(cluster.broker(node_id).data_dir)
    cluster.wipe(3)
    for node_id in (1, 2, 3):
        cluster.broker(node_id).begin()
    for node_id in (1, 2):
        until_it_says(cluster, node_id, f"holds data of cluster {cluster_id}")
    for node_id in (1, 2, 3):
        until_it_says(cluster, node_id, RECOVER)
    time.sleep(3)  # its chance to found: it would take tenths of a second
    assert all(RECOVER in readiness(cluster, node_id) for node_id in (1, 2, 3))


def test_all_brokers_say_what_to_do_if_no_snapshot_can_be_read(cluster: LocalCluster) -> None:
    """The log begins behind the snapshots, and none of the brokers has one that is whole."""
    for number in range(60):
        assert Asked(cluster, 1).create(f"filler-{number}", 1, 3).status == 201
        if number >= 12 and all(log_begin(cluster, node_id) > 0 for node_id in (1, 2, 3)):
            break
    cluster.kill(1, 2, 3)
    assert all(log_begin(cluster, node_id) > 0 for node_id in (1, 2, 3)), "the log alone would do"
    kept = {path: path.read_bytes() for node_id in (1, 2, 3) for path in snapshots_of(cluster, node_id)}
    for path, content in kept.items():
        path.write_bytes(content[:20] + bytes([content[20] ^ 1]) + content[21:])
    for node_id in (1, 2, 3):
        cluster.broker(node_id).begin()
    for node_id in (1, 2, 3):
        until_it_says(cluster, node_id, "no broker can give a snapshot that reaches it: here: snapshot at")
        said = readiness(cluster, node_id)
        assert RECOVER in said and "damaged chunks 0" in said, said
        assert all(f"broker {other}: " in said for other in {1, 2, 3} - {node_id}), said
    cluster.kill(3)
    for path in snapshots_of(cluster, 3):
        path.write_bytes(kept[path])
    cluster.broker(3).begin()
    for node_id in (1, 2, 3):
        cluster.broker(node_id).wait_until_ready(time.monotonic() + 40)
    until(lambda: Asked(cluster, 1).values("kept", 0) == ["a", "b"])


def log_begin(cluster: LocalCluster, node_id: int) -> int:
    """Returns the position that the metadata log on a broker's disk begins with."""
    remains = look(str(node_id), DiskFiles(str(cluster.broker(node_id).data_dir)))
    return max((floor.position for floor in remains.floors), default=0)


def snapshots_of(cluster: LocalCluster, node_id: int) -> list[Path]:
    return sorted((cluster.broker(node_id).data_dir / "snapshots").glob("*.body"))


def test_a_copy_of_another_brokers_directory_is_refused(cluster: LocalCluster) -> None:
    cluster.stop(1, 2)
    shutil.rmtree(cluster.broker(2).data_dir)
    shutil.copytree(cluster.broker(1).data_dir, cluster.broker(2).data_dir)
    with pytest.raises(BrokerFailed, match=r"belongs to node 1 of cluster .*, not to node 2; .*\(40917\)"):
        cluster.restart(2)
    shutil.rmtree(cluster.broker(2).data_dir / "metadata")
    with pytest.raises(BrokerFailed, match=r"belongs to node 1 of cluster .*, not to node 2; .*\(40917\)"):
        cluster.restart(2)


def test_a_wiped_broker_that_starts_without_a_controller_waits_and_goes_on_by_itself(cluster: LocalCluster) -> None:
    cluster.kill(1, 2, 3)
    cluster.wipe(1)
    cluster.broker(2).begin()
    cluster.broker(1).begin()
    time.sleep(20)  # two sessions and more without a controller: its chance to give up
    cluster.broker(3).begin()
    for node_id in (1, 2, 3):
        cluster.broker(node_id).wait_until_ready(time.monotonic() + 40)
    until(lambda: Asked(cluster, 1).brokers == {1: True, 2: True, 3: True})
