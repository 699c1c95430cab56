"""Anomalies of single values: each must be at its acknowledged offset, once, must have been sent, and must not be
missing."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from tidelog.checker.anomaly import Anomaly
from tidelog.checker.run import Act, Run
from tidelog.checker.versions import Versions


def inconsistent_offsets(run: Run, versions: Versions) -> Iterator[Anomaly]:
    """Yields an anomaly for each offset at which two values were seen."""
    for key, log in versions.logs.items():
        for offset, values in log.conflicts.items():
            yield Anomaly("inconsistent-offsets", key, f"offset {offset} has {', '.join(sorted(values))}")


def duplicates(run: Run, versions: Versions) -> Iterator[Anomaly]:
    """Yields an anomaly for each value at several offsets. Allowed are, if requests may be delivered twice, values of a
    client without a producer id, and values whose first copy was deleted, since a replica that is filled again knows
    only the producers of what is left. Also allowed is a value that the log could not read at all of its offsets but
    one, so that it took the retry for a new batch; later the first copy was readable again."""
    for key, log in versions.logs.items():
        writers = versions.writers.get(key, {})
        for value, offsets in log.repeated.items():
            writer = writers.get(value)
            is_forgotten = writer is not None and (writer.guarantee == "none" or min(offsets) < run.start(key))
            if not (run.repeats and is_forgotten) and not _has_come_back(run, key, offsets):
                yield Anomaly("duplicate", key, f"{value} is at {' and '.join(map(str, sorted(offsets)))}")


def come_back(run: Run, versions: Versions) -> int:
    """Returns how many values are allowed to be at several offsets, because at all of these but one no replica could
    read the batch when the log went on behind it."""
    return sum(
        _has_come_back(run, key, offsets) for key, log in versions.logs.items() for offsets in log.repeated.values()
    )


def _has_come_back(run: Run, key: str, offsets: set[int]) -> bool:
    return len(offsets - run.unread.get(key, set())) <= 1


def strangers(run: Run, versions: Versions) -> Iterator[Anomaly]:
    """Yields an anomaly for each seen value that was never sent to its partition, or whose send failed with a definite
    error (Adya's G1a). Each is reported once, for its first reader."""
    reported: set[tuple[str, int, str]] = set()
    for act in chain(run.acts, run.forgotten):
        for poll in act.polls:
            for key, records in poll.records.items():
                writers = versions.writers.get(key, {})
                for offset, value in records:
                    writer = writers.get(value)
                    if writer is not None and writer.outcome != "fail":
                        continue
                    if (key, offset, value) not in reported:
                        reported.add((key, offset, value))
                        kind, what = (
                            ("G1a", "refused by a definite error") if writer else ("phantom", "never sent there")
                        )
                        yield Anomaly(kind, key, f"{value} at {offset} was {what}, and seen by {act}")


def missing(run: Run, versions: Versions) -> Iterator[Anomaly]:
    """Yields an anomaly for each committed value that no reader got: lost if readers got values at later offsets, else,
    if it is acknowledged, unseen. Values that were deleted, damaged or destroyed on purpose are allowed to be missing.
    """
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
    """Returns True if the value may be missing: its offset is below the log start or damaged. If its offset is unknown,
    True if the partition has any deleted or damaged offset."""
    offset = next(send.offset for send in writer.sends if (send.key, send.value) == (key, value))
    return bool(start or damaged) if offset is None else offset < start or offset in damaged


def precommitted_reads(run: Run, versions: Versions) -> Iterator[Anomaly]:
    """Yields an anomaly for each record that the same operation both sends and polls."""
    for act in run.acts:
        if act.sends and act.polls:
            own = {(send.key, send.value) for send in act.sends}
            for key, offset, value in act.polled():
                if (key, value) in own:
                    yield Anomaly("precommitted-read", key, f"{value} at {offset} is polled and sent by {act}")
