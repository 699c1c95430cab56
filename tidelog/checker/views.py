"""The content of each replica at the end of a run, compared with what was promised.

An acknowledged record must be at its offset until it is deleted; a record whose bytes were damaged on purpose may be
answered with an error, but no other. Below the high watermark there is a record at every offset; in a sparse log, at
every offset where any replica has one. All replicas hold the same. A deletion is answered before it is durable, so a
log may start anywhere between the promised and the requested offset.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.checker.anomaly import Anomaly
from tidelog.checker.operations import View
from tidelog.checker.run import Act, Run
from tidelog.checker.versions import Versions


def acknowledged_is_there(run: Run, versions: Versions) -> Iterator[Anomaly]:
    """Yields an anomaly for each acknowledged record that a replica lacks."""
    senders: dict[str, list[Act]] = {}
    for act in run.acts:
        if act.outcome == "ok":
            for key in dict.fromkeys(send.key for send in act.sends):
                senders.setdefault(key, []).append(act)
    for view, replica in run.views:
        records = dict(view.records)
        excused = run.damaged.get(view.key, set()).intersection(view.damaged)
        values = set(records.values())
        for act in senders.get(view.key, []):
            for send in act.sends:
                if send.key != view.key:
                    continue
                if send.offset is None:
                    is_there = send.value in values or view.start > 0 or bool(view.damaged)
                else:
                    record = records.get(send.offset)
                    is_there = record == send.value or send.offset < view.start
                    is_there = is_there or (record is None and send.offset in excused)
                if not is_there:
                    yield _missing(view, replica, act, send.offset, send.value, records)


def _missing(
    view: View, replica: int | None, act: Act, offset: int | None, value: str, records: dict[int, str]
) -> Anomaly:
    where = "nowhere" if offset is None else f"not at {offset}"
    instead = "" if offset is None else f", where {records.get(offset, 'nothing')} is"
    text = f"{value} of {act} was acknowledged ({act.durability}), and is {where} {_on(replica)}{instead}"
    return Anomaly("acknowledged-missing", view.key, f"{text}; the log holds {view.start} to {view.high_watermark}")


def seen_is_there(run: Run, versions: Versions) -> Iterator[Anomaly]:
    """Yields an anomaly for each value that a reader got, and that a replica lacks. Other values at its offset are
    reported as inconsistent offsets, and acknowledged records as missing."""
    seen: dict[str, set[int]] = {}
    for act in run.acts:
        if not act.is_view:
            for key, offset, _ in act.polled():
                seen.setdefault(key, set()).add(offset)
    for view, replica in run.views:
        damaged, log = run.damaged.get(view.key, set()), versions.log(view.key)
        there = {offset for offset, _ in view.records}
        for offset in sorted(seen.get(view.key, set()) - there - damaged):
            writer = versions.writers.get(view.key, {}).get(log.shown[offset])
            if offset >= view.start and (writer is None or writer.outcome != "ok"):
                yield Anomaly(
                    "vanished", view.key, f"{log.shown[offset]} was seen at {offset}, and is not {_on(replica)}"
                )


def no_gaps(run: Run, versions: Versions) -> Iterator[Anomaly]:
    """Yields an anomaly for each offset below the high watermark without a record, and for each good record that a
    replica calls damaged."""
    anywhere: dict[str, set[int]] = {}
    for view, _ in run.views:
        anywhere.setdefault(view.key, set()).update(offset for offset, _ in view.records)
    for view, replica in run.views:
        damaged = run.damaged.get(view.key, set())
        present = {offset for offset, _ in view.records}
        for offset in sorted(set(view.damaged) - damaged):
            yield Anomaly("false-damage", view.key, f"offset {offset} is called damaged {_on(replica)}, and is not")
        for offset in range(view.start, view.high_watermark):
            is_there = offset in present or (view.is_sparse and offset not in anywhere[view.key])
            if not is_there and offset not in damaged and offset not in view.damaged:
                yield Anomaly("gap", view.key, f"there is no record at {offset} {_on(replica)}")


def bounds(run: Run, versions: Versions) -> Iterator[Anomaly]:
    """Yields an anomaly for each replica whose log starts outside of the range that the deletions allow, or does not
    end at its high watermark."""
    for view, replica in run.views:
        requested, promised = run.requested.get(view.key, 0), run.promised.get(view.key, 0)
        if not promised <= view.start <= requested:
            text = f"the log starts at {view.start} {_on(replica)}: promised {promised}, asked for {requested}"
            yield Anomaly("wrong-start", view.key, text)
        if view.end not in (-1, view.high_watermark) or view.start > view.high_watermark:
            text = f"at rest the log {_on(replica)} holds {view.start} to {view.end}, committed {view.high_watermark}"
            yield Anomaly("unsettled", view.key, text)


def equal_replicas(run: Run, versions: Versions) -> Iterator[Anomaly]:
    """Yields an anomaly for each offset at which two replicas of a partition have different values, and for replicas
    with different high watermarks."""
    first: dict[str, tuple[View, int | None, dict[int, str]]] = {}
    for view, replica in run.views:
        if view.key not in first:
            first[view.key] = view, replica, dict(view.records)
            continue
        reference, of, records = first[view.key]
        if reference.high_watermark != view.high_watermark:
            text = f"ends at {reference.high_watermark} {_on(of)}, and at {view.high_watermark} {_on(replica)}"
            yield Anomaly("unequal-replicas", view.key, text)
        for offset, value in view.records:
            if records.get(offset, value) != value:
                text = f"offset {offset} is {records[offset]} {_on(of)}, and {value} {_on(replica)}"
                yield Anomaly("unequal-replicas", view.key, text)


def _on(replica: int | None) -> str:
    return "at the leader" if replica is None else f"on node {replica}"
