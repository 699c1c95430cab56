"""Truncation of journals: replicas report how far their logs are durable, and the leader proposes a TRUNCATE value.

`journal_truncation` decides how far. A report follows a flush of the log, at most one in `REPORT_S` seconds; a lost
report is replaced by the next.
"""

from __future__ import annotations

import asyncio

from tidelog.broker.consensus.engine import Engine
from tidelog.broker.paxos.applied_log import AppliedLog
from tidelog.broker.paxos.journal_truncation import JournalBounds, JournalTruncation, JournalUsage
from tidelog.broker.paxos.links import Links
from tidelog.replication.paxos.events import Applied, Proposed, Truncate
from tidelog.replication.paxos.state import Kind
from tidelog.storage.slot_store import SlotStore

REPORT_S = 0.5


class JournalTruncator:
    """Reports to the leader how far one replica's log is durable; where the replica leads, proposes a TRUNCATE for the
    journals."""

    def __init__(
        self, engine: Engine, store: SlotStore, applied: AppliedLog, links: Links, bounds: JournalBounds
    ) -> None:
        self._engine = engine
        self._node = engine.node
        self._store = store
        self._applied = applied
        self._links = links
        self.truncation = JournalTruncation(bounds)
        self._on_its_way: int | None = None
        """Position of a proposed TRUNCATE that is not applied yet; None if there is none."""
        self._timer: asyncio.TimerHandle | None = None

    def durable(self) -> None:
        """Schedules a report to the leader of how far the log here is durable."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(REPORT_S, self._tell)

    def _tell(self) -> None:
        self._timer = None
        durable_offset = self._applied.durable_offset
        self._links.report((self._node.node, *self._engine.former_ids), durable_offset)
        # The leader is one of the quorum whose logs have to hold what goes.
        self.heard(self._node.node, durable_offset)

    def heard(self, engine_id: int, durable_offset: int) -> None:
        """Handles a replica's report that its log is durable up to `durable_offset`; proposes a TRUNCATE if one is due
        and worth its round."""
        self.truncation.heard(engine_id, durable_offset)
        usage = self._usage()
        # One at a time: a second TRUNCATE would be proposed by what the first has yet to give up.
        if self._node.coordinator is None or self._on_its_way is not None or not self.truncation.is_due(usage):
            return
        begin = self._position_of(self.truncation.covered(self._node.quorum, self._links.live(), usage))
        if self.truncation.is_worth_it(begin - self._node.replica.begin, usage):
            self._engine.step(Truncate(begin))

    def lags(self) -> dict[int, int]:
        """Returns by node id how many records of this log each other voter's log lacks, according to its last
        report."""
        end, durable_end_of = self._applied.log.log_end_offset, self.truncation.durable_end_of
        others = self._links.other_voters()
        return {voter.node_id: max(0, end - max(0, durable_end_of(voter.voter_id))) for voter in others}

    def _usage(self) -> JournalUsage:
        return JournalUsage(self._store.journal.log_bytes, len(self._node.replica.slots))

    def _position_of(self, offset: int) -> int:
        """Returns the first position that is not applied, or whose batches extend beyond the offset."""
        replica = self._node.replica
        for position in range(replica.begin, replica.applied.position):
            value = replica.slots[position].value
            # Values without batches are in no log, and may go with those around them.
            if value.kind is Kind.APPEND and value.base_offset + value.count > offset:
                return position
        return replica.applied.position

    def proposed(self, proposed: Proposed) -> None:
        """Notes the position at which a TRUNCATE was proposed."""
        self._on_its_way = proposed.position

    def applied(self, applied: Applied) -> None:
        """Notes that the value at the next position is applied; if it is a TRUNCATE, notes what remains in the
        journal."""
        if applied.position == self._on_its_way:
            self._on_its_way = None
        if applied.value.kind is Kind.TRUNCATE:
            self.truncation.truncated(self._usage())

    def lost(self) -> None:
        """Forgets the TRUNCATE in flight, which may never be chosen now that the term is lost."""
        self._on_its_way = None

    def close(self) -> None:
        """Cancels the timer of the next report to the leader."""
        if self._timer is not None:
            self._timer.cancel()
