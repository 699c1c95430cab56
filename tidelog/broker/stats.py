"""What a broker counts of its own work. Plain numbers, read by `/metrics` when somebody asks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Stats:
    """Totals since the start. Bytes are of record batches as stored; `fsync_*` are of group commits."""

    appended_batches: int = 0
    appended_records: int = 0
    appended_bytes: int = 0
    append_writes: int = 0
    """Gathered writes: one serves all batches that waited."""
    duplicate_batches: int = 0
    refused_appends: int = 0
    read_bytes: int = 0
    damaged_reads: int = 0
    commits: int = 0
    fsyncs: int = 0
    fsync_bytes: int = 0
    fsync_seconds: float = 0.0
    fsync_failures: int = 0
    deleted_segments: int = 0
    load_findings: int = 0
