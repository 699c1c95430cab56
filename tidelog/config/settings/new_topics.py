"""Settings of new topics, for what the creator of a topic leaves out."""

from __future__ import annotations

from tidelog.config.settings.base import Settings, setting
from tidelog.config.values import Boolean, Count, Never

REPLICATION_FACTOR_MAX = 3
"""Maximum number of replicas of a new topic if `default.replication.factor` is not set; there are fewer if the cluster
has fewer brokers."""


class NewTopicSettings(Settings):
    """Settings of new topics."""

    num_partitions: Count = setting("num.partitions", 1, "Partitions of a topic that is created without a number.")
    default_replication_factor: Count | None = setting(
        "default.replication.factor",
        None,
        "Replicas of a topic that is created without a number. Default: 3, or as many as there are brokers if those "
        "are fewer. (Kafka: 1, which loses data with the first disk.)",
    )
    auto_create_topics_enable: Never = setting(
        "auto.create.topics.enable",
        False,
        "Always false: a topic is never created because somebody wrote to it or asked for it. (Kafka: true, which "
        "turns a misspelt name into a topic.)",
    )
    delete_topic_enable: Boolean = setting("delete.topic.enable", True, "Whether topics can be deleted.")
    topics_max: Count = setting("topics.max", 10_000, "The most topics that the cluster may have. (Kafka: no limit.)")
    topic_partitions_max: Count = setting(
        "topic.partitions.max", 10_000, "The most partitions that a topic may have. (Kafka: no limit.)"
    )
    request_partitions_max: Count = setting(
        "request.partitions.max",
        10_000,
        "The most partitions that one request may make, of a new topic or of one that grows. (Kafka: no limit.)",
    )
    broker_partitions_max: Count = setting(
        "broker.partitions.max",
        12_000,
        "The most partitions that a broker may hold a replica of. A topic, a growth or a move that would give it more "
        "is refused; the brokers' own topics count, and are never refused. (Kafka: no limit.)",
    )

    def replication_factor_for(self, brokers: int) -> int:
        """Returns the replication factor of a topic created without one, in a cluster of `brokers` brokers, fenced ones
        included."""
        return self.default_replication_factor or min(REPLICATION_FACTOR_MAX, brokers)
