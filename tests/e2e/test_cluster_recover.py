"""`tidelog cluster recover`: a cluster goes on by its operator's word, and keeps all that is left of it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.e2e.asking import Asked, ask, until
from tidelog.testing import BrokerFailed, LocalCluster

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(180)]

SNAPSHOT_EVERY = 20


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    """All topics have a record, one of them commits by majority; all brokers are killed."""
    with LocalCluster(brokers=3, settings={"metadata.log.snapshot.records": str(SNAPSHOT_EVERY)}) as cluster:
        asked = Asked(cluster, 1)
        majority = {
            "topic_name": "majority",
            "partitions_count": 1,
            "replication_factor": 3,
            "configs": [{"name": "commit.protocol", "value": "paxos"}],
        }
        assert ask(f"{asked.v3}/topics", majority).status == 201
        assert asked.create("insync", 1, 3).status == 201
        for topic in ("majority", "insync"):
            asked.append(topic, 0, "a", "b")
        cluster.kill(1, 2, 3)
        yield cluster


def data(cluster: LocalCluster, node_id: int) -> Path:
    return cluster.broker(node_id).data_dir


def recover(cluster: LocalCluster, *node_ids: int, execute: bool = False) -> subprocess.CompletedProcess[str]:
    return recover_at([data(cluster, node_id) for node_id in node_ids], execute=execute)


def recover_at(directories: list[Path], *, execute: bool = False) -> subprocess.CompletedProcess[str]:
    named = [word for directory in directories for word in ("--data-dir", str(directory))]
    command = [sys.executable, "-m", "tidelog", "cluster", "recover", *named, *(["--execute"] if execute else [])]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def tree(directory: Path) -> dict[str, bytes]:
    """All files but those that every process that uses a directory writes."""
    found = {str(path.relative_to(directory)): path for path in directory.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if name not in ("lock", "reserve")}


def until_led(asked: Asked, topic: str, node_ids: tuple[int, ...]) -> None:
    until(lambda: asked.leaders(topic)[0] in node_ids)


def check_whole(cluster: LocalCluster, cluster_id: str, *node_ids: int) -> None:
    cluster.restart(*node_ids)
    for node_id in node_ids:
        assert cluster.broker(node_id).cluster_id == cluster_id
    asked = Asked(cluster, node_ids[0])
    for topic in ("majority", "insync"):
        until_led(asked, topic, node_ids)
        assert asked.values(topic, 0) == ["a", "b"]
        asked.append(topic, 0, "c")
        assert asked.values(topic, 0) == ["a", "b", "c"]
    assert asked.create("after", 1, len(node_ids)).status == 201


def test_two_of_three_metadata_logs_are_lost(cluster: LocalCluster) -> None:
    cluster_id = cluster.cluster_id
    for node_id in (1, 2):
        shutil.rmtree(data(cluster, node_id) / "metadata")
    before = tree(data(cluster, 3))
    dry = recover(cluster, 1, 2, 3)
    assert dry.returncode == 0, dry.stderr
    assert "goes on with 2 topics: insync, majority" in dry.stdout and "nothing was changed" in dry.stdout
    assert tree(data(cluster, 3)) == before
    done = recover(cluster, 1, 2, 3, execute=True)
    assert done.returncode == 0 and "done; start the brokers" in done.stdout, done
    after = tree(data(cluster, 3))
    changed = {name for name, content in before.items() if after.get(name) != content}
    assert changed <= {"identity.0", "identity.1"}, "nothing else is removed or changed"
    check_whole(cluster, cluster_id, 1, 2, 3)
    until(lambda: sorted(Asked(cluster, 1).voters) == [1, 2, 3])
    cluster.stop(1, 2, 3)
    words = [dump_metadata(data(cluster, node_id)) for node_id in (1, 2, 3)]
    assert any("ClusterRecovered" in said for said in words), "a log that begins behind it has it in its snapshot"


def dump_metadata(directory: Path) -> str:
    """Returns the metadata log of a broker that is stopped, in words."""
    return tidelog("log", "dump", "--data-dir", str(directory), "--topic", "(metadata)", "--records")


def test_all_metadata_logs_are_lost_and_snapshots_are_left(cluster: LocalCluster) -> None:
    cluster_id = cluster.cluster_id
    cluster.restart(1, 2, 3)
    asked = Asked(cluster, 1)
    for number in range(SNAPSHOT_EVERY):
        assert asked.create(f"more-{number:02}").status == 201
    until(lambda: all(list(data(cluster, node_id).glob("snapshots/*.header.1")) for node_id in (1, 2, 3)))
    cluster.kill(1, 2, 3)
    for node_id in (1, 2, 3):
        shutil.rmtree(data(cluster, node_id) / "metadata")
    assert recover(cluster, 1, 2, 3, execute=True).returncode == 0
    check_whole(cluster, cluster_id, 1, 2, 3)


def test_nothing_is_left_that_names_the_topics(cluster: LocalCluster) -> None:
    for node_id in (1, 2, 3):
        shutil.rmtree(data(cluster, node_id) / "metadata")
        shutil.rmtree(data(cluster, node_id) / "snapshots", ignore_errors=True)
    before = tree(data(cluster, 1))
    refused = recover(cluster, 1, 2, 3, execute=True)
    (topic, *_) = sorted(path.name for path in (data(cluster, 1) / "topics").iterdir())
    assert refused.returncode == 1 and "names and settings of the topics are lost" in refused.stderr
    assert topic in refused.stderr
    assert tree(data(cluster, 1)) == before


def test_a_broker_that_was_not_given_is_refused_and_comes_back_with_another_disk(cluster: LocalCluster) -> None:
    cluster_id = cluster.cluster_id
    shutil.rmtree(data(cluster, 1) / "metadata")
    done = recover(cluster, 1, 3, execute=True)
    assert done.returncode == 0 and "only brokers 2 know" in done.stdout, done
    check_whole(cluster, cluster_id, 1, 3)
    with pytest.raises(BrokerFailed, match=r"node 2 is of generation 0 .* has begun generation 1.*\(40909\)"):
        cluster.restart(2)
    for name in ("metadata", "snapshots"):
        shutil.rmtree(data(cluster, 2) / name, ignore_errors=True)
    cluster.restart(2)
    until(lambda: Asked(cluster, 2).brokers == {1: True, 2: True, 3: True})
    assert Asked(cluster, 2).values("insync", 0) == ["a", "b", "c"]


def test_directories_that_were_recovered_apart_do_not_serve_beside_each_other(cluster: LocalCluster) -> None:
    cluster_id = cluster.cluster_id
    for node_id in (1, 2):
        assert recover(cluster, node_id, execute=True).returncode == 0
    brokers = [cluster.broker(node_id) for node_id in (1, 2)]
    with suppress(BrokerFailed):
        cluster.restart(1, 2)
    until(lambda: not all(broker.is_running for broker in brokers))
    refused = r"node 1 is of recovery \w{16}, node 2 is of recovery \w{16}, and both are of generation 1: .*\(40909\)"
    assert any(re.search(refused, broker.output) for broker in brokers)
    cluster.kill(1, 2)
    apart = recover(cluster, 1, 2, 3, execute=True)
    assert apart.returncode == 1 and "were recovered apart" in apart.stderr and "choose one recovery" in apart.stderr
    for path in (*data(cluster, 2).glob("metadata*"), data(cluster, 2) / "snapshots"):
        shutil.rmtree(path, ignore_errors=True)
    assert "generation 2 (recovery " in recover(cluster, 1, 2, 3, execute=True).stdout
    check_whole(cluster, cluster_id, 1, 2, 3)
    described = tidelog("cluster", "describe", "--bootstrap", cluster.bootstrap)
    assert re.search(
        r"generation 1, recovery \w{16}: by .*\nat .*, kept up to metadata position \d+; given up:", described
    )
    assert "generation 2, recovery " in described and "  what was decided from position" in described
    (first, second) = json.loads(tidelog("cluster", "describe", "--json", "--bootstrap", cluster.bootstrap))[
        "recoveries"
    ]
    assert (first["generation"], second["generation"]) == (1, 2) and first["recovery_id"] != second["recovery_id"]
    assert "the metadata log was recovered 2 times" in tidelog("log", "losses", "--bootstrap", cluster.bootstrap)


def tidelog(*words: str) -> str:
    """Returns what a command prints."""
    command = [sys.executable, "-m", "tidelog", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_directories_that_are_no_cluster_are_refused(cluster: LocalCluster, tmp_path: Path) -> None:
    copied = tmp_path / "copy"
    shutil.copytree(data(cluster, 1), copied)
    refused = recover_at([data(cluster, 1), copied], execute=True)
    assert refused.returncode == 1 and "several of these directories are broker 1's" in refused.stderr
    with LocalCluster(brokers=1) as other:
        other.stop()
        refused = recover_at([data(cluster, 2), data(other, 1)], execute=True)
        assert refused.returncode == 1 and "of several clusters" in refused.stderr
    shutil.rmtree(copied)
    cluster.restart(1, 2, 3)
    refused = recover(cluster, 1, 2, 3)
    assert refused.returncode == 1 and "in use by process" in refused.stderr
    refused = recover_at([copied])
    assert refused.returncode == 1 and "is no directory" in refused.stderr
