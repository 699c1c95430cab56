"""Topics as the metadata shows them: written when they change, and in slices where there are many."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from tidelog.broker.http.topic_texts import SLICE_PARTITIONS, TopicShown, TopicTexts
from tidelog.model.cluster import ClusterImage, PartitionInfo, Topic
from tidelog.model.ids import NodeId, TopicId
from tidelog.model.steps import drive

ONE = NodeId(1)


def topic(name: str, partitions: int = 2, leader: NodeId = ONE) -> Topic:
    infos = tuple(PartitionInfo(number, leader, 1, (ONE,), (ONE,)) for number in range(partitions))
    return Topic(name, TopicId(name * 32), {}, infos)


def image_of(*topics: Topic) -> ClusterImage:
    return ClusterImage("c", topics={one.name: one for one in topics})


def test_a_text_is_that_of_the_topic_as_it_is_now() -> None:
    texts, first = TopicTexts(), topic("t")
    [before] = drive(texts.of(image_of(first, topic("u")), ["t", "nobody"]))
    assert [one.leader for one in msgspec.json.decode(before, type=TopicShown).partitions] == [1, 1]
    [again] = drive(texts.of(image_of(first), ["t"]))
    assert again is before, "nothing has changed"
    [after] = drive(texts.of(image_of(topic("t", leader=NodeId(2))), ["t"]))
    assert [one.leader for one in msgspec.json.decode(after, type=TopicShown).partitions] == [2, 2]


def test_a_topic_made_anew_under_a_name_is_another() -> None:
    texts, old = TopicTexts(), topic("t")
    drive(texts.of(image_of(old), ["t"]))
    [text] = drive(texts.of(image_of(replace(old, topic_id=TopicId("n" * 32))), ["t"]))
    assert msgspec.json.decode(text, type=TopicShown).topic_id == "n" * 32


def test_many_partitions_are_written_in_slices_and_deleted_topics_are_forgotten() -> None:
    texts = TopicTexts()
    topics = [topic(name, SLICE_PARTITIONS) for name in "abcde"]
    assert sum(1 for _ in texts.of(image_of(*topics), "abcde")) == 4
    drive(texts.of(image_of(topic("f")), ["f"]))
    assert list(texts._texts) == ["f"]
