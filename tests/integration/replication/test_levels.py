"""Three whole brokers of different feature levels, on simulated disks and network and in virtual time."""

from __future__ import annotations

import pytest

from tests.integration.replication.three_brokers import NODES, ThreeBrokers, until
from tidelog.broker.broker import NewTopic
from tidelog.model.errors import UnsupportedLevel
from tidelog.model.ids import NodeId
from tidelog.model.levels import LEVEL_MAX, SPOKEN_LEVELS, LevelRange
from tidelog.sim.kit.loop import run

MAX = "feature.level.max"
SNAPSHOTS = {"metadata.log.snapshot.records": 20}


async def settle(cluster: ThreeBrokers) -> None:
    """Everybody has applied all that is decided."""
    await until(lambda: len({one.image.position for one in cluster.brokers.values()}) == 1)


async def upgrade(cluster: ThreeBrokers, node: int, level: int) -> None:
    await cluster.stop(node)
    cluster.of_node[node] = {MAX: level}
    await cluster.start(node)
    await until(lambda: all(one.image.is_live(node) for one in cluster.brokers.values()))


@pytest.mark.parametrize("oldest", NODES)
def test_a_cluster_begins_at_the_level_that_its_founders_have_in_common(oldest: int) -> None:
    async def story() -> None:
        cluster = ThreeBrokers({})
        cluster.of_node[oldest] = {MAX: 1}
        await cluster.start(*NODES)
        assert {one.image.level for one in cluster.brokers.values()} == {1}
        await cluster.stop(*NODES)

    run(story)


def test_a_cluster_of_one_version_begins_at_its_highest_level() -> None:
    async def story() -> None:
        cluster = ThreeBrokers({})
        await cluster.start(*NODES)
        assert {one.image.level for one in cluster.brokers.values()} == {LEVEL_MAX}
        assert {broker.levels for broker in cluster.brokers[1].image.brokers.values()} == {SPOKEN_LEVELS}
        await cluster.stop(*NODES)

    run(story)


def test_every_broker_in_turn_and_back_and_then_the_cluster() -> None:
    async def story() -> None:
        cluster = ThreeBrokers(SNAPSHOTS)
        cluster.of_node.update({node: {MAX: 1} for node in NODES})
        await cluster.start(*NODES)
        await cluster.brokers[1].admin.create_topic(NewTopic("t", replication_factor=3))
        for node in (1, 2):
            await upgrade(cluster, node, 2)
            await cluster.produce(cluster.info().leader, b"value")
        with pytest.raises(UnsupportedLevel):
            await cluster.brokers[1].admin.raise_level()
        await upgrade(cluster, 2, 1)
        for node in (2, 3):
            await upgrade(cluster, node, 2)
        answer = await cluster.brokers[3].admin.raise_level()
        assert (answer.before, answer.level) == (1, 2)
        await settle(cluster)
        assert {one.image.level for one in cluster.brokers.values()} == {2}
        assert {broker.levels for broker in cluster.brokers[1].image.brokers.values()} == {LevelRange(1, 2)}
        for _ in range(30):  # a snapshot is taken at the new level
            await cluster.brokers[1].admin.alter_topic_configs("t", {"min.insync.racks": "1"})
            await cluster.brokers[1].admin.alter_topic_configs("t", {"min.insync.racks": None})
        await until(lambda: all(one.image.snapshot_agreed > 0 for one in cluster.brokers.values()))
        await cluster.stop(*NODES)
        await cluster.start(*NODES)
        assert {one.image.level for one in cluster.brokers.values()} == {2}
        await cluster.stop(*NODES)

    run(story)


def test_a_broker_that_missed_the_upgrade_and_is_too_old_stays_out() -> None:
    async def story() -> None:
        cluster = ThreeBrokers({})
        await cluster.start(*NODES)
        await cluster.stop(3)
        cluster.of_node[3] = {MAX: 1}
        with pytest.raises(AssertionError, match="broker 3 failed"):
            await cluster.start(3)
        assert not cluster.brokers[1].image.is_live(NodeId(3))
        await cluster.stop(3)
        cluster.of_node.clear()
        await cluster.start(3)
        await cluster.stop(*NODES)

    run(story)
