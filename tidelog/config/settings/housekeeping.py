"""Settings of a broker's background work: retention, scrubbing, expiry of unused state."""

from __future__ import annotations

from tidelog.config.settings.base import DAY_MS, MIB, Settings, setting
from tidelog.config.values import Bytes, Count, LaneCount, Milliseconds


class HousekeepingSettings(Settings):
    """Settings of retention, scrubbing and expiry."""

    log_retention_check_interval_ms: Milliseconds = setting(
        "log.retention.check.interval.ms", 300_000, "How often closed segments are looked through.", unit="ms"
    )
    paxos_journal_max_bytes: Bytes = setting(
        "paxos.journal.max.bytes",
        64 * MIB,
        "When the journal of a partition with `commit.protocol=paxos` has outgrown this, its replicas agree to give up "
        "what they have in their logs. It may be larger while one of them lags: four times as large, then the others "
        "do not wait.",
        unit="bytes",
    )
    paxos_journal_max_entries: Count = setting(
        "paxos.journal.max.entries",
        20_000,
        "The same, if the journal has more than so many entries, each of which costs memory.",
    )
    paxos_peer_lanes: LaneCount = setting(
        "paxos.peer.lanes",
        1,
        "Connections to each other broker for the partitions with `commit.protocol=paxos`, from 1 to 8. A packet that "
        "is lost holds up what was sent behind it on the same connection only. 4 to 8 help where links between brokers "
        "lose packets; elsewhere one is as good, and costs less. The same on all brokers.",
    )
    log_scrub_period_ms: Milliseconds = setting(
        "log.scrub.period.ms",
        7 * DAY_MS,
        "Everything that is stored is read and verified at least this often, so that what the disk has spoilt is "
        "found, and repaired with another replica's copy, before that is spoilt, too. The reading is spread over the "
        "period. "
        "(Not in Kafka, which finds damage when somebody reads it.)",
        unit="ms",
    )
    log_scrub_io_max_bytes_per_second: Bytes = setting(
        "log.scrub.io.max.bytes.per.second",
        16 * MIB,
        "The scrubber never reads faster. A broker that stores more than this allows for in half a "
        "`log.scrub.period.ms` takes longer.",
        unit="bytes",
    )
    producer_id_expiration_ms: Milliseconds = setting(
        "producer.id.expiration.ms",
        DAY_MS,
        "How long a partition remembers an idempotent producer, or an `Idempotency-Key`, that sends nothing more.",
        unit="ms",
    )
