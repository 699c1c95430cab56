"""A cluster of three real brokers whose processes are killed and paused: it answers in time, and forgets nothing."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e.asking import ANSWER_S_MAX, JSON_RECORDS, Asked, ask, controller_of, until
from tests.e2e.clusters import running
from tidelog.testing import LocalCluster

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(120)]

SESSION_MS = 3_000


@pytest.fixture(scope="module")
def cluster(protocol: str) -> Iterator[LocalCluster]:
    """Each test leaves it whole."""
    settings = {"broker.session.timeout.ms": str(SESSION_MS), "broker.heartbeat.interval.ms": "500"}
    with running(protocol, settings=settings) as cluster:
        yield cluster


def others(cluster: LocalCluster, *node_ids: int) -> list[int]:
    return [node_id for node_id in cluster.node_ids if node_id not in node_ids]


def whole(cluster: LocalCluster) -> bool:
    """True if every broker knows every broker to be live."""
    live = dict.fromkeys(cluster.node_ids, True)
    return all(Asked(cluster, node_id).brokers == live for node_id in cluster.node_ids)


@pytest.mark.parametrize("topic", ["after-one-kill", "after-another"])
def test_the_controller_is_killed_and_the_next_one_knows_what_it_knew(cluster: LocalCluster, topic: str) -> None:
    controller = controller_of(cluster)
    before = Asked(cluster, 1).topics
    [left, right] = [Asked(cluster, node_id) for node_id in others(cluster, controller)]
    cluster.kill(controller)
    assert left.create(topic, replicas=2).status == 201
    until(lambda: left.topics == right.topics == sorted([*before, topic]))
    until(lambda: left.controller == right.controller != controller)
    cluster.restart(controller)
    until(lambda: whole(cluster))
    assert Asked(cluster, controller).topics == left.topics
    assert controller_of(cluster) != controller


def test_without_a_majority_requests_are_refused_in_time_and_all_goes_on_afterwards(cluster: LocalCluster) -> None:
    first = Asked(cluster, 1)
    assert first.create("spread", partitions=3).status == 201
    leaders = first.leaders("spread")
    assert sorted(leaders) == [1, 2, 3]
    for partition in range(3):
        first.append("spread", partition, "before")
    cluster.kill(2, 3)
    refused = first.create("never")
    assert refused.status in {503, 504} and refused.seconds < ANSWER_S_MAX
    mine, dead = leaders.index(1), leaders.index(2)
    kept = ["before"]
    while (answer := first.produce("spread", mine, "meanwhile")).status == 200:
        kept.append("meanwhile")
    assert answer.status == 503, "nobody tells it any more that it leads"
    copy = ask(f"{first.url}/topics/spread/partitions/{mine}/records?offset=0&replica=local", media=JSON_RECORDS)
    assert [record["value"] for record in copy.body] == kept, "and what it has can be read"
    lost = first.produce("spread", dead, "nobody is there", timeout_ms=1_000)
    assert lost.status in {503, 504} and lost.seconds < ANSWER_S_MAX
    assert first.controller == 0, "nobody decides"
    cluster.restart(2, 3)
    until(lambda: whole(cluster))
    for node_id in cluster.node_ids:
        asked = Asked(cluster, node_id)
        assert asked.leaders("spread") == leaders
        assert asked.values("spread", mine) == kept
        assert asked.values("spread", dead)[:1] == ["before"]
    assert Asked(cluster, 3).create("after-all").status == 201


def test_a_controller_that_was_paused_decides_no_more(cluster: LocalCluster) -> None:
    """A topic is asked of it while it sleeps, and of the others, in another shape: theirs is the one that counts."""
    controller = controller_of(cluster)
    asleep = Asked(cluster, controller)
    [left, right] = [Asked(cluster, node_id) for node_id in others(cluster, controller)]
    cluster.pause(controller)
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(asleep.create, "contested", partitions=1)
        decided = left.create("contested", partitions=2)
        assert decided.status == 201 and decided.seconds < ANSWER_S_MAX / 3
        until(lambda: left.controller == right.controller != controller)
        cluster.resume(controller)
        assert late.result().status in {400, 504}, "the topic is there, or was when the outcome was no longer known"
    until(lambda: whole(cluster))
    assert controller_of(cluster) != controller
    assert {len(asked.leaders("contested")) for asked in (left, right, asleep)} == {2}


def test_a_broker_paused_for_longer_than_its_session_is_fenced_and_comes_back(cluster: LocalCluster) -> None:
    controller = controller_of(cluster)
    sleeper = others(cluster, controller)[0]
    asked = Asked(cluster, controller)
    cluster.pause(sleeper)
    until(lambda: asked.brokers[sleeper] is False)
    cluster.resume(sleeper)
    until(lambda: whole(cluster))


def test_all_are_stopped_and_started_at_one_time(cluster: LocalCluster) -> None:
    before = {node_id: (Asked(cluster, node_id).topics, Asked(cluster, node_id).voters) for node_id in cluster.node_ids}
    assert len({str(known) for known in before.values()}) == 1
    identity = cluster.cluster_id
    cluster.restart(*cluster.node_ids)
    until(lambda: whole(cluster))
    assert cluster.cluster_id == identity
    assert {n: (Asked(cluster, n).topics, Asked(cluster, n).voters) for n in cluster.node_ids} == before


def test_all_are_killed_and_started_at_one_time(cluster: LocalCluster) -> None:
    assert Asked(cluster, 2).create("just-before").status == 201
    topics = Asked(cluster, 2).topics
    cluster.kill(*cluster.node_ids)
    cluster.restart(*cluster.node_ids)
    until(lambda: whole(cluster))
    assert all(Asked(cluster, node_id).topics == topics for node_id in cluster.node_ids)


def test_more_replicas_than_brokers_are_refused(cluster: LocalCluster) -> None:
    for node_id in cluster.node_ids:
        refused = Asked(cluster, node_id).create("wide", replicas=4)
        assert (refused.status, refused.code) == (400, 40002)
        assert "4" in refused.body["message"] and "3" in refused.body["message"]
