"""Topics as `GET /metadata` returns them, encoded as JSON once and cached until the topic changes.

After a broker is lost all clients ask at once, and encoding a topic of a thousand partitions takes a millisecond.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Raw, Struct, json

from tidelog.model.cluster import ClusterImage, Topic
from tidelog.model.steps import Steps

SLICE_PARTITIONS: Final = 2_000
"""The number of partitions that are encoded before other requests have their turn: some 3 ms of work."""


class PartitionVoterShown(Struct, frozen=True):
    """A broker's disk that votes in the log of a partition with `commit.protocol=paxos`. An id names one disk for ever:
    a disk that has lost its promises votes again under another id.
    """

    broker_id: int
    voter_id: int


class PartitionShown(Struct, frozen=True):
    """The replicas of a partition; `leader` is -1 while there is none. `elr` are eligible leader replicas (KIP-966).
    With `commit.protocol=paxos`, `isr` are the live voters, and `voters` all voters.
    """

    partition: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    elr: list[int]
    voters: list[PartitionVoterShown]


class TopicShown(Struct, frozen=True):
    """A topic; `partitions` are sorted by number. `commit_order` is its setting `commit.order`."""

    name: str
    topic_id: str
    protocol: str
    is_internal: bool
    commit_order: str
    partitions: list[PartitionShown]


class TopicTexts:
    """The encoded topics of one listener. A topic is encoded again after each change, when its object in the image
    differs.
    """

    def __init__(self) -> None:
        self._texts: dict[str, tuple[Topic, Raw]] = {}

    def of(self, image: ClusterImage, names: Iterable[str]) -> Steps[list[Raw]]:
        """Returns the JSON of the topics among `names` that exist, in the order of `names`. Other requests have their
        turn after each `SLICE_PARTITIONS` encoded partitions.
        """
        texts: list[Raw] = []
        written = 0
        for topic in [image.topics[name] for name in names if name in image.topics]:
            topic_written, text = self._texts.get(topic.name, (None, Raw()))
            if topic_written is not topic:
                if written >= SLICE_PARTITIONS:
                    yield None
                    written = 0
                text = Raw(json.encode(shown(topic)))
                self._texts[topic.name] = topic, text
                written += len(topic.partitions)
            texts.append(text)
        for name in [name for name in self._texts if name not in image.topics] if written else ():
            del self._texts[name]
        return texts


def shown(topic: Topic) -> TopicShown:
    partitions = [
        PartitionShown(
            info.partition,
            info.leader,
            info.leader_epoch,
            list(info.replicas),
            list(info.isr),
            list(info.elr),
            [PartitionVoterShown(member.node_id, member.engine_id) for member in info.members],
        )
        for info in topic.partitions
    ]
    return TopicShown(
        topic.name, topic.topic_id, topic.commit_protocol, topic.is_internal, topic.commit_order, partitions
    )
