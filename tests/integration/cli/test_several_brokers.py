"""The command line against clusters of several brokers: what they show, how they grow and shrink."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cli.conftest import Cli, Ran
from tidelog.admin import AdminClient, NewAssignment
from tidelog.cli import moving
from tidelog.cli.moving import watch
from tidelog.cli.terminal import CommandError
from tidelog.testing import BrokerProcess, LocalCluster
from tidelog.testing.commands import HOST
from tidelog.testing.ports import free_ports

pytestmark = [pytest.mark.process, pytest.mark.e2e]

PUBLISHED = """
p0 p5 p10 | p1 p6 p11 | p2 p7 p12 | p3 p8 p13 | p4 p9 p14
p4 p8 p12 | p0 p9 p13 | p1 p5 p14 | p2 p6 p10 | p3 p7 p11
p3 p7 p11 | p4 p8 p12 | p0 p9 p13 | p1 p5 p14 | p2 p6 p10
"""
"""15 partitions on five brokers, as Kafka's design of 2012 has them."""


@pytest.fixture(scope="module")
def five() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=5) as cluster:
        yield cluster


@pytest.fixture
def on_five(
    five: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Cli:
    return Cli(five.bootstrap, tmp_path, monkeypatch, capfdbinary)


def test_a_new_cluster_places_a_topic_as_published(on_five: Cli, five: LocalCluster) -> None:
    asked = ["topic", "create", "new", "--partitions", "15", "--replication-factor", "3", "--validate-only", "--json"]
    for node_id in five.node_ids:  # whoever is asked
        shown = json.loads(on_five.succeed(*asked, "--bootstrap", five.broker(node_id).url))
        lists = [partition["replicas"] for partition in shown["assignments"]]
        rows = [
            " | ".join(" ".join(f"p{p}" for p in range(15) if lists[p][j] == node) for node in five.node_ids)
            for j in range(3)
        ]
        assert rows == PUBLISHED.strip().splitlines()
    assert on_five.succeed("topic", "list").startswith(b"there are no topics")


def test_a_cluster_is_described_by_whoever_is_asked(on_five: Cli, five: LocalCluster) -> None:
    document = json.loads(on_five.succeed("cluster", "describe", "--json"))
    assert document["cluster_id"] == five.cluster_id
    assert [broker["broker_id"] for broker in document["brokers"]] == five.node_ids
    assert [broker["is_controller"] for broker in document["brokers"]].count(True) == 1
    assert all(broker["metadata_position"] is not None for broker in document["brokers"])
    assert sorted(voter["broker_id"] for voter in document["voters"]) == five.node_ids
    brokers = json.loads(on_five.succeed("broker", "list", "--json"))
    assert [f"http://{broker['host']}:{broker['port']}" for broker in brokers] == five.bootstrap.split(",")


def test_a_cluster_that_consists_of_whom_it_should(on_five: Cli) -> None:
    names = ", ".join(f"broker-{node_id}" for node_id in range(1, 6))
    created = on_five.succeed("admin", f"create cluster with brokers {names}").decode()
    assert created.endswith(f" consists of {names}\n")
    [line] = on_five.fail("admin", "create cluster with brokers broker-1, broker-2, broker-3")
    assert line.startswith("error: the cluster has broker-4, broker-5 as well;")


def test_topics_of_several_brokers_in_statements(on_five: Cli) -> None:
    created = on_five.succeed("admin", "create topic wide with 10 partitions and 3 replicas").decode()
    assert created == "created topic wide: 10 partitions, 3 replicas\n"
    document = json.loads(on_five.succeed("broker", "describe", "2", "--json"))
    held = [replica for replica in document["partition_replicas"] if replica["topic_name"] == "wide"]
    assert len(held) == 6
    assert sum(replica["is_leader"] for replica in held) == 2
    [line, *_] = on_five.fail("broker", "remove", "2")
    assert line.startswith("error: broker 2 holds replicas of wide")
    on_five.succeed("admin", "drop topic wide")


def test_a_partition_moves_to_the_brokers_that_are_named(on_five: Cli) -> None:
    on_five.succeed("topic", "create", "moved", "--partitions", "2", "--replication-factor", "2")
    on_five.succeed("produce", "moved", "--partition", "1", stdin=b"hello\n")
    assert on_five.succeed("topic", "move", "moved", "1", "--to", "5,1", "--throttle", "5MB") == (
        b"moved-1 is on brokers 5,1\n"
    )
    partition = json.loads(on_five.succeed("topic", "describe", "moved", "--json"))["partitions"][1]
    assert (partition["replicas"], partition["leader"], sorted(partition["isr"])) == ([5, 1], 5, [1, 5])
    assert on_five.succeed("consume", "moved", "--from-beginning", "--until-end") == b"hello\n"
    document = json.loads(on_five.succeed("topic", "move", "moved", "1", "--to", "5,1", "--json"))
    assert document == {"topic_name": "moved", "partition_id": 1, "replicas": [5, 1]}
    for wrong in ("9,1", "1,1"):
        [line] = on_five.fail("topic", "move", "moved", "1", "--to", wrong)
        assert line.startswith("error: moved-1: replicas must be distinct, known brokers")
    assert "partition 7" in on_five.fail("topic", "move", "moved", "7", "--to", "1")[0]
    [line] = on_five.fail("topic", "move", "moved", "1", "--to", "1,", status=2)
    assert "'1,' is no list of brokers; give their node ids, as 3,2" in line
    on_five.succeed("topic", "delete", "moved")


def test_a_plan_shows_what_evening_out_would_move(on_five: Cli) -> None:
    assert on_five.succeed("cluster", "rebalance", "--validate-only") == b"nothing would move: the load is even\n"
    on_five.succeed("topic", "create", "fifteen", "--partitions", "15", "--replication-factor", "3")
    plan = json.loads(on_five.succeed("cluster", "rebalance", "--validate-only", "--without", "4", "--json"))
    assert plan["replica_moves"] == 9
    assert sum(len(change["adding_replicas"]) for change in plan["reassignments"]) == 9
    assert [broker["target_replicas"] for broker in plan["brokers"]].count(0) == 1
    text = on_five.succeed("cluster", "rebalance", "--validate-only", "--without", "4").decode()
    assert text.startswith("9 replicas would move, ")
    assert "fifteen" in text
    on_five.succeed("topic", "delete", "fifteen")
    on_five.succeed("topic", "create", "all", "--replication-factor", "5")
    [line] = on_five.fail("cluster", "rebalance", "--validate-only", "--without", "4")
    assert line.startswith("error: all-0 has 5 replicas, but only 4 brokers would be left;")
    on_five.succeed("topic", "delete", "all")
    [line] = on_five.fail("cluster", "rebalance", "--validate-only", "--without", "9")
    assert line.startswith("error: there is no broker 9;")
    [line] = on_five.fail("cluster", "rebalance", "--cancel", "--validate-only", status=2)
    assert "--cancel calls off all moves" in line
    [line] = on_five.fail("cluster", "rebalance", "--throttle", "much", status=2)
    assert "'much' is no rate; give bytes per second as 500KB" in line
    assert on_five.succeed("cluster", "rebalance", "--throttle", "5MB") == b"nothing to reassign: the load is even\n"
    assert on_five.succeed("cluster", "rebalance") == b"nothing to reassign: the load is even\n"
    assert on_five.succeed("cluster", "rebalance", "--cancel") == b"nothing was being reassigned\n"


def test_moves_are_called_off_and_a_broker_that_they_wait_for_in_vain_is_named(
    on_five: Cli, five: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def begin() -> None:
        async with AdminClient(five.bootstrap) as admin:
            await admin.alter_reassignments([NewAssignment("moving", 0, (2,))], throttle_bytes_per_s=1)
            [left] = await admin.list_reassignments()
            assert (left.adding_replicas, left.removing_replicas, left.throttle_bytes_per_s) == ((2,), (1,), 1)

    async def wait() -> None:
        async with AdminClient(five.bootstrap) as admin:
            await watch(admin, 1)

    async def create() -> None:
        async with AdminClient(five.bootstrap) as admin:
            await admin.create_topic("moving", replicas_assignments={0: [1]})

    asyncio.run(create())
    on_five.succeed("produce", "moving", stdin=b"".join(b"%d\n" % number for number in range(1000)))
    asyncio.run(begin())
    assert on_five.succeed("cluster", "rebalance", "--cancel") == b"1 partition called off\n"
    asyncio.run(begin())
    called_off = json.loads(on_five.succeed("cluster", "rebalance", "--cancel", "--json"))
    assert called_off == {"partitions": 1, "outcome": "called off"}
    asyncio.run(begin())
    monkeypatch.setattr(moving, "LOOK_CLOSER_S", 0.5)
    five.kill(2)
    with pytest.raises(CommandError, match="moving-0 waits for broker 2, which is not heard of; start it again"):
        asyncio.run(wait())
    five.restart(2)
    on_five.succeed("cluster", "rebalance", "--throttle", "none")
    [partition] = json.loads(on_five.succeed("topic", "describe", "moving", "--json"))["partitions"]
    assert len(partition["isr"]) == 1
    on_five.succeed("topic", "delete", "moving")


def test_brokers_join_and_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    with LocalCluster() as cluster:
        cli = Cli(cluster.bootstrap, tmp_path, monkeypatch, capfdbinary)
        cli.succeed("topic", "create", "shared", "--partitions", "4")
        values = b"".join(b"%d\n" % number for number in range(1000))
        cli.succeed("produce", "shared", stdin=values)
        http, peer = free_ports(2)
        joining = BrokerProcess(
            2,
            tmp_path / "joining",
            {"cluster.join": cluster.bootstrap},
            http=f"{HOST}:{http}",
            peer=f"{HOST}:{peer}",
        )
        joining.begin()
        try:
            added: Ran = cli("admin", "alter cluster add brokers broker-2", "--wait", "20")
            assert added.status == 0, added.err
            assert f"http://{HOST}:{http}" in added.out.decode()
            assert [broker["broker_id"] for broker in json.loads(cli.succeed("broker", "list", "--json"))] == [1, 2]
            assert "2 partitions reassigned" in added.out.decode()
            assert leaders(cli, "shared") == [1, 1, 2, 2]
            assert cli.succeed("admin", "alter cluster remove brokers broker-2") == b"removed broker-2\n"
            assert leaders(cli, "shared") == [1, 1, 1, 1]
            read = cli.succeed("consume", "shared", "--from-beginning", "--until-end")
            assert sorted(read.splitlines()) == sorted(values.splitlines())
            assert [broker["broker_id"] for broker in json.loads(cli.succeed("broker", "list", "--json"))] == [1]
            joining.wait_until_stopped(time.monotonic() + 20)  # by itself, and well
        finally:
            joining.kill()


def leaders(cli: Cli, topic: str) -> list[int]:
    """Of the topic's partitions, sorted."""
    described = json.loads(cli.succeed("topic", "describe", topic, "--json"))
    return sorted(partition["leader"] for partition in described["partitions"])
