"""`tidelog broker` and `tidelog cluster` against a broker that is its whole cluster."""

from __future__ import annotations

import json

import pytest

from tests.integration.cli.conftest import Cli
from tidelog.testing import LocalCluster

pytestmark = pytest.mark.process


def test_brokers_are_listed(cli: Cli, cluster: LocalCluster) -> None:
    lines = cli.succeed("broker", "list").decode().splitlines()
    assert lines[0].split() == ["BROKER", "ADDRESS", "RACK", "STATE", "ROLE", "EPOCH"]
    assert lines[1].split()[:5] == ["1", cluster.bootstrap, "-", "live", "controller"]
    [broker] = json.loads(cli.succeed("broker", "list", "--json"))
    described = json.loads(cli.succeed("broker", "describe", "1", "--json"))
    assert described | broker == described
    assert (broker["broker_id"], broker["is_fenced"], broker["is_controller"]) == (1, False, True)


def test_a_broker_is_described_with_what_it_holds(cli: Cli, topic: str) -> None:
    text = cli.succeed("broker", "describe", "1").decode()
    rows = [line.split() for line in text.splitlines()]
    assert text.startswith("broker 1\n")
    assert ["state", "live"] in rows
    assert [topic, "1", "leader", "yes"] in rows
    assert any(row[:1] == ["log.dir"] for row in rows)
    document = json.loads(cli.succeed("broker", "describe", "1", "--json"))
    found = [replica for replica in document["partition_replicas"] if replica["topic_name"] == topic]
    assert found == [
        {"topic_name": topic, "partition_id": number, "is_leader": True, "is_in_sync": True} for number in (0, 1)
    ]
    assert {"node.id", "log.dir"} <= {config["name"] for config in document["configs"]}


def test_brokers_that_do_not_exist_or_cannot_go(cli: Cli) -> None:
    assert cli.fail("broker", "describe", "9") == ["error: there is no broker 9; the brokers are 1 (40400)"]
    assert cli.fail("broker", "remove", "9") == ["error: there is no broker 9; the brokers are 1 (40400)"]
    [line] = cli.fail("broker", "remove", "1")
    assert line.startswith("error: broker 1 is the only one of its cluster;")


def test_the_cluster_is_described(cli: Cli, cluster: LocalCluster) -> None:
    lines = cli.succeed("cluster", "describe").decode().splitlines()
    assert lines[0] == f"cluster {cluster.cluster_id}"
    assert lines[1].startswith("controller: broker 1, epoch ")
    head = next(line.split() for line in lines if line.startswith("BROKER"))
    assert head == ["BROKER", "ADDRESS", "RACK", "STATE", "ROLE", "EPOCH", "POSITION", "LAG", "CLOCK", "LEVELS"]
    document = json.loads(cli.succeed("cluster", "describe", "--json"))
    assert (document["cluster_id"], document["controller_id"]) == (cluster.cluster_id, 1)
    [broker] = document["brokers"]
    assert (broker["metadata_position"], broker["metadata_lag"]) == (document["metadata_position"], 0)
    assert (broker["clock_offset_ms"], broker["clock_is_off"]) == (0, False)


def test_a_broker_logs_more_or_less_while_it_runs(cli: Cli) -> None:
    [line] = cli.succeed("broker", "log-level", "1").decode().splitlines()
    before = line.split()[-2]
    assert line == f"broker 1 logs from {before} on"
    try:
        assert cli.succeed("broker", "log-level", "1", "error") == b"broker 1 logs from error on\n"
        shown = json.loads(cli.succeed("broker", "log-level", "1", "--json"))
        assert shown == {"broker_id": 1, "log.level": "error"}
        rows = [line.split() for line in cli.succeed("broker", "describe", "1").decode().splitlines()]
        assert ["log.level", "error", "DYNAMIC_BROKER_CONFIG"] in rows
    finally:
        cli.succeed("broker", "log-level", "1", before)
    [line] = cli.fail("broker", "log-level", "1", "loud")
    assert line == "error: log.level is one of debug, info, warning, error, not 'loud' (40002)"
    assert cli.fail("broker", "log-level", "9") == ["error: there is no live broker 9 (40400)"]
