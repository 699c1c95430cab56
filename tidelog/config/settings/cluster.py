"""Settings of a broker as a cluster member: heartbeats and leases, controller quorum, replication throttles, logs."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from tidelog.config.settings.base import Settings, setting
from tidelog.config.values import (
    INT64_MAX,
    Boolean,
    Bytes,
    Count,
    LogFormat,
    LogLevel,
    Milliseconds,
    Path,
)


class ClusterSettings(Settings):
    """Settings of heartbeats, leases, the controller quorum, replication throttles and a broker's logs."""

    broker_heartbeat_interval_ms: Milliseconds = setting(
        "broker.heartbeat.interval.ms",
        2_000,
        "How often a broker tells the active controller that it lives.",
        unit="ms",
    )
    broker_session_timeout_ms: Milliseconds = setting(
        "broker.session.timeout.ms",
        9_000,
        "A broker that the active controller has not heard of for this long is fenced: it leads nothing until it is "
        "heard again. A process that has surely ended is fenced at once, and one that two other brokers find silent "
        "after broker.lease.ms.",
        unit="ms",
    )
    broker_lease_ms: Milliseconds = setting(
        "broker.lease.ms",
        1_000,
        "For how long after a heartbeat that was answered a broker may serve as a leader; it sends three in that time, "
        "whatever broker.heartbeat.interval.ms says. A broker that is silent is fenced after this time, if two others "
        "say so. Never longer than broker.session.timeout.ms. The same on all brokers. (Not in Kafka.)",
        unit="ms",
    )
    clock_skew_ms_max: Milliseconds = setting(
        "clock.skew.ms.max",
        30_000,
        "A broker whose clock differs by more than this from the median of the live brokers' goes by theirs, deletes "
        "nothing by age, and says so. (Not in Kafka.)",
        unit="ms",
    )
    broker_stamp_interval_ms: Milliseconds = setting(
        "broker.stamp.interval.ms",
        10_000,
        "How often a broker marks the time in its data directory, and the active controller notes that in the "
        "metadata. A directory that is put back from a copy of its broker's last life is recognised if the copy is "
        "older than three of these.",
        unit="ms",
    )
    controller_quorum_heartbeat_ms: Milliseconds = setting(
        "controller.quorum.heartbeat.ms",
        100,
        "How often the active controller tells the other voters that it leads.",
        unit="ms",
    )
    controller_quorum_election_timeout_ms: Milliseconds = setting(
        "controller.quorum.election.timeout.ms",
        1_000,
        "Voters elect another active controller when they have not heard of it for this long, or a quarter longer; "
        "one that does not hear of a majority for this long resigns. The same on all brokers.",
        unit="ms",
    )
    controller_lease_ms: Milliseconds = setting(
        "controller.lease.ms",
        400,
        "For how long after each heartbeat a voter supports no other controller. The same on all brokers; longer than "
        "the heartbeat, and shorter than the election timeout.",
        unit="ms",
    )
    controller_voter_replace_ms: Milliseconds = setting(
        "controller.voter.replace.ms",
        600_000,
        "A voter that was silent for this long gives its vote to another broker that is live, if there is one. (A "
        "voter whose disk was replaced gives it up at once.)",
        unit="ms",
    )
    metadata_log_snapshot_records: Count = setting(
        "metadata.log.snapshot.records",
        10_000,
        "After this many records of the metadata log, every broker writes down the state of the cluster, and the log "
        "before it is removed. (Kafka counts bytes: metadata.log.max.record.bytes.between.snapshots.)",
    )

    replica_lag_time_max_ms: Milliseconds = setting(
        "replica.lag.time.max.ms",
        30_000,
        "A replica that has been behind its leader for this long is not in sync any more, and is not waited for.",
        unit="ms",
    )
    replica_stall_ms_max: Milliseconds = setting(
        "replica.stall.ms.max",
        500,
        "A replica in sync that acknowledges nothing for this long, while a producer waits for it and another replica "
        "does acknowledge, leaves the in-sync set at once, as long as min.insync.replicas stay: a process or a disk "
        "that hangs. The limit is longer for a replica that has lately come out of stalls (three times the longest, of "
        "which at most this much counts). It comes back when it has kept up for a second, and longer each time. (Not "
        "in Kafka, where producers wait for replica.lag.time.max.ms, or for the broker's session to end.)",
        unit="ms",
    )
    leader_replication_throttled_rate: Bytes = setting(
        "leader.replication.throttled.rate",
        INT64_MAX,
        "How many bytes per second this broker sends to replicas that are being reassigned, until they are in sync; "
        "the copies of replicas that are in sync, and of those that only lag, are never slowed down. A throttle that "
        "is given with a move (`--throttle`) counts instead. Default: no limit.",
        unit="bytes/s",
    )
    follower_replication_throttled_rate: Bytes = setting(
        "follower.replication.throttled.rate",
        INT64_MAX,
        "How many bytes per second this broker asks for, for its replicas that are being reassigned, until they are in "
        "sync. A throttle that is given with a move (`--throttle`) counts instead. Default: no limit.",
        unit="bytes/s",
    )
    auto_leader_rebalance_enable: Boolean = setting(
        "auto.leader.rebalance.enable",
        True,
        "Whether partitions go back to their preferred leader, the first of their replicas, when it is in sync again.",
    )
    leader_imbalance_check_interval_seconds: Count = setting(
        "leader.imbalance.check.interval.seconds",
        300,
        "How often the active controller looks for partitions that are not led by their preferred leader.",
        unit="s",
    )

    log_level: LogLevel = setting(
        "log.level",
        "info",
        "Events of this level and graver ones are logged to standard error. SIGUSR2 switches to `debug`, and back; "
        "`tidelog broker log-level` sets any, and so do Kafka's tools (`broker-loggers`).",
    )
    log_format: LogFormat = setting(
        "log.format", "text", "How events are logged: `text`, pairs of names and values, or `json`; one a line."
    )

    audit_log_file: Path | None = setting(
        "audit.log.file",
        None,
        "A file for the audit log: a line of JSON for what is refused, and for each change of the cluster. Only this "
        "user may read it. Default: no audit log.",
    )
    audit_log_topic: Boolean = setting(
        "audit.log.topic",
        False,
        "Whether this broker writes the lines of its audit log to the topic `__audit` as well, or instead, if "
        "audit.log.file is not set. The first broker to have a line makes the topic, with the replicas and the "
        "commit.protocol that offsets.topic.* say. Lines that cannot be written there are counted, and no request "
        "waits for them.",
    )
    audit_log_bytes_max: Count = setting(
        "audit.log.bytes.max",
        100 << 20,
        "From this size on the audit log begins a new file, and the old one gets a number behind its name.",
        unit="bytes",
    )
    audit_log_files_max: Count = setting(
        "audit.log.files.max", 5, "Files of the audit log that are kept, the one that is written included."
    )

    @property
    def lease_ms(self) -> int:
        """Milliseconds after an answered heartbeat for which this broker may act as a leader."""
        return min(self.broker_lease_ms, self.broker_session_timeout_ms)

    @property
    def heartbeat_ms(self) -> int:
        """Milliseconds between two heartbeats to the controller, at most a third of the lease."""
        return min(self.broker_heartbeat_interval_ms, max(self.lease_ms // 3, 1))

    @model_validator(mode="after")
    def _times_fit(self) -> Self:
        if not self.broker_heartbeat_interval_ms * 2 <= self.broker_session_timeout_ms:
            raise ValueError(
                "broker.session.timeout.ms must be at least twice broker.heartbeat.interval.ms, or one late heartbeat "
                "fences a broker"
            )
        if not self.controller_quorum_heartbeat_ms * 2 <= self.controller_lease_ms:
            raise ValueError("controller.lease.ms must be at least twice controller.quorum.heartbeat.ms")
        if not self.controller_lease_ms < self.controller_quorum_election_timeout_ms:
            raise ValueError("controller.lease.ms must be less than controller.quorum.election.timeout.ms")
        return self
