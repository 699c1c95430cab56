"""How applied values get into a replica's log: delivered in order from the journal, or copied from another replica.

Copying is needed where the journals no longer have the values. Batches that no replica can read any more become damaged
offsets (`lost_values`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from tidelog.broker.consensus.delivery import Delivery
from tidelog.broker.consensus.engine import Engine
from tidelog.broker.paxos.applied_log import AppliedLog
from tidelog.broker.paxos.context import PartitionContext
from tidelog.broker.paxos.copying import Copier
from tidelog.broker.paxos.journal import Floor
from tidelog.broker.paxos.links import Links
from tidelog.broker.paxos.lost_values import LostValues
from tidelog.model.errors import TidelogError
from tidelog.model.ids import PartitionId
from tidelog.model.ports import Buffer
from tidelog.replication.paxos.events import Applied
from tidelog.replication.paxos.state import Kind, Prefix, Value
from tidelog.replication.paxos.voters import Membership

logger = structlog.get_logger("tidelog.paxos")


class Applying:
    """Applies chosen values to one replica's log.

    `copied` is called with another replica's floor, which names its voters, once the log here reaches that floor;
    `failed` with the reason if the log cannot be truncated.
    """

    def __init__(
        self,
        partition_id: PartitionId,
        applied: AppliedLog,
        engine: Engine,
        context: PartitionContext,
        links: Links,
        membership: Membership,
        copied: Callable[[Floor], None],
        failed: Callable[[str], None],
    ) -> None:
        self._partition_id = partition_id
        self._applied = applied
        self._engine = engine
        self._spawn = context.spawn
        self._membership = membership
        self._copied = copied
        self._failed = failed
        replica = engine.node.replica
        floor = replica.floor
        # A crash between the floor and the copying: delivery begins before the floor, so that it asks for a copy again.
        is_behind = applied.log.log_end_offset < floor.next_offset or len(applied.doubts.offsets()) > 0
        begin = max(0, floor.position - 1) if is_behind else floor.position
        self.delivery = Delivery(begin, self._read, applied.take, lambda: replica.begin, self._is_lost)
        self._lost = LostValues(partition_id, engine, links, self.delivery.advance)
        self.delivery.jumped(floor.position)
        self._copier = Copier(
            partition_id,
            applied,
            context.peers.ask,
            links.holders,
            links.others,
            self._lacking,
            self._on_copied,
            context.entropy,
            links.era,
        )
        self._copying: asyncio.Task[None] | None = None
        self._truncating: asyncio.Task[None] | None = None

    @property
    def is_truncating(self) -> bool:
        """True while the log is being truncated, or emptied to begin at a later offset."""
        return self._applied.is_truncating

    def is_whole(self, next_offset: int) -> bool:
        """Returns True if every value below `next_offset` that is applied is written to the log, and nothing in the log
        has yet to be compared with the chosen values."""
        is_written = self._applied.end_offset == self._applied.log.log_end_offset >= next_offset
        return is_written and self._applied.comparison.is_done and not self._applied.is_truncating

    def on_applied(self, applied: Applied) -> None:
        """Takes the next value that the engine has applied, and delivers all values that can be delivered now."""
        self.delivery.applied(applied)
        # The floor waits until the log is durable so far.
        if applied.value.kind is Kind.TRUNCATE:
            self._applied.hurry()
        if applied.value.kind in (Kind.TRUNCATE, Kind.DELETE):
            self.copy()

    def on_jumped(self, floor: Prefix) -> None:
        """Continues at a floor (start of another replica's journal) to which the engine has jumped: the values below it
        have to be copied from another replica's log."""
        self.delivery.jumped(floor.position)
        self._applied.jumped(floor)
        self._applied.delete_below(self._engine.node.replica.floor.start_offset)
        self._applied.hurry()
        self.copy()

    def start(self) -> None:
        """Begins to bring the log up to the journal's floor (first position), and rewrites damaged journal entries
        whose payload the log still has."""
        replica = self._engine.node.replica
        self._applied.delete_below(replica.floor.start_offset)
        # Reading restores: the log may have what the journal has lost, and each copy more may settle an election.
        for slot in [slot for slot in replica.slots.values() if slot.faulty and slot.value.digest]:
            self._engine.buffer_of(slot.position, slot.value)
        self.copy()

    def copy(self) -> None:
        """Begins to copy from another replica's log, if something is missing that no journal can give."""
        if self._lacking() is not None and (self._copying is None or self._copying.done()):
            self._copying = self._spawn(f"paxos-copying-{self._partition_id}", self._copy())

    async def _copy(self) -> None:
        while self._lacking() is not None and self._applied.log.offline_reason is None:
            await self._copier.run()
            self.delivery.advance()

    def truncate(self, offset: int) -> None:
        """Truncates the log at `offset`, from where it differs from the chosen values, in a task of its own."""
        self._truncating = self._spawn(f"paxos-truncating-{self._partition_id}", self._truncate(offset))

    async def _truncate(self, offset: int) -> None:
        logger.warning("a log differs from what is chosen", partition=str(self._partition_id), truncated_to=offset)
        try:
            await self._applied.truncate(offset)
        except (OSError, TidelogError) as error:
            self._failed(str(error))

    async def close(self) -> None:
        """Cancels copying and truncating, and waits until both have ended."""
        self._lost.close()
        tasks = [task for task in (self._copying, self._truncating) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _read(self, position: int, value: Value) -> Buffer | None:
        """Returns the payload of the value to be applied next, empty if the log has its batches already; None if it
        cannot be read, or the log can take no more now."""
        # What has no room yet waits in the journal, and is delivered later.
        if self._applied.is_full:
            return None
        # What the log has already needs no payload; most of a start is of this kind.
        return b"" if self._applied.holds(position, value) else self._engine.buffer_of(position, value)

    def _is_lost(self, applied: Applied) -> bool:
        return not self._applied.is_full and self._lost.is_lost(applied)

    def _lacking(self) -> int | None:
        """Returns the position up to which the log must be copied from another replica; 0 if only the voters are
        unknown, None if nothing is missing."""
        lacking = self.delivery.needs_snapshot
        can_deliver = self._membership.is_known and not self._waits_for_what_is_deleted()
        return 0 if lacking is None and not can_deliver else lacking

    def _waits_for_what_is_deleted(self) -> bool:
        """Returns True if delivery is blocked by a payload whose records are deleted by now. No replica may have it any
        more; another replica's log, which begins behind these records, is copied instead."""
        blocking = self.delivery.blocking
        if blocking is None or self._applied.holds(blocking.position, blocking.value):
            return False
        value = blocking.value
        # Deleted records are of use to nobody, and retention may have taken them from every log.
        return 0 < value.base_offset + value.count <= self._engine.node.replica.applied.start_offset

    def _on_copied(self, floor: Floor) -> None:
        """Continues at the floor (start) of another replica's journal, which the log here has reached. It may lie
        behind this replica's own floor: no journal has the positions between any more."""
        if floor.position > self.delivery.position:
            self._applied.jumped(floor)
        # The floor may be passed only when the log is known to hold what it stands for.
        if self._applied.is_truncating or self._applied.doubts.offsets():
            return
        self._copied(floor)
        if floor.position > self.delivery.position:
            self.delivery.installed(floor.position)
