"""Freshness of reads: a poll from a leader must not miss records that this leader had acknowledged before.

A poll that came with a high watermark has seen everything below it, so records acknowledged in the same leader
epoch before the poll was invoked must lie below it. Not so for another epoch: a new leader may learn late what is
committed; nor in a partition that acknowledges records before the high watermark reaches them. Nor does a copy on
another node promise to be fresh; how far polls lag is reported, and no anomaly.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from tidelog.checker.anomaly import Anomaly
from tidelog.checker.run import Act, Run
from tidelog.checker.versions import Versions


class Lag(NamedTuple):
    """How long a record that a poll did not return had been known to exist, in seconds."""

    seconds: float = 0.0
    key: str = ""
    offset: int = -1
    """Offset of the first record that the poll did not return."""
    reader: str = ""


def stale_reads(run: Run, versions: Versions) -> Iterator[Anomaly]:
    """Yields an anomaly for each poll from a leader that misses a record which this leader had acknowledged before."""
    events = [(act.completed, act) for act in run.acts if act.sends and act.outcome == "ok" and _is_visible(act)]
    events += [(act.invoked, act) for act in run.acts if act.outcome == "ok" and act.replica is None and _has_end(act)]
    acknowledged: dict[tuple[str, int], tuple[int, Act]] = {}
    for _, act in sorted(events, key=lambda event: event[0]):
        for send in act.sends:
            if send.offset is not None and send.offset >= acknowledged.get((send.key, act.epoch), (0, act))[0]:
                acknowledged[send.key, act.epoch] = send.offset, act
        for poll in act.polls:
            for key, end in poll.ends.items():
                offset, sender = acknowledged.get((key, act.epoch), (-1, act))
                if offset >= end and key not in run.holes:
                    text = f"{act} saw all below {end}, and {offset} of {sender} was acknowledged before it began"
                    yield Anomaly("stale-read", key, text)


def _is_visible(act: Act) -> bool:
    """Returns True if an acknowledged record is committed, so that polls must return it; not so with acks=1."""
    return act.durability != "leader"


def _has_end(act: Act) -> bool:
    return any(poll.ends for poll in act.polls)


def realtime_lag(run: Run) -> Lag:
    """Returns the largest lag of all polls of the run."""
    proofs = _proofs(run)
    worst = Lag()
    for act in run.acts:
        if act.is_view:
            continue
        highest: dict[str, int] = {}
        for key, offset, _ in act.polled():
            highest[key] = max(offset, highest.get(key, -1))
        for key, offset in highest.items():
            offsets, times = proofs[key]
            index = bisect_right(offsets, offset)
            if index < len(offsets):
                worst = max(worst, Lag(act.invoked_s - times[index], key, offset + 1, str(act)))
    return worst


def _proofs(run: Run) -> dict[str, tuple[list[int], list[float]]]:
    """Returns, by partition, the known offsets in ascending order, and for each the first time at which a client knew
    of it or of a later one."""
    first: dict[str, dict[int, float]] = {}
    for act in run.acts:
        if act.is_view:
            continue
        sent = [(send.key, send.offset) for send in act.sends if send.offset is not None and act.outcome == "ok"]
        for key, offset in (*sent, *((key, offset) for key, offset, _ in act.polled())):
            times = first.setdefault(key, {})
            times[offset] = min(act.completed_s, times.get(offset, act.completed_s))
    proofs: dict[str, tuple[list[int], list[float]]] = {}
    for key, times in first.items():
        offsets = sorted(times)
        earliest = [times[offset] for offset in offsets]
        for index in reversed(range(len(earliest) - 1)):
            earliest[index] = min(earliest[index], earliest[index + 1])
        proofs[key] = offsets, earliest
    return proofs
