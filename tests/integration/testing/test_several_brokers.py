"""Clusters of several brokers as tests use them: formed, broken in all the ways there are, and whole again."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Iterator

import pytest

from tidelog.testing import LocalCluster

pytestmark = [pytest.mark.process, pytest.mark.e2e]

WAIT_S = 20.0


def brokers(cluster: LocalCluster, asked: int) -> dict[int, bool]:
    """Returns which brokers there are, and which of them are live, as the broker `asked` knows it."""
    url = f"{cluster.broker(asked).url}/v3/clusters/{cluster.broker(asked).cluster_id}/brokers"
    with urllib.request.urlopen(url, timeout=5) as answer:
        return {broker["broker_id"]: not broker["is_fenced"] for broker in json.load(answer)["data"]}


def until(condition: Callable[[], bool]) -> None:
    """Waits for something that must come true; how soon is not the point here."""
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Each test leaves it whole."""
    with LocalCluster(brokers=3) as cluster:
        yield cluster


def test_three_brokers_are_one_cluster_that_outlives_any_of_them(cluster: LocalCluster) -> None:
    assert len({cluster.broker(node_id).cluster_id for node_id in cluster.node_ids}) == 1
    assert len(cluster.bootstrap.split(",")) == 3
    assert brokers(cluster, asked=2) == {1: True, 2: True, 3: True}
    cluster.kill(1)
    until(lambda: brokers(cluster, asked=2) == {1: False, 2: True, 3: True})
    cluster.restart(1)
    until(lambda: brokers(cluster, asked=1) == {1: True, 2: True, 3: True})


def test_most_of_a_cluster_is_killed_and_restarted_together(cluster: LocalCluster) -> None:
    identity, addresses = cluster.cluster_id, cluster.bootstrap
    cluster.kill(1, 3)
    assert [cluster.broker(node_id).is_running for node_id in cluster.node_ids] == [False, True, False]
    cluster.restart(1, 3)
    assert (cluster.cluster_id, cluster.bootstrap) == (identity, addresses)
    until(lambda: all(brokers(cluster, asked=2).values()))


def test_a_broker_whose_disk_was_replaced_comes_back_by_itself(cluster: LocalCluster) -> None:
    cluster.wipe(2)
    assert not cluster.broker(2).data_dir.exists()
    cluster.restart(2)
    assert cluster.broker(2).cluster_id == cluster.cluster_id
    until(lambda: brokers(cluster, asked=2) == {1: True, 2: True, 3: True})
