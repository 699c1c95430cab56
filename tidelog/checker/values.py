"""Anomalies of single values: each is where it was said to be, once, and was sent; and none is missing."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from tidelog.checker.anomaly import Anomaly
from tidelog.checker.run import Act, Run
from tidelog.checker.versions import Versions


def inconsistent_offsets(run: Run, versions: Versions) -> Iterator[Anomaly]:
    """An offset has one value, for ever."""
    for key, log in versions.logs.items():
        for offset, values in log.conflicts.items():
            yield Anomaly("inconsistent-offsets", key, f"offset {offset} has {', '.join(sorted(values))}")


def duplicates(run: Run, versions: Versions) -> Iterator[Anomaly]:
    """A value has one offset. If requests are delivered twice, a plain client's may have several; and so may one that
    was deleted in between, since a replica that is filled anew knows of producers what is there. And all its offsets
    but one may be unread ones: what was lost there was repeated, and came back."""
    for key, log in versions.logs.items():
        writers = versions.writers.get(key, {})
        for value, offsets in log.repeated.items():
            writer = writers.get(value)
            is_forgotten = writer is not None and (writer.guarantee == "none" or min(offsets) < run.start(key))
            if not (run.repeats and is_forgotten) and not _has_come_back(run, key, offsets):
                yield Anomaly("duplicate", key, f"{value} is at {_listed(offsets)}")


def come_back(run: Run, versions: Versions) -> int:
    """Returns how many values are excused for being at unread offsets, too."""
    return sum(
        _has_come_back(run, key, offsets) for key, log in versions.logs.items() for offsets in log.repeated.values()
    )


def _has_come_back(run: Run, key: str, offsets: set[int]) -> bool:
    return len(offsets - run.unread.get(key, set())) <= 1


def strangers(run: Run, versions: Versions) -> Iterator[Anomaly]:
    """Everything that anybody sees was sent there; and a definite error means that nothing was appended (Adya's G1a).
    Each is told once, of the first who saw it."""
    told: set[tuple[str, int, str]] = set()
    for act in chain(run.acts, run.forgotten):
        for poll in act.polls:
            for key, records in poll.records.items():
                writers = versions.writers.get(key, {})
                for offset, value in records:
                    writer = writers.get(value)
                    if writer is not None and writer.outcome != "fail":
                        continue
                    if (key, offset, value) not in told:
                        told.add((key, offset, value))
                        kind, what = (
                            ("G1a", "refused by a definite error") if writer else ("phantom", "never sent there")
                        )
                        yield Anomaly(kind, key, f"{value} at {offset} was {what}, and seen by {act}")


def missing(run: Run, versions: Versions) -> Iterator[Anomaly]:
    """A committed value is lost if readers got past it and none has seen it; one that is acknowledged and not seen by
    anybody in the end is unseen. What was deleted, damaged or destroyed on purpose is neither."""
    for key, writers in versions.writers.items():
        log, read, damaged = versions.log(key), versions.read.get(key, set()), run.damaged.get(key, ())
        start = run.start(key)
        bound = max((log.offsets[value] for value in read if value in log.offsets), default=-1)
        for value, writer in writers.items():
            if value in read or not versions.is_committed(writer):
                continue
            offset = log.last_offset(value) if value in log.offsets else None
            if offset is None and _is_excused(writer, key, value, start, damaged):
                continue
            if offset is not None and start <= offset <= bound:
                yield Anomaly("lost-write", key, f"{value} of {writer}, at {offset}, while {bound} was read")
            elif writer.outcome == "ok" and (offset is None or offset >= start):
                yield Anomaly("unseen", key, f"{value} of {writer} is acknowledged, and was never read")


def _is_excused(writer: Act, key: str, value: str, start: int, damaged: set[int] | tuple[()]) -> bool:
    """Nothing is known of its offset, or that is damaged."""
    offset = next(send.offset for send in writer.sends if (send.key, send.value) == (key, value))
    return bool(start or damaged) if offset is None else offset < start or offset in damaged


def precommitted_reads(run: Run, versions: Versions) -> Iterator[Anomaly]:
    """Yields an anomaly for each record that an operation polls though it is the one that sends it."""
    for act in run.acts:
        if act.sends and act.polls:
            own = {(send.key, send.value) for send in act.sends}
            for key, offset, value in act.polled():
                if (key, value) in own:
                    yield Anomaly("precommitted-read", key, f"{value} at {offset} is polled and sent by {act}")


def _listed(offsets: set[int]) -> str:
    return " and ".join(map(str, sorted(offsets)))
