"""Settings that are the defaults of all topics. Each can be set for one topic under its own name (`TopicConfig`)."""

from __future__ import annotations

from tidelog.config.settings.base import DAY_MS, MIB, Settings, setting
from tidelog.config.values import (
    AckDurability,
    BatchBytes,
    Boolean,
    CleanupPolicy,
    CompressionType,
    Count,
    Limit,
    Milliseconds,
    SegmentBytes,
    Skew,
    TimestampType,
)
from tidelog.model.cluster import CommitProtocol


class TopicDefaults(Settings):
    """Default settings of all topics."""

    log_segment_bytes: SegmentBytes = setting(
        "log.segment.bytes",
        1024 * MIB,
        "A segment file that reaches this size is closed and a new one begun. (Kafka refuses less than 1 MiB; here "
        "the minimum is 1 KiB, so that a test can roll segments with a few records. Small segments cost open "
        "files.)",
        unit="bytes",
    )
    log_roll_ms: Milliseconds = setting(
        "log.roll.ms",
        7 * DAY_MS,
        "A segment whose first record is this old is closed at the next append, even if it is not full, so that "
        "retention by age can take it.",
        unit="ms",
    )
    log_retention_ms: Limit = setting(
        "log.retention.ms",
        7 * DAY_MS,
        "A segment is deleted once its youngest record is older than this. -1: never because of age.",
        unit="ms",
    )
    log_retention_bytes: Limit = setting(
        "log.retention.bytes",
        -1,
        "The oldest closed segments of a partition are deleted as long as the rest is at least this large. -1: no "
        "limit.",
        unit="bytes",
    )
    log_cleanup_policy: CleanupPolicy = setting(
        "log.cleanup.policy",
        "delete",
        "`delete`: old segments go, by age and by size. Empty: everything is kept for ever. (Kafka's `compact` is "
        "not available in this version, but for `__consumer_offsets`, which the brokers compact themselves.)",
    )
    message_max_bytes: BatchBytes = setting(
        "message.max.bytes",
        1048588,
        "The largest record batch a partition takes, compressed and with its header; a larger one is refused with 413.",
        unit="bytes",
    )
    log_message_timestamp_type: TimestampType = setting(
        "log.message.timestamp.type",
        "CreateTime",
        "`CreateTime`: records keep the timestamp their producer gave them. `LogAppendTime`: the broker stamps them "
        "when it appends them.",
    )
    log_message_timestamp_before_max_ms: Skew = setting(
        "log.message.timestamp.before.max.ms",
        2**63 - 1,
        "How far a record's timestamp may lie before the broker's clock. Applies to `CreateTime`.",
        unit="ms",
    )
    log_message_timestamp_after_max_ms: Skew = setting(
        "log.message.timestamp.after.max.ms",
        3_600_000,
        "How far a record's timestamp may lie after the broker's clock. Applies to `CreateTime`.",
        unit="ms",
    )
    compression_type: CompressionType = setting(
        "compression.type",
        "producer",
        "The codec of the batches that the broker builds itself, from records sent as JSON; `producer` leaves those "
        "uncompressed. Batches that a producer built are stored as they came. (Kafka compresses them again if their "
        "codec is another; here a broker never touches records it was sent.)",
    )
    min_insync_replicas: Count | None = setting(
        "min.insync.replicas",
        None,
        "Replicas that must be in sync for `acks=all` to be accepted. Default: 2 where a topic has three replicas "
        "or more, else 1. The same on all brokers. (Kafka: 1, which acknowledges records that only one broker has.) "
        "With `commit.protocol=paxos` it means nothing: a majority of the replicas is always needed, and is enough.",
    )
    min_insync_racks: Count = setting(
        "min.insync.racks",
        1,
        "Racks (`broker.rack`) that need a replica in sync for `acks=all` to be accepted, so that acknowledged records "
        "outlive the loss of a rack; never more than a partition's replicas stand in. Brokers without a rack "
        "stand in one. The same on all brokers. With `commit.protocol=paxos` it means nothing. (Not in Kafka.)",
    )
    unclean_leader_election_enable: Boolean = setting(
        "unclean.leader.election.enable",
        False,
        "Whether a replica that may lack acknowledged records leads if none that has them all is left. `false`: the "
        "partition waits for one. `true`: it goes on at once, and those records are lost. With `commit.protocol=paxos` "
        "it means nothing: there are no such elections.",
    )
    commit_protocol: CommitProtocol = setting(
        "commit.protocol",
        "isr",
        "How partitions commit: `isr`, primary and backups with a set of in-sync replicas, or `paxos`, by majority. "
        "Fixed when a topic is created. [choosing-a-protocol.md](choosing-a-protocol.md) compares them.",
    )
    ack_durability: AckDurability = setting(
        "ack.durability",
        "fsynced",
        "What `acks=all` waits for on each replica that counts. `fsynced`: the records are on the disk. "
        "`replicated`: they are in the operating system's memory, as with Kafka; a power cut takes what was not yet "
        "written, which begins after 50 ms.",
    )
