"""Counters of a broker's own work: plain numbers, read when `/metrics` is requested."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tidelog.broker.runtime.stages import Stages
from tidelog.broker.runtime.traffic import Traffic


def counted(meaning: str) -> Any:
    """Returns a dataclass field for a total since the start; `meaning` is its help text in `/metrics`."""
    return field(default=0, metadata={"help": meaning})


@dataclass(slots=True)
class Stats:
    """Totals since the start. Bytes are of record batches as stored."""

    appended_batches: int = counted("Record batches appended.")
    appended_records: int = counted("Records appended.")
    appended_bytes: int = counted("Bytes of record batches appended.")
    append_writes: int = counted("Gathered writes: each serves all batches that waited.")
    duplicate_batches: int = counted("Batches that were in the log already, and were not appended again.")
    refused_appends: int = counted("Produce requests of which nothing was appended.")
    read_bytes: int = counted("Bytes of record batches read.")
    damaged_reads: int = counted("Reads of a batch that is damaged on this disk.")
    damaged_batches: int = counted(
        "Times that a batch, a journal's entry, a copy of facts or a block of a snapshot was found damaged here."
    )
    damaged_journal_entries: int = counted(
        "Of tidelog_damaged_batches, entries of journals: of Paxos partitions, and of the metadata log."
    )
    damaged_copies: int = counted(
        "Of tidelog_damaged_batches, copies of metainfo, of the directory's identity, of snapshots' headers."
    )
    damaged_snapshot_blocks: int = counted("Of tidelog_damaged_batches, blocks of metadata snapshots.")
    repaired_batches: int = counted("Damaged batches that were repaired with a good copy.")
    repaired_from_own_copy: int = counted("Repaired batches whose good copy was on the same disk.")
    repaired_own_bytes: int = counted("Bytes of batches and of facts that were repaired from this disk's own copy.")
    repaired_peer_bytes: int = counted("Bytes of batches that were repaired with another replica's copy.")
    repair_seconds: float = counted("Seconds from when damaged batches were found to when they were repaired, in all.")
    scrubbed_bytes: int = counted("Bytes that the scrubber has read and verified.")
    scrubbed_logs: int = counted(
        "Times that the scrubber has read something through: a log, a journal, metainfo, the snapshots."
    )
    isr_shrinks: int = counted("Replicas that left in-sync sets of partitions led here.")
    isr_expands: int = counted("Replicas that joined in-sync sets of partitions led here.")
    replica_fetches: int = counted("Fetches of followers that were answered, each about many partitions.")
    replica_log_reads: int = counted("Reads of the log for followers; those that keep up are served from memory.")
    replica_fetched_bytes: int = counted("Bytes of record batches sent to followers.")
    replica_reports: int = counted("Reports of followers about what became durable while their fetch waited.")
    paxos_frames: int = counted("Frames sent to other replicas of Paxos partitions.")
    paxos_late_frames: int = counted("Of tidelog_paxos_frames, those that had to be sent again by another lane.")
    moves_sent_bytes: int = counted(
        "Bytes of record batches sent to replicas that are being reassigned, until in sync."
    )
    moves_received_bytes: int = counted("Bytes of record batches received for replicas that are being reassigned here.")
    group_loads: int = counted("Times that a partition of __consumer_offsets was loaded by its coordinator.")
    group_load_seconds: float = counted(
        "Seconds that loads of __consumer_offsets took, from the claim to the last record."
    )
    group_changes: int = counted("Requests about consumer groups, and times, that have changed a group.")
    group_batches: int = counted("Batches that the coordinators of groups have appended, each with many changes.")
    group_records_copied: int = counted("Records of groups that were copied forward, so that older ones can go.")
    group_requests_refused: int = counted("Requests about consumer groups that were refused because of a bound.")
    flushes: int = counted("Flushes, each of one log: one fsync per file, for all that was appended since the last.")
    fsyncs: int = counted("Files and directories made durable.")
    fsync_bytes: int = counted("Bytes made durable, batches and catalog rows.")
    fsync_seconds: float = counted("Seconds in which fsyncs were under way.")
    fsync_failures: int = counted("Flushes that failed: each takes its log offline.")
    deleted_segments: int = counted("Segments deleted by retention or by request.")
    load_findings: int = counted("Things found wrong when logs were opened.")
    stages: Stages = field(default_factory=Stages)
    traffic: Traffic = field(default_factory=Traffic)
    """Bytes and records that were appended and read, by topic."""
