"""What whoever watches a cluster sees of it: readiness, metrics, log lines."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.asking import Asked, ask, controller_of, until
from tidelog.testing import LocalCluster

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(120)]

SETTINGS = {"broker.session.timeout.ms": "1500", "broker.heartbeat.interval.ms": "300"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Each test leaves it whole."""
    with LocalCluster(brokers=3, settings=SETTINGS) as cluster:
        yield cluster


def address(cluster: LocalCluster, node_id: int) -> str:
    """Returns where a broker will answer, ready or not."""
    command = cluster.broker(node_id).command
    return f"http://{command[command.index('--http') + 1]}"


def metrics(url: str) -> dict[str, float]:
    """Samples by name; those with labels as name{value}."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=5) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        samples = [sample for family in families for sample in family.samples]
    return {
        sample.name + (f"{{{','.join(sample.labels.values())}}}" if sample.labels else ""): sample.value
        for sample in samples
        if sample.name.startswith("tidelog_")
    }


def is_alive(url: str) -> bool:
    try:
        return ask(f"{url}/healthz").status == 200
    except OSError:
        return False


def test_metrics_tell_who_decides_and_how_far_everybody_is(cluster: LocalCluster) -> None:
    assert Asked(cluster, 1).create("watched").status == 201
    controller = controller_of(cluster)
    until(
        lambda: (
            max(metrics(address(cluster, controller))[f"tidelog_metadata_lag_records{{{n}}}"] for n in (1, 2, 3)) == 0
        )
    )
    for node_id in cluster.node_ids:
        shown = metrics(address(cluster, node_id))
        assert shown["tidelog_controller_active"] == (node_id == controller)
        assert shown["tidelog_controller_node_id"] == controller
        assert shown["tidelog_controller_epoch"] == 1
        assert shown["tidelog_controller_changes_total"] >= 1
        assert shown["tidelog_metadata_voters"] == 3
        assert shown["tidelog_metadata_position"] == metrics(address(cluster, 1))["tidelog_metadata_position"]
        assert (shown["tidelog_brokers{live}"], shown["tidelog_brokers{fenced}"]) == (3, 0)
        assert shown["tidelog_partitions_without_leader"] == 0
        assert (shown["tidelog_peers_known"], shown["tidelog_peers_connected"]) == (2, 2)
        assert shown["tidelog_peer_connects_total"] >= 4
        assert ("tidelog_metadata_lag_records{1}" in shown) == (node_id == controller)


def tells_of(cluster: LocalCluster, node_id: int, before: int, what: str) -> bool:
    """Returns True if a line of a broker's output, behind so many, has this."""
    return any(what in line for line in cluster.broker(node_id).output.splitlines()[before:])


def test_a_broker_that_is_away_is_seen_and_said_once(cluster: LocalCluster) -> None:
    controller = controller_of(cluster)
    away, other = [node_id for node_id in cluster.node_ids if node_id != controller]
    lines = {node_id: len(cluster.broker(node_id).output.splitlines()) for node_id in (controller, other)}
    cluster.kill(away)
    until(lambda: metrics(address(cluster, other))["tidelog_brokers{fenced}"] == 1)
    shown = metrics(address(cluster, other))
    assert (shown["tidelog_peers_known"], shown["tidelog_peers_connected"]) == (2, 1)
    until(lambda: all(tells_of(cluster, node_id, before, f"peer={away}") for node_id, before in lines.items()))
    time.sleep(5)  # it goes on being away: nothing more is to be said of it
    for node_id, before in lines.items():
        said = cluster.broker(node_id).output.splitlines()[before:]
        assert len(said) <= 3, said
    cluster.restart(away)
    until(lambda: metrics(address(cluster, other))["tidelog_brokers{live}"] == 3)


def test_a_cluster_without_a_controller_is_seen_and_said_once(cluster: LocalCluster) -> None:
    controller = controller_of(cluster)
    away = next(node_id for node_id in cluster.node_ids if node_id != controller)
    [witness] = [node_id for node_id in cluster.node_ids if node_id not in (controller, away)]
    before = len(cluster.broker(witness).output.splitlines())
    cluster.kill(controller, away)
    until(lambda: metrics(address(cluster, witness))["tidelog_controller_node_id"] == -1)
    until(lambda: tells_of(cluster, witness, before, "heartbeats are not answered"))
    time.sleep(5)  # nothing tells that a line does not come: several looks of the broker pass
    said = cluster.broker(witness).output.splitlines()[before:]
    assert sum("heartbeats are not answered" in line for line in said) == 1
    assert len(said) <= 5, said
    cluster.restart(controller, away)
    until(lambda: metrics(address(cluster, witness))["tidelog_brokers{live}"] == 3)
    until(lambda: "heartbeats are answered again" in cluster.broker(witness).output)


def test_a_broker_that_waits_for_its_cluster_says_for_what() -> None:
    with LocalCluster(brokers=3, settings=SETTINGS) as cluster:
        cluster.stop(*cluster.node_ids)
        cluster.broker(2).begin()
        url = address(cluster, 2)
        until(lambda: is_alive(url))
        until(lambda: "majority" in ask(f"{url}/readyz").body["message"])
        refused = ask(f"{url}/topics")
        assert (refused.status, refused.code) == (503, 50302)
        assert metrics(url)["tidelog_controller_node_id"] == -1
        cluster.broker(3).start()
        until(lambda: ask(f"{url}/readyz").status == 200)
        cluster.broker(2).stop()


def test_a_founder_that_is_alone_says_whom_it_waits_for() -> None:
    cluster = LocalCluster(brokers=3, settings=SETTINGS)
    broker = cluster.broker(1)
    try:
        broker.begin()
        url = address(cluster, 1)
        until(lambda: is_alive(url))
        until(lambda: "it waits for the brokers at" in ask(f"{url}/readyz").body["message"])
        message = ask(f"{url}/readyz").body["message"]
        others = [cluster.broker(node_id).command for node_id in (2, 3)]
        assert all(command[command.index("--peer") + 1] in message for command in others)
        assert metrics(url)["tidelog_brokers{live}"] == 0
        broker.stop()
    finally:
        cluster.close()
