"""Settings of consumer groups: sessions, heartbeats, offsets, and their bounds."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from tidelog.config.settings.base import Settings, setting
from tidelog.config.values import Count, Delay, Milliseconds
from tidelog.model.cluster import CommitProtocol


class GroupSettings(Settings):
    """Settings and limits of group coordinators."""

    offsets_topic_num_partitions: Count = setting(
        "offsets.topic.num.partitions",
        16,
        "Partitions of `__consumer_offsets`, which keeps the groups' members and committed offsets: as many brokers "
        "can share the work. In force when the topic is made, by the first request about a group, and never changed "
        "after. (Kafka: 50.)",
    )
    offsets_topic_replication_factor: Count = setting(
        "offsets.topic.replication.factor",
        3,
        "Replicas of `__consumer_offsets`, or as many as the cluster has brokers if those are fewer. In force when the "
        "topic is made.",
    )
    offsets_topic_commit_protocol: CommitProtocol = setting(
        "offsets.topic.commit.protocol",
        "paxos",
        "How `__consumer_offsets` commits: `paxos`, by majority, so that the death of one broker of three stops no "
        "group for longer than an election, or `isr`. In force when the topic is made.",
    )
    offsets_retention_minutes: Count = setting(
        "offsets.retention.minutes",
        10_080,
        "For how long a group's offsets are kept once it has no members; for groups that never had any, since each "
        "offset was committed.",
        unit="min",
    )
    offsets_retention_check_interval_ms: Milliseconds = setting(
        "offsets.retention.check.interval.ms", 600_000, "How often offsets that are too old are looked for.", unit="ms"
    )
    offset_metadata_max_bytes: Count = setting(
        "offset.metadata.max.bytes",
        4_096,
        "How much text may come with a committed offset.",
        unit="bytes",
    )
    group_consumer_session_timeout_ms: Milliseconds = setting(
        "group.consumer.session.timeout.ms",
        45_000,
        "A member of a group that was not heard for so long is expelled, and its partitions are given to others; for "
        "members that do not ask for another time.",
        unit="ms",
    )
    group_min_session_timeout_ms: Milliseconds = setting(
        "group.min.session.timeout.ms", 6_000, "The shortest session that a member may ask for.", unit="ms"
    )
    group_max_session_timeout_ms: Milliseconds = setting(
        "group.max.session.timeout.ms", 1_800_000, "The longest session that a member may ask for.", unit="ms"
    )
    group_consumer_heartbeat_interval_ms: Milliseconds = setting(
        "group.consumer.heartbeat.interval.ms",
        5_000,
        "How often the members of groups are told to be heard.",
        unit="ms",
    )
    group_consumer_max_size: Count = setting(
        "group.consumer.max.size", 10_000, "The most members that a group may have. (Kafka: no limit.)"
    )
    group_max_size: Count = setting(
        "group.max.size",
        10_000,
        "The most members that a group of the classic protocol may have. What they say of themselves must fit into a "
        "record of `__consumer_offsets`, too. (Kafka: no limit.)",
    )
    group_initial_rebalance_delay_ms: Delay = setting(
        "group.initial.rebalance.delay.ms",
        3_000,
        "How long a group of the classic protocol that was empty waits for more members after each one that joins, at "
        "most for their rebalance timeout; so that those which start together are in one generation.",
        unit="ms",
    )
    offsets_topic_partition_groups_max: Count = setting(
        "offsets.topic.partition.groups.max",
        2_000,
        "The most groups that one partition of `__consumer_offsets` keeps: a cluster may have "
        "`offsets.topic.num.partitions` times as many, if their names are spread evenly. (Kafka: no limit.)",
    )

    @model_validator(mode="after")
    def _sessions_fit(self) -> Self:
        shortest, longest = self.group_min_session_timeout_ms, self.group_max_session_timeout_ms
        if not shortest <= self.group_consumer_session_timeout_ms <= longest:
            raise ValueError(
                "group.consumer.session.timeout.ms must lie between group.min.session.timeout.ms and "
                "group.max.session.timeout.ms"
            )
        if not self.group_consumer_heartbeat_interval_ms * 2 <= self.group_consumer_session_timeout_ms:
            raise ValueError(
                "group.consumer.session.timeout.ms must be at least twice group.consumer.heartbeat.interval.ms, or one "
                "late heartbeat expels a member"
            )
        return self
