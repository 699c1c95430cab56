"""Records about what is gone: a decision counts for nothing if the image has not what it is about."""

from __future__ import annotations

import pytest

from tests.unit.controller.cluster import IsrCluster, newest, topic_id
from tidelog.controller.apply import apply
from tidelog.controller.commands import Stamped
from tidelog.controller.records import (
    BrokerFenced,
    BrokersStamped,
    BrokerUnfenced,
    BrokerUnregistered,
    ConfigsAltered,
    GivenUpRange,
    LossAccepted,
    MetadataRecord,
    PartitionChange,
    PartitionRegrouped,
    PartitionsAdded,
    PartitionsChanged,
    TopicDeleted,
    TopicRemoved,
    VoterAssigned,
)

GONE = topic_id("gone")
T = topic_id("t")
LOST = (GivenUpRange(10, 15),)


def changed(topic: str, partition: int) -> PartitionChange:
    return PartitionChange(topic, partition, 2, 7, [2], 9)


def applied(cluster: IsrCluster, record: MetadataRecord) -> bool:
    """True if the image is another for it, apart from its position."""
    before = apply(cluster.image, BrokersStamped([]), cluster.image.position)
    return apply(cluster.image, record, cluster.image.position) != before


@pytest.mark.parametrize(
    ("there", "gone"),
    [
        (TopicDeleted(T), TopicDeleted(GONE)),
        (PartitionsAdded(T, [[1]]), PartitionsAdded(GONE, [[1]])),
        (ConfigsAltered(T, {"retention.ms": "1"}), ConfigsAltered(GONE, {"retention.ms": "1"})),
        (LossAccepted(T, 0, LOST, 1, "op", 1), LossAccepted(GONE, 0, LOST, 1, "op", 1)),
        (LossAccepted(T, 0, LOST, 1, "op", 1), LossAccepted(T, 1, LOST, 1, "op", 1)),
        (PartitionsChanged([changed(T, 0)]), PartitionsChanged([changed(GONE, 0), changed(T, 1)])),
        (PartitionRegrouped(changed(T, 0), 9, 1, "op", 1, 2), PartitionRegrouped(changed(GONE, 0), 9, 1, "op", 1, 2)),
        (PartitionRegrouped(changed(T, 0), 9, 1, "op", 1, 2), PartitionRegrouped(changed(T, 1), 9, 1, "op", 1, 2)),
        (VoterAssigned(1, "disk-1", 9), VoterAssigned(1, "another disk", 1)),
        (VoterAssigned(1, "disk-1", 9), VoterAssigned(9, "disk-9", 1)),
    ],
)
def test_what_is_about_a_topic_a_partition_or_a_disk_that_is_gone_changes_nothing(
    there: MetadataRecord, gone: MetadataRecord
) -> None:
    cluster = IsrCluster()
    assert applied(cluster, there)
    assert not applied(cluster, gone)


@pytest.mark.parametrize("kind", [BrokerFenced, BrokerUnregistered])
def test_an_earlier_life_of_a_broker_is_neither_fenced_nor_removed(
    kind: type[BrokerFenced | BrokerUnregistered],
) -> None:
    cluster = IsrCluster()
    assert applied(cluster, kind(1, newest(cluster.image, 1)))
    assert not applied(cluster, kind(1, newest(cluster.image, 1) - 1))
    assert not applied(cluster, kind(9, newest(cluster.image, 1)))


def test_an_earlier_life_of_a_broker_is_not_unfenced() -> None:
    cluster = IsrCluster()
    cluster.fence(1)
    assert applied(cluster, BrokerUnfenced(1, newest(cluster.image, 1)))
    assert not applied(cluster, BrokerUnfenced(1, newest(cluster.image, 1) - 1))


def test_a_time_mark_of_an_earlier_life_is_not_noted() -> None:
    cluster = IsrCluster()
    epoch = newest(cluster.image, 1)
    assert applied(cluster, BrokersStamped([Stamped(1, epoch, 12)]))
    assert not applied(cluster, BrokersStamped([Stamped(1, epoch - 1, 12), Stamped(9, epoch, 12)]))


def test_a_voter_id_is_used_up_by_a_disk_that_is_gone() -> None:
    cluster = IsrCluster()
    after = apply(cluster.image, VoterAssigned(9, "disk-9", 40), cluster.image.position)
    assert after.next_voter_id == 41


def test_who_holds_nothing_of_a_deleted_topic_holds_up_nobody() -> None:
    cluster = IsrCluster()
    image = apply(cluster.image, TopicDeleted(T), cluster.image.position)
    again = apply(image, TopicRemoved(T, 9), image.position)
    assert again.deleted_topics == image.deleted_topics
    for node in (1, 2, 3):
        again = apply(again, TopicRemoved(T, node), again.position)
    assert not again.deleted_topics
