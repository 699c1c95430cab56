"""Observes what leaders release before everything below it is applied (`commit.order=key` or `none`), and passes it to
the true log of the partition (`PaxosLog`).

Which values conflict is read from the records here, all of them, compressed ones too; the code under test has hashes
and limits.
"""

from __future__ import annotations

from tidelog.broker.paxos.partition import PaxosPartition
from tidelog.model.batch_codec import decode_batch
from tidelog.model.batch_header import iter_batches
from tidelog.model.cluster import KEY
from tidelog.model.ports import Buffer
from tidelog.replication.paxos.state import Value
from tidelog.sim.cluster.paxos_log import Actor, PaxosLog
from tidelog.sim.cluster.truth import Truth

Marks = frozenset[int | bytes]
"""Producer ids, and with `commit.order=key` also the records' keys."""


class ReleaseWatch:
    """The marks of all values that leaders have in flight, by which two values conflict."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._marks: dict[Value, Marks] = {}

    def releases(self, log: PaxosLog, actor: Actor, partition: PaxosPartition, position: int) -> None:
        """Checks a leader that releases the value at a position. Raises `Violation` if a rule is broken."""
        in_flight = partition._in_flight
        released = in_flight.get(position)
        if released is None:
            return
        marks = self._marks_of(partition, position, released.value)
        earlier = [
            (below, proposal.value)
            for below, proposal in in_flight._proposals.items()
            if below < position and not proposal.is_released
        ]
        self._truth.saw("value released past a hole", bool(earlier))
        log.releases(
            actor,
            position,
            released.value,
            [below for below, value in earlier if marks & self._marks_of(partition, below, value)],
        )

    def _marks_of(self, partition: PaxosPartition, position: int, value: Value) -> Marks:
        if value not in self._marks:
            payload = partition._proposer.payload_of(position, value)
            assert payload is not None, "a leader has what it proposed at hand"
            self._marks[value] = _read(payload, partition.config.commit_order)
        return self._marks[value]


def _read(payload: Buffer, order: str) -> Marks:
    marks: set[int | bytes] = set()
    for batch in iter_batches(payload):
        if batch.header.producer_id >= 0:
            marks.add(batch.header.producer_id)
        if order == KEY:
            marks.update(record.key for record in decode_batch(batch) if record.key is not None)
    return frozenset(marks)
