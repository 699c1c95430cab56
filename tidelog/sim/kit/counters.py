"""Things that must have happened sometimes: a run in which nothing interesting occurred proves nothing.

Each counter has to be above zero over a batch of seeds. What the broker found when it opened its logs is told by what
it logged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

FINDINGS: Mapping[str, str] = {
    "are cut": "torn tail cut",
    "follows a torn tail": "segment behind a torn tail dropped",
    "had no catalog row": "batch without row",
    "is missing": "one file of a segment missing",
    "metainfo copy was bad": "metainfo copy bad",
    "catalog header of segment": "catalog header rewritten",
    "belongs to no known topic": "unknown directory left alone",
}
"""A part of what is logged, and what it counts as."""

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


def count_findings(counters: Counter[str], logs: Iterable[Mapping[str, Any]]) -> None:
    """Counts what the broker logged."""
    for entry in logs:
        said = f"{entry.get('event')} {entry.get('finding', '')}"
        for fragment, name in FINDINGS.items():
            if fragment in said:
                counters[name] += 1


def missing(counters: Counter[str]) -> list[str]:
    """What never happened."""
    return [name for name in SOMETIMES if not counters[name]]
