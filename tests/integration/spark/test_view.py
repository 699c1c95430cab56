"""What a query's driver sees, of a real broker."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from tidelog.admin import AdminClient
from tidelog.model.batch_codec import encode_batch
from tidelog.model.ids import TopicPartition
from tidelog.spark.cluster import BATCHES_HEADERS, Cluster
from tidelog.spark.options import Selection
from tidelog.spark.view import ClusterView, Extent
from tidelog.testing import LocalCluster

pytestmark = pytest.mark.process
_numbers = count()


def change(broker: LocalCluster, *, create: str | None = None, delete: str | None = None) -> None:
    async def ask() -> None:
        async with AdminClient(broker.bootstrap) as admin:
            if create is not None:
                await admin.create_topic(create, partitions=2, configs={"retention.ms": "-1"})
            if delete is not None:
                await admin.delete_topic(delete)

    asyncio.run(ask())


@pytest.fixture
def topic(broker: LocalCluster, cluster: Cluster) -> str:
    """Ten records in partition 0, of 1000 bytes and a second each, from second 100 on."""
    name = f"view-{next(_numbers)}"
    change(broker, create=name)
    data = encode_batch([(1000 * (100 + number), None, bytes(1000)) for number in range(10)])
    cluster.send("POST", broker.bootstrap, f"/topics/{name}/partitions/0/batches", body=data, headers=BATCHES_HEADERS)
    return name


def test_a_snapshot(broker: LocalCluster, cluster: Cluster, topic: str) -> None:
    view = ClusterView(cluster)
    whole = view.snapshot(Selection(topics=(topic, "nowhere")), {})
    assert whole.extents == {TopicPartition(topic, 0): Extent(0, 10), TopicPartition(topic, 1): Extent(0, 0)}
    assert list(whole.topic_ids) == [topic]
    assert whole.leaders[TopicPartition(topic, 0)] == broker.bootstrap
    assert view.snapshot(Selection(pattern=f"{topic[:-1]}.*"), {}).topic_ids.keys() >= {topic}
    assert [*view.snapshot(Selection(assigned={topic: (1,)}), {}).extents] == [TopicPartition(topic, 1)]


def test_times_sizes_and_news(cluster: Cluster, topic: str) -> None:
    view = ClusterView(cluster)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert view.first_since({first: 102_500, second: 0}) == {first: 3, second: None}
    assert view.first_since({first: 110_000}) == {first: None}
    sizes = view.record_bytes({first: 4, second: 0})
    assert 1000 < sizes[first] < 1030
    assert sizes[second] == 1.0
    view.wait_for_records({first: 9}, 30_000)  # it ends elsewhere, so this returns


def test_a_topic_that_is_deleted_is_not_seen(broker: LocalCluster, cluster: Cluster, topic: str) -> None:
    change(broker, delete=topic)
    found = ClusterView(cluster).snapshot(Selection(topics=(topic,)), {TopicPartition(topic, 0): 10})
    assert (found.extents, found.topic_ids) == ({}, {})


def test_an_end_that_does_not_come_is_told_as_it_is(broker: LocalCluster, topic: str) -> None:
    impatient = Cluster([broker.bootstrap], timeout_s=0.2)
    found = ClusterView(impatient).snapshot(Selection(topics=(topic,)), {TopicPartition(topic, 0): 11})
    impatient.close()
    assert found.extents[TopicPartition(topic, 0)].end == 10
