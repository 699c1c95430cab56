"""Names of events that must happen now and then to a broker; a batch of seeds in which one never did proves little."""

from __future__ import annotations

from collections.abc import Mapping

FINDINGS: Mapping[str, str] = {
    "are truncated": "torn tail truncated",
    "follows a torn tail": "segment behind a torn tail dropped",
    "had no catalog row": "batch without row",
    "is missing": "one file of a segment missing",
    "metainfo copy was bad": "metainfo copy bad",
    "catalog header of segment": "catalog header rewritten",
    "belongs to no known topic": "unknown directory left alone",
}
"""Names of counted events, by a text in the broker's log lines about the logs that it opens."""

SOMETIMES: tuple[str, ...] = (
    *FINDINGS.values(),
    "clean stop",
    "crash in a clean stop",
    "crash in recovery",
    "disk: crash",
    "disk: kill",
    "disk: disk_full",
    "disk: read_error",
    "disk: sync_error",
    "disk: unreadable",
    "disk: write_error",
    "duplicate recognised",
    "prefix deleted",
    "producer started afresh",
    "rot in a catalog",
    "rot in a log",
    "rot in a metainfo copy",
    "topic deleted",
    "unknown outcome",
    "DiskFull",
    "LogOffline",
    "OutOfOrderSequence",
    "TimedOutAfterAppend",
)
