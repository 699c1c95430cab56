"""The controller's core: decisions look and do not touch, records alone change the image."""

from __future__ import annotations

from tidelog.broker.controller.records import (
    AnyRecord,
    BrokerRegistered,
    ClusterCreated,
    ConfigsAltered,
    PartitionsAdded,
    ProducerIdsAllocated,
    TopicCreated,
    TopicDeleted,
    TopicRemoved,
    decode_record,
    encode_record,
)
from tidelog.broker.controller.state import NewTopic, apply, decide_add_partitions, decide_create_topic
from tidelog.model.cluster import ClusterImage
from tidelog.model.ids import TopicId

ID = TopicId("ab" * 16)
HISTORY: list[AnyRecord] = [
    ClusterCreated("c1"),
    *(BrokerRegistered(node, f"i{node}", "127.0.0.1", 8081 + node, None) for node in (1, 2, 3, 4, 5)),
    TopicCreated("t", ID, [[1], [2]], {"retention.ms": "1"}),
    PartitionsAdded(ID, [[3]]),
    ConfigsAltered(ID, {"retention.ms": None, "segment.bytes": "2048"}),
    ProducerIdsAllocated(1000),
]


def image_after(records: list[AnyRecord]) -> ClusterImage:
    image = ClusterImage("")
    for position, record in enumerate(records):
        image = apply(image, record, position)
    return image


def test_the_image_is_what_the_records_say() -> None:
    image = image_after(HISTORY)
    assert (image.cluster_id, image.position, image.next_producer_id) == ("c1", len(HISTORY), 1000)
    assert list(image.brokers) == [1, 2, 3, 4, 5]
    topic = image.topics["t"]
    assert [info.leader for info in topic.partitions] == [1, 2, 3]
    assert topic.configs == {"segment.bytes": "2048"}


def test_records_come_back_from_the_log_as_they_were() -> None:
    assert [decode_record(encode_record(record)) for record in HISTORY] == HISTORY


def test_a_registration_starts_a_new_epoch_of_what_the_broker_leads_and_of_nothing_else() -> None:
    before = image_after(HISTORY)
    after = apply(before, BrokerRegistered(2, "again", "127.0.0.1", 9000, "r1"), before.position)
    assert [info.leader_epoch for info in after.topics["t"].partitions] == [0, 1, 0]
    assert (after.brokers[before.topics["t"].partitions[1].leader].epoch) == before.position


def test_a_deleted_topic_is_gone_but_its_directory_is_remembered_until_it_is_removed() -> None:
    deleted = image_after([*HISTORY, TopicDeleted(ID)])
    assert (dict(deleted.topics), deleted.deleted_topics) == ({}, {ID: ()})
    assert apply(deleted, TopicRemoved(ID), deleted.position).deleted_topics == {}


def test_new_topics_start_on_the_broker_that_leads_the_fewest() -> None:
    image = image_after(HISTORY)
    created = decide_create_topic(image, NewTopic("u"), TopicId("cd" * 16), partitions=5, replication_factor=3)
    assert [replicas[0] for replicas in created.assignments] == [4, 5, 1, 2, 3]
    assert created.assignments[0] == [4, 5, 1]


def test_more_partitions_go_on_where_the_topic_was() -> None:
    assert decide_add_partitions(image_after(HISTORY), "t", 7).assignments == [[4], [5], [1], [2]]
