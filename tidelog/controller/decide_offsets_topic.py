"""Decisions about internal topics (consumer groups' offsets, the audit log): only the controller creates them, with its
own settings, so that brokers with different settings cannot create two.

The replication factor is the configured one, or the number of brokers if that is less. Fenced brokers count, and so do
voters that have not registered yet: a cluster that is just starting, or has lost a broker for a moment, would otherwise
keep its groups on too few disks for good. While too few of them are live, the topic is not created.
"""

from __future__ import annotations

from tidelog.config.schema import BrokerConfig
from tidelog.config.settings.base import MIB
from tidelog.config.values import INT64_MAX
from tidelog.controller.apply import apply_all
from tidelog.controller.commands import CreateOffsetsTopic
from tidelog.controller.decide_topics import assign, check_electable, check_new_id, placed
from tidelog.controller.decision import Decision
from tidelog.controller.records import TopicCreated
from tidelog.model.cluster import COMMIT_PROTOCOL, ClusterImage
from tidelog.model.errors import CoordinatorNotAvailable, InvalidRequest, LeaderNotAvailable
from tidelog.model.names import AUDIT_TOPIC, OFFSETS_TOPIC

OWN_TOPICS = (OFFSETS_TOPIC, AUDIT_TOPIC)
AUDIT_PARTITIONS = 1
"""The number of partitions of the audit topic: one, so that its lines have one order. A broker writes at most a hundred
denials a second."""
SEGMENT_BYTES = 100 * MIB
"""The segment size in bytes, as in Kafka: compaction frees disk space by whole segments."""
DECISION_BYTES_MAX = 16 * MIB
"""The largest batch in bytes (`max.message.bytes`): the records of one request, with room for a group of 10,000
members."""


def create_offsets_topic(image: ClusterImage, command: CreateOffsetsTopic, config: BrokerConfig) -> Decision:
    """Creates an internal topic. Raises `CoordinatorNotAvailable` while too few brokers are live; `InvalidRequest` if
    the name is no internal topic's."""
    name = command.name
    if name not in OWN_TOPICS:
        raise InvalidRequest(f"brokers have no topic {name[:80]!r}")
    existing = image.topics.get(name)
    if existing is not None:
        return Decision(answer=lambda after: placed(after, existing))
    check_new_id(image, command.topic_id)
    # Fenced brokers and voters that have yet to register count: counted by the live ones alone, a topic that is made
    # while the cluster starts would have too few replicas for good.
    expected = max(len(image.brokers), len(image.voters))
    factor = min(config.offsets_topic_replication_factor, expected)
    partitions = range(config.offsets_topic_num_partitions if name == OFFSETS_TOPIC else AUDIT_PARTITIONS)
    try:
        configs = _offsets_configs(config) if name == OFFSETS_TOPIC else _audit_configs(config)
        record = TopicCreated(name, command.topic_id, assign(image, partitions, factor, None), configs)
        check_electable(apply_all(image, (record,), image.position).topics[name])
    except (InvalidRequest, LeaderNotAvailable) as error:
        # What is a client's mistake elsewhere is here a cluster that is not complete yet; the coordinator asks again.
        raise CoordinatorNotAvailable(f"topic {name} cannot be made now: {error.message}") from error
    return Decision((record,), lambda after: placed(after, after.topics[name]))


def _audit_configs(config: BrokerConfig) -> dict[str, str]:
    """Returns, by name, the audit topic's settings that differ from users' topics; its retention is left to the
    operator."""
    return {**_configs(config), "cleanup.policy": "delete", "max.message.bytes": str(MIB)}


def _offsets_configs(config: BrokerConfig) -> dict[str, str]:
    """Returns, by name, the settings of the offsets topic, which keep it from losing records whatever the brokers'
    defaults are."""
    return {
        **_configs(config),
        "cleanup.policy": "compact",
        "segment.bytes": str(SEGMENT_BYTES),
        "max.message.bytes": str(DECISION_BYTES_MAX),
    }


def _configs(config: BrokerConfig) -> dict[str, str]:
    """Returns, by name, the settings that all internal topics have."""
    return {
        COMMIT_PROTOCOL: config.offsets_topic_commit_protocol,
        "message.timestamp.type": "CreateTime",
        "message.timestamp.before.max.ms": str(INT64_MAX),
        "unclean.leader.election.enable": "false",
    }
