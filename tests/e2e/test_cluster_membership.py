"""Brokers that come to a cluster, go, lose their disks, or should not be there: what they and the rest do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.asking import Asked, ask, controller_of, until
from tests.e2e.clusters import ISR, PAXOS, only, running
from tidelog.testing import BrokerFailed, BrokerProcess, LocalCluster
from tidelog.testing.commands import HOST
from tidelog.testing.ports import HeldPorts

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(120)]

SETTINGS = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}

Newcomer = Callable[..., BrokerProcess]


@pytest.fixture(scope="module")
def cluster(protocol: str) -> Iterator[LocalCluster]:
    """Each test leaves its three brokers live."""
    with running(protocol, settings=SETTINGS) as cluster:
        yield cluster


@pytest.fixture
def ports() -> Iterator[HeldPorts]:
    held = HeldPorts()
    yield held
    held.release()


@pytest.fixture
def newcomer(tmp_path: Path, ports: HeldPorts) -> Iterator[Newcomer]:
    """Makes processes that are no part of a `LocalCluster`, and ends them."""
    with ExitStack() as stack:

        def make(node_id: int, settings: Mapping[str, str], peer_port: int = 0) -> BrokerProcess:
            http, peer = ports.take(2)
            where = tmp_path / f"newcomer-{node_id}"
            both = {**SETTINGS, **settings}
            made = BrokerProcess(node_id, where, both, http=f"{HOST}:{http}", peer=f"{HOST}:{peer_port or peer}")
            stack.callback(made.kill)
            return made

        yield make


def voters_of(cluster: LocalCluster) -> str:
    """`cluster.voters`, as the cluster's own brokers have it."""
    [setting] = [word for word in cluster.broker(1).command if word.startswith("cluster.voters=")]
    return setting.removeprefix("cluster.voters=")


def refusal(broker: BrokerProcess) -> str:
    """Returns what a broker says that does not start."""
    with pytest.raises(BrokerFailed, match="exit status 1"):
        broker.start()
    assert "Traceback" not in broker.output
    return broker.output.splitlines()[-1]


def is_live(cluster: LocalCluster, node_id: int) -> bool:
    return all(Asked(cluster, asked).brokers.get(node_id) is True for asked in cluster.node_ids)


def removed(asked: Asked, node_id: int) -> bool:
    return ask(f"{asked.v3}/brokers/{node_id}", method="DELETE").status == 204 and node_id not in asked.brokers


def test_two_brokers_join_take_part_and_leave(cluster: LocalCluster, newcomer: Newcomer) -> None:
    first = Asked(cluster, 1)
    fourth = newcomer(4, {"cluster.join": cluster.broker(2).url})
    fifth = newcomer(5, {"cluster.voters": voters_of(cluster)})
    for joining in (fourth, fifth):
        joining.start()
        assert joining.cluster_id == cluster.cluster_id
    assert first.brokers == dict.fromkeys(range(1, 6), True)
    assert sorted(first.voters) == [1, 2, 3], "three are enough"
    assert first.create("spread", partitions=5).status == 201
    assert sorted(first.leaders("spread")) == [1, 2, 3, 4, 5]
    at_fourth = first.leaders("spread").index(4)
    assert first.produce("spread", at_fourth, "here").body["offsets"][0]["acked_by"] == [4]
    refused = ask(f"{first.v3}/brokers/4", method="DELETE")
    assert refused.status == 400 and "spread" in refused.body["message"]
    fourth.stop()
    cluster.stop(2)
    fourth.start()  # it belongs to the cluster now, and does not need the broker by which it joined
    cluster.restart(2)
    until(lambda: is_live(cluster, 4))
    assert first.values("spread", at_fourth) == ["here"]
    assert ask(f"{first.v3}/topics/spread", method="DELETE").status == 204
    for leaving in (fourth, fifth):
        assert removed(first, leaving.node_id)
        leaving.wait_until_stopped(time.monotonic() + 20)  # by itself, and well
    assert first.brokers == {1: True, 2: True, 3: True}


def test_a_broker_that_was_removed_joins_anew(cluster: LocalCluster, newcomer: Newcomer) -> None:
    joining = newcomer(6, {"cluster.join": cluster.broker(3).url})
    joining.start()
    assert removed(Asked(cluster, 2), 6)
    joining.wait_until_stopped(time.monotonic() + 20)
    joining.start()
    until(lambda: is_live(cluster, 6))
    assert removed(Asked(cluster, 2), 6)


def test_a_voter_whose_disk_was_replaced_votes_under_another_id(cluster: LocalCluster) -> None:
    controller = controller_of(cluster)
    victim = next(node_id for node_id in cluster.node_ids if node_id != controller)
    witness = Asked(cluster, controller)
    before = witness.voters
    cluster.wipe(victim)
    cluster.restart(victim)
    until(lambda: sorted(witness.voters) == [1, 2, 3] and witness.voters[victim] > max(before.values()))
    until(lambda: is_live(cluster, victim))
    until(lambda: Asked(cluster, victim).voters == witness.voters)
    assert {node: witness.voters[node] for node in before if node != victim} == {
        node: before[node] for node in before if node != victim
    }


def test_the_controllers_disk_is_replaced(cluster: LocalCluster) -> None:
    controller = controller_of(cluster)
    witness = Asked(cluster, next(node_id for node_id in cluster.node_ids if node_id != controller))
    topics, before = witness.topics, witness.voters
    cluster.wipe(controller)
    cluster.restart(controller)
    until(lambda: sorted(witness.voters) == [1, 2, 3] and witness.voters[controller] > max(before.values()))
    until(lambda: is_live(cluster, controller))
    assert Asked(cluster, controller).topics == topics


def test_the_controller_is_killed_while_a_voter_is_replaced(cluster: LocalCluster) -> None:
    controller = controller_of(cluster)
    victim, third = [node_id for node_id in cluster.node_ids if node_id != controller]
    before = Asked(cluster, third).voters[victim]
    cluster.wipe(victim)
    cluster.broker(victim).begin()
    until(lambda: Asked(cluster, third).brokers[victim] is False)  # it is gone, or has registered just now
    cluster.kill(controller)
    cluster.restart(controller)
    cluster.broker(victim).wait_until_ready(time.monotonic() + 30)
    asked = [Asked(cluster, node_id) for node_id in cluster.node_ids]
    until(lambda: all(each.voters.get(victim, 0) > before and sorted(each.voters) == [1, 2, 3] for each in asked))
    until(lambda: all(is_live(cluster, node_id) for node_id in cluster.node_ids))


def test_a_broker_joins_while_the_controller_is_killed(cluster: LocalCluster, newcomer: Newcomer) -> None:
    controller = controller_of(cluster)
    other = next(node_id for node_id in cluster.node_ids if node_id != controller)
    joining = newcomer(7, {"cluster.join": cluster.broker(other).url})
    joining.begin()
    cluster.kill(controller)
    joining.wait_until_ready(time.monotonic() + 30)
    cluster.restart(controller)
    until(lambda: all(is_live(cluster, node_id) for node_id in (*cluster.node_ids, 7)))
    assert removed(Asked(cluster, other), 7)


def test_a_broker_without_a_vote_loses_its_disk(cluster: LocalCluster, newcomer: Newcomer) -> None:
    joining = newcomer(4, {"cluster.join": cluster.broker(1).url})
    joining.start()
    joining.wipe()
    joining.start()
    until(lambda: is_live(cluster, 4))
    assert sorted(Asked(cluster, 1).voters) == [1, 2, 3]
    assert removed(Asked(cluster, 1), 4)


def test_the_controller_is_removed_and_somebody_else_takes_its_vote(newcomer: Newcomer) -> None:
    with LocalCluster(brokers=3, settings=SETTINGS) as own:
        fourth = newcomer(4, {"cluster.join": own.broker(1).url})
        fourth.start()
        controller = controller_of(own)
        asked = Asked(own, next(node_id for node_id in own.node_ids if node_id != controller))
        assert removed(asked, controller)
        own.broker(controller).wait_until_stopped(time.monotonic() + 20)
        until(lambda: 4 in asked.voters and controller not in asked.voters)
        until(lambda: asked.controller not in {0, controller})
        assert asked.create("afterwards", partitions=3).status == 201
        assert controller not in asked.leaders("afterwards")


@only(ISR, PAXOS)  # all topics go
def test_who_would_break_the_majority_stays(cluster: LocalCluster) -> None:
    controller = controller_of(cluster)
    away, other = [node_id for node_id in cluster.node_ids if node_id != controller]
    asked = Asked(cluster, controller)
    for topic in asked.topics:
        assert ask(f"{asked.v3}/topics/{topic}", method="DELETE").status == 204
    cluster.stop(away)
    refused = ask(f"{asked.v3}/brokers/{other}", method="DELETE")
    assert refused.status == 400 and "majority" in refused.body["message"]
    cluster.restart(away)
    until(lambda: is_live(cluster, away))


def test_a_node_id_that_is_taken_is_refused_and_its_owner_goes_on(cluster: LocalCluster, newcomer: Newcomer) -> None:
    impostor = newcomer(2, {"cluster.join": cluster.broker(1).url})
    line = refusal(impostor)
    assert "node" in line and "2" in line, line
    assert is_live(cluster, 2)
    assert Asked(cluster, 2).create("by-its-owner").status == 201


@pytest.mark.parametrize("setting", ["cluster.voters", "cluster.join"])
def test_the_data_of_another_cluster_is_refused(cluster: LocalCluster, newcomer: Newcomer, setting: str) -> None:
    alone = newcomer(4, {})
    alone.start()
    alone.stop()
    named = {"cluster.voters": voters_of(cluster), "cluster.join": cluster.broker(1).url}
    line = refusal(newcomer(4, {setting: named[setting]}))
    assert alone.cluster_id in line and cluster.cluster_id in line, line
    assert Asked(cluster, 1).brokers == {1: True, 2: True, 3: True}
    alone.start()  # nothing was done to its data
    assert alone.cluster_id in line


def test_voters_that_are_named_differently_found_nothing(newcomer: Newcomer, ports: HeldPorts) -> None:
    one, two, three = ports.take(3)
    two_named = f"1@{HOST}:{one},2@{HOST}:{two}"
    left = newcomer(1, {"cluster.voters": two_named}, one)
    right = newcomer(2, {"cluster.voters": f"{two_named},3@{HOST}:{three}"}, two)
    for broker in (left, right):
        broker.begin()
    until(lambda: not (left.is_running and right.is_running))  # whoever sees it first; the other one waits
    assert "error: cluster.voters differs" in left.output + right.output
    assert "Traceback" not in left.output + right.output


def test_a_rack_on_some_brokers_only(cluster: LocalCluster, newcomer: Newcomer) -> None:
    joining = newcomer(4, {"cluster.join": cluster.broker(1).url, "broker.rack": "r1"})
    joining.start()
    asked = Asked(cluster, 1)
    created = asked.create("racked", partitions=4, replicas=2)
    assert created.status == 400 and "rack" in created.body["message"], created
    assert removed(asked, 4)
