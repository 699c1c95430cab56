"""Three whole brokers, and a partition's directory that is gone from one of them, while the disk stayed.

What is begun in its place is empty. If it counted as a replica, it would lead and have all others truncate what was
acknowledged, or vote for what contradicts its lost votes.
"""

from __future__ import annotations

import pytest

from tests.integration.replication.three_brokers import NODES, ThreeBrokers, three_brokers, until
from tidelog.broker.broker import NewTopic
from tidelog.model.cluster import COMMIT_PROTOCOL, ISR, PAXOS
from tidelog.model.ids import PartitionId
from tidelog.sim.kit.loop import run
from tidelog.storage.log_manager import log_directory

PROTOCOLS = pytest.mark.parametrize("protocol", [ISR, PAXOS])
FAST = {"replica_lag_time_max_ms": 500}


async def create(cluster: ThreeBrokers, protocol: str, partitions: int = 1) -> PartitionId:
    assignments = dict.fromkeys(range(partitions), NODES)
    topic = NewTopic("t", assignments=assignments, configs={COMMIT_PROTOCOL: protocol})
    placed = await cluster.brokers[1].admin.create_topic(topic)
    return PartitionId(placed.topic_id, 0)


def lose(cluster: ThreeBrokers, node: int, partition_id: PartitionId) -> None:
    """The directory is gone when the broker starts again."""
    directory = log_directory(partition_id)
    assert cluster.disks[node].list(directory)
    cluster.disks[node].remove_tree(directory)
    cluster.disks[node].sync_dir(directory.rpartition("/")[0])


def swap(cluster: ThreeBrokers, node: int, one: PartitionId, other: PartitionId) -> None:
    disk, parent = cluster.disks[node], log_directory(one).rpartition("/")[0]
    disk.rename(log_directory(one), f"{parent}/aside")
    disk.rename(log_directory(other), log_directory(one))
    disk.rename(f"{parent}/aside", log_directory(other))
    disk.sync_dir(parent)


async def write(cluster: ThreeBrokers, count: int, via: int = 1) -> list[bytes]:
    values = [b"%d" % number for number in range(count)]
    for value in values:
        await cluster.produce(via, value)
    return values


@PROTOCOLS
def test_t2_an_empty_replica_and_one_that_is_behind_do_not_go_on_without_the_one_that_has_everything(
    protocol: str,
) -> None:
    async def story() -> None:
        async with three_brokers(**FAST) as cluster:
            partition_id = await create(cluster, protocol)
            await cluster.stop(3)
            await until(lambda: 3 not in cluster.info().isr)
            values = await write(cluster, 6)
            await cluster.stop(1, 2)
            lose(cluster, 1, partition_id)
            await cluster.start(1, 3)
            await cluster.settle()
            assert cluster.info().leader == -1, "nobody who is live has what was acknowledged"
            await cluster.start(2)
            await until(lambda: cluster.info().leader == 2)
            for node in NODES:
                await cluster.until_shown(node, values)
            await until(lambda: sorted(cluster.info().isr) == [1, 2, 3])
            assert await cluster.offset(1, b"more") >= len(values)

    run(story)


@PROTOCOLS
@pytest.mark.parametrize("first", [(1, 2), (1, 3)])
def test_t1_whoever_starts_first_an_empty_replica_does_not_lead(protocol: str, first: tuple[int, int]) -> None:
    async def story() -> None:
        async with three_brokers(**FAST) as cluster:
            partition_id = await create(cluster, protocol)
            values = await write(cluster, 6)
            await until(lambda: sorted(cluster.info().isr) == [1, 2, 3])
            await cluster.stop(2, 3, 1)
            lose(cluster, 1, partition_id)
            await cluster.start(*first)
            await cluster.settle()
            assert cluster.info().leader != 1
            (last,) = [node for node in NODES if node not in first]
            await cluster.start(last)
            for node in NODES:
                await cluster.until_shown(node, values)
            await until(lambda: sorted(cluster.info().isr) == [1, 2, 3])

    run(story)


@PROTOCOLS
def test_a_replica_that_was_filled_again_counts_and_its_second_loss_is_noticed_too(protocol: str) -> None:
    async def story() -> None:
        async with three_brokers(**FAST) as cluster:
            partition_id = await create(cluster, protocol)
            values = await write(cluster, 3)
            for _ in range(2):
                await cluster.stop(1)
                lose(cluster, 1, partition_id)
                await cluster.start(1)
                await cluster.until_shown(1, values)
                await cluster.settle()
                await until(lambda: sorted(cluster.info().isr) == [1, 2, 3])
            await cluster.stop(2)  # only one that was filled again is left, beside another
            values += [b"more"]
            await cluster.produce(1, b"more")
            await cluster.until_shown(1, values)

    run(story)


@PROTOCOLS
def test_directories_that_were_swapped_are_lost_replicas(protocol: str) -> None:
    """A directory lies where another should be: what is in it is set aside."""

    async def story() -> None:
        async with three_brokers(**FAST) as cluster:
            partition_id = await create(cluster, protocol, partitions=2)
            values = await write(cluster, 4)
            await cluster.stop(2, 3, 1)
            swap(cluster, 1, partition_id, PartitionId(partition_id.topic_id, 1))
            await cluster.start(1, 3)
            await cluster.settle()
            assert cluster.info().leader == (3 if protocol == ISR else -1)
            await cluster.start(2)
            for node in NODES:
                await cluster.until_shown(node, values)

    run(story)


@PROTOCOLS
def test_a_replica_that_is_only_new_is_not_lost(protocol: str) -> None:
    """A topic that was created while its brokers' disks could not note that its logs were made."""

    async def story() -> None:
        async with three_brokers(**FAST) as cluster:
            await create(cluster, protocol)
            for node in NODES:
                assert cluster.disks[node].exists("identity.0")
            since = dict(cluster.info().since)
            await cluster.stop(*NODES)
            await cluster.start(*NODES)
            await until(lambda: sorted(cluster.info().isr) == [1, 2, 3])
            assert dict(cluster.info().since) == since

    run(story)
