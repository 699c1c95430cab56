"""How a replica catches up when the values it lacks are in no journal any more: it copies another replica's log.

A batch has the same offset and the same bytes in every replica's log. So a replica that lacks values that all other
journals have truncated copies batches from its own log's end on, from any other replica, until it has reached the floor
of that replica's journal. If the other log begins later, by retention, this log starts over with its first batch, and
with its producers' sequence numbers: a leader has to recognise a repeated batch that is deleted. The answer also names
the voters at the other journal's floor.

A copied batch is as good as what its sender has applied; each is verified by its CRC, and has to continue the log. A
batch that is damaged in the logs of all other voters becomes damaged offsets here, until one of them has repaired it.
All brokers that hold a replica are asked, since the voters named by a log that is far behind may all have left.

Doubted batches of this log (`doubts`) are requested and compared first; then copying continues at the log's end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import structlog

from tidelog.broker.paxos.applied_log import AppliedLog
from tidelog.broker.paxos.doubts import ReportedBatch, reported_by
from tidelog.broker.paxos.journal import Floor, decode_floor
from tidelog.broker.paxos.messages import AppliedRead, ReadApplied
from tidelog.model.batch_header import parse_header
from tidelog.model.errors import TidelogError
from tidelog.model.ids import PartitionId
from tidelog.model.ports import Buffer, Entropy
from tidelog.model.producers import ProducerState
from tidelog.storage.received import parse_received
from tidelog.transport.peer import Answer

COPY_BYTES = 1 << 20
ANSWER_S_MAX = 5.0
NOBODY = -1
PAUSE_S = 0.1
"""T in seconds: a round that copied nothing is followed by a pause drawn from [T, 2T)."""

logger = structlog.get_logger("tidelog.paxos")

Ask = Callable[[int, ReadApplied, float], Awaitable[Answer]]
"""Sends a `ReadApplied` request to a broker; the last argument is the deadline in seconds. Raises the `TidelogError`
that the broker answers, `PeerUnreachable` or `Overloaded` if it was not asked, `PeerLost` or `TimeoutError` if it has
not answered."""


class Copier:
    """Copies other replicas' logs into the log of one replica.

    `holders` returns the other brokers with a replica, `voters` those that vote: a batch must be damaged on all of
    these before it is skipped. `lacking` returns the position that the copied log has to reach, None if nothing is
    missing. `arrived` is called with the floor of another replica's journal once this log has reached it.
    """

    def __init__(
        self,
        partition_id: PartitionId,
        applied: AppliedLog,
        ask: Ask,
        holders: Callable[[], Sequence[int]],
        voters: Callable[[], Sequence[int]],
        lacking: Callable[[], int | None],
        arrived: Callable[[Floor], None],
        entropy: Entropy,
        era: int,
    ) -> None:
        self._partition_id = partition_id
        self._applied = applied
        self._ask = ask
        self._holders = holders
        self._voters = voters
        self._lacking = lacking
        self._arrived = arrived
        self._entropy = entropy
        self._era = era
        self._damaged: dict[int, int] = {}
        """End offset of the damaged range by node id, for each broker that has the batch at `_damaged_at` damaged, or
        that no longer knows it (`doubts`)."""
        self._damaged_at = (-1, False)
        self._logged: dict[int, str] = {}
        """Error of the last failed request by node id, as already written to the operator's log."""

    async def run(self) -> None:
        """Copies batches of other replicas' logs until nothing is missing here (`lacking` returns None), or the log is
        offline."""
        turn = 0
        self._logged.clear()
        while self._lacking() is not None and self._applied.log.offline_reason is None:
            nodes = self._holders()
            # In turn: one that gives nothing may be as far behind, or damaged.
            node = nodes[turn % len(nodes)] if nodes else NOBODY
            try:
                if nodes and not self._applied.is_truncating and await self._copy_from(node):
                    continue
                if self._is_damaged_on(self._voters()):
                    self._go_on_behind(min(self._damaged.values()))
            except (TidelogError, TimeoutError, OSError) as error:
                self._tell(node, str(error) or type(error).__name__)
            turn += 1
            await asyncio.sleep(PAUSE_S * self._entropy.uniform(1, 2))

    def _tell(self, node: int, error: str) -> None:
        """Logs why another broker sends no batches, once for each reason."""
        if self._logged.get(node) != error:
            self._logged[node] = error
            logger.info("a log could not be copied yet", partition=str(self._partition_id), broker=node, error=error)

    def _is_damaged_on(self, nodes: Sequence[int]) -> bool:
        """Returns True if all of these brokers have reported the batch needed next as damaged, and it has not arrived
        meanwhile."""
        # At least one voter must have said so: of nobody's silence nothing follows.
        return self._next() == self._damaged_at and self._damaged.keys() >= set(nodes) > set()

    def _go_on_behind(self, offset: int) -> None:
        if self._applied.doubts.offsets():
            self._applied.doubts.compare([ReportedBatch(offset)])
        else:
            self._applied.append_lost(offset)

    def _next(self) -> tuple[int, bool]:
        """Returns the next offset to request, and whether the log has a doubted batch there (no journal can confirm
        it), which is to be compared and not copied."""
        doubted = self._applied.doubts.offsets()
        return doubted.start if doubted else self._applied.log.log_end_offset, bool(doubted)

    def _note_damage(self, node: int, end_offset: int) -> None:
        if self._damaged_at != self._next():
            self._damaged, self._damaged_at = {}, self._next()
        self._damaged[node] = end_offset

    async def _copy_from(self, node: int) -> bool:
        """Requests batches from one replica and appends or compares them; returns True if that made progress."""
        log = self._applied.log
        requested = offset, is_doubted = self._next()
        partition_id = self._partition_id
        request = ReadApplied(
            partition_id.topic_id, partition_id.partition, offset, COPY_BYTES, self._era, takes_rows=True
        )
        answer = await self._ask(node, request, ANSWER_S_MAX)
        read = answer.message
        assert isinstance(read, AppliedRead)
        self._logged.pop(node, None)
        # The log has changed while the answer was on its way, so it continues another end.
        if self._lacking() is None or self._applied.is_truncating or self._next() != requested:
            return True
        size = len(answer.body) - read.producers_size
        data, producers = answer.body[:size], answer.body[size:]
        floor = decode_floor(read.floor)
        if is_doubted:
            return self._compare(node, read, data, offset, floor)
        # Damage alone proves nothing: the next holder may have the batch whole.
        if read.damaged_to > offset:
            self._note_damage(node, read.damaged_to)
            return False
        self._damaged.pop(node, None)
        first = parse_header(data).base_offset if len(data) else read.log_start_offset
        # That log begins behind the end of this one: nothing here continues it, and its batches are deleted there.
        if first > offset and read.log_start_offset > offset:
            await self._start_over(first, log.files.codec.parse_producers(producers))
        elif len(data):
            # Checked as if it came from a client: CRC, offsets and leader epochs have to continue the log.
            batches = parse_received(data, offset, log.tail.epoch, may_skip=True)
            self._applied.append_copied(batches)
        position = self._lacking() or 0
        # Only here does the log stand for what the sender's journal has given up.
        if log.log_end_offset >= floor.next_offset and floor.position >= position:
            self._arrived(floor)
        return self._lacking() is None or log.log_end_offset > offset

    def _compare(self, node: int, read: AppliedRead, data: Buffer, offset: int, floor: Floor) -> bool:
        """Compares the doubted batches (no journal can confirm them) from this offset on with those of another
        replica's log; returns True if at least one could be decided."""
        if read.log_start_offset > offset:
            return self._applied.doubts.begins_later(read.log_start_offset)
        reported = reported_by(read, data, offset)
        if reported:
            self._damaged.pop(node, None)
            return self._applied.doubts.compare(reported)
        if (end := read.damaged_to or floor.next_offset) > offset:
            self._note_damage(node, end)
        return False

    async def _start_over(self, offset: int, producers: list[tuple[int, ProducerState]]) -> None:
        logger.info("a replica starts over", partition=str(self._partition_id), offset=offset)
        await self._applied.start_over(offset, producers)
