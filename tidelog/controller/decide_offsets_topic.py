"""Deciding about the topic in which the brokers keep the consumer groups: only the controller makes it, and it decides
all about it, so that brokers with different settings cannot make two of it.

How many replicas? As many as are configured, or as the cluster has brokers. Fenced ones count, and so do voters that
have not registered yet: a cluster that is just starting, or has lost a broker for a moment, would else keep its groups
on too few disks for good. While not enough of them are there, the topic waits for them.
"""

from __future__ import annotations

from tidelog.config.schema import MIB, BrokerConfig
from tidelog.config.values import INT64_MAX
from tidelog.controller.apply import apply_all
from tidelog.controller.commands import CreateOffsetsTopic
from tidelog.controller.decide_topics import assign, check_electable, check_new_id, placed
from tidelog.controller.decision import Decision
from tidelog.controller.records import TopicCreated
from tidelog.model.cluster import COMMIT_PROTOCOL, ClusterImage
from tidelog.model.errors import CoordinatorNotAvailable, InvalidRequest
from tidelog.model.names import OFFSETS_TOPIC

SEGMENT_BYTES = 100 * MIB
"""As Kafka's: what is compacted away leaves the disk by whole segments."""
DECISION_BYTES_MAX = 16 * MIB
"""Of the records that follow from one request, which are one batch: room for a group of 10,000 members."""


def create_offsets_topic(image: ClusterImage, command: CreateOffsetsTopic, config: BrokerConfig) -> Decision:
    """Raises `CoordinatorNotAvailable` while too few brokers are there."""
    known = image.topics.get(OFFSETS_TOPIC)
    if known is not None:
        return Decision(answer=lambda after: placed(after, known))
    check_new_id(image, command.topic_id)
    expected = max(len(image.brokers), len(image.voters))
    factor = min(config.offsets_topic_replication_factor, expected)
    partitions = range(config.offsets_topic_num_partitions)
    try:
        record = TopicCreated(
            OFFSETS_TOPIC, command.topic_id, assign(image, partitions, factor, None), _configs(config)
        )
        check_electable(apply_all(image, (record,), image.position).topics[OFFSETS_TOPIC])
    except InvalidRequest as error:
        raise CoordinatorNotAvailable(f"topic {OFFSETS_TOPIC} cannot be made now: {error.message}") from error
    return Decision((record,), lambda after: placed(after, after.topics[OFFSETS_TOPIC]))


def _configs(config: BrokerConfig) -> dict[str, str]:
    """Whatever the brokers' defaults are, nothing of it may get lost."""
    return {
        COMMIT_PROTOCOL: config.offsets_topic_commit_protocol,
        "cleanup.policy": "compact",
        "segment.bytes": str(SEGMENT_BYTES),
        "max.message.bytes": str(DECISION_BYTES_MAX),
        "message.timestamp.type": "CreateTime",
        "message.timestamp.before.max.ms": str(INT64_MAX),
        "unclean.leader.election.enable": "false",
    }
