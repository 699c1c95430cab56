"""The verdict on a run: valid, invalid, or void, because too little has happened for it to prove anything.

| anomaly | |
|---|---|
| inconsistent-offsets | an offset has two values |
| duplicate | a value is at two offsets |
| G1a | a value was seen whose send failed with a definite error |
| lost-write | readers got past a committed value, and none has seen it |
| unseen | an acknowledged value was never read |
| phantom | a value was never sent to the partition where it was seen |
| precommitted-read | an operation polls what it sends |
| int-poll-skip, int-nonmonotonic-poll | within a poll, records are left out, or go backwards |
| poll-skip, nonmonotonic-poll | the same from one poll of a process to its next |
| int-send-skip, int-nonmonotonic-send | other records lie within a batch, or its order has changed |
| nonmonotonic-send | a process's batches are in another order than it sent them |
| G0, G1c, each also -process and -realtime | operations that each would have to come before the others |
| stale-read | a poll from the leader lacks what this leader had acknowledged before |
| acknowledged-missing | in the end a replica lacks an acknowledged record |
| vanished | in the end a replica lacks a record that a reader got |
| gap, false-damage | a replica has no record at an offset, where one has to be, or calls a good one damaged |
| wrong-start, unsettled | a log starts or ends elsewhere than it must |
| unequal-replicas | two replicas differ |

All of these are invalid: offsets of a batch are contiguous, and nothing is transactional, so none is excused. A run is
void with fewer than `ACKNOWLEDGED_MIN` acknowledged batches, `POLLS_MIN` successful polls or `FAULTS_MIN` faults.
Jepsen's realtime-lag is reported, and no anomaly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tidelog.checker.anomaly import Anomaly
from tidelog.checker.cycles import cycles
from tidelog.checker.freshness import Lag, realtime_lag, stale_reads
from tidelog.checker.operations import Op
from tidelog.checker.orders import orders
from tidelog.checker.run import Run, understand
from tidelog.checker.values import (
    come_back,
    duplicates,
    inconsistent_offsets,
    missing,
    precommitted_reads,
    strangers,
)
from tidelog.checker.versions import Versions
from tidelog.checker.views import acknowledged_is_there, bounds, equal_replicas, no_gaps, seen_is_there

ACKNOWLEDGED_MIN = 100
POLLS_MIN = 100
FAULTS_MIN = 1

Rule = Callable[[Run, Versions], Iterator[Anomaly]]
RULES: tuple[Rule, ...] = (
    inconsistent_offsets,
    duplicates,
    strangers,
    missing,
    precommitted_reads,
    orders,
    cycles,
    stale_reads,
    acknowledged_is_there,
    seen_is_there,
    no_gaps,
    bounds,
    equal_replicas,
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one run, with its anomalies and counts."""

    anomalies: tuple[Anomaly, ...]
    acknowledged: int
    """The number of acknowledged batches."""
    polls: int
    """The number of successful polls."""
    records_read: int
    views: int
    faults: int
    excused: int
    """Number of values that are allowed to be at several offsets, because all but one of these could not be read when
    the log went on behind them."""
    void: tuple[str, ...]
    """Reasons why the run proves nothing: events that happened too seldom."""
    lag: Lag

    @property
    def word(self) -> str:
        """The verdict in a word: `valid`, `invalid` or `void`."""
        return "invalid" if self.anomalies else "void" if self.void else "valid"

    @property
    def kinds(self) -> Counter[str]:
        """Number of anomalies of each kind."""
        return Counter(anomaly.kind for anomaly in self.anomalies)


def judge(
    history: Iterable[Op],
    *,
    acknowledged_min: int = ACKNOWLEDGED_MIN,
    polls_min: int = POLLS_MIN,
    faults_min: int = FAULTS_MIN,
) -> Verdict:
    """Returns the verdict on a history. Raises `ValueError` for a history that contradicts itself."""
    run = understand(history)
    versions = Versions(run)
    acknowledged = sum(bool(act.sends) and act.outcome == "ok" for act in run.acts)
    polls = sum(act.f in ("poll", "txn") and act.outcome == "ok" and not act.is_view for act in run.acts)
    counts = (
        ("acknowledged batches", acknowledged, acknowledged_min),
        ("polls", polls, polls_min),
        ("faults", len(run.faults), faults_min),
    )
    return Verdict(
        tuple(anomaly for rule in RULES for anomaly in rule(run, versions)),
        acknowledged,
        polls,
        sum(1 for act in run.acts if not act.is_view for _ in act.polled()),
        len(run.views),
        len(run.faults),
        come_back(run, versions),
        tuple(f"{count} {name}, {least} at least are needed" for name, count, least in counts if count < least),
        realtime_lag(run),
    )
