"""How a replica that is behind all journals goes on: from another's log, which is what those journals stood for.

A batch lies in every replica's log at the same offset, byte for byte. So whoever lacks what all others have truncated
reads on at its own log's end, from any of them, until it has reached what that one's journal begins with. If that log
begins later, by retention, this one starts over with its first batch, and with what was known of producers there: as a
leader it has to recognise a repeated batch that is deleted. With the answer comes who the voters were where that
journal begins.

A copy is as good as what its sender has applied; each batch is verified by its CRC and has to continue the log. What
every other voter has damaged is damaged here, too, until one of them has it again: this log goes on behind it. Asked
are all that hold a replica: the voters by a log that is far behind may all have left long ago.

What this log holds already, and doubts, is asked for and compared first (`doubts`); it goes on at its end then.
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
"""T: after a round that brought nothing, for a time drawn from [T, 2T)."""

logger = structlog.get_logger("tidelog.paxos")

Ask = Callable[[int, ReadApplied, float], Awaitable[Answer]]
"""Asks a broker, within so many seconds. Raises as `PeerNode.request`."""


class Copier:
    """Copies for one replica. `holders` are the other brokers that may have copies, `voters` those of them that have to
    be damaged, too, before this log goes on behind a batch; `wanted` is how far the engine's floor is, as a position,
    while something is lacking, and None when nothing is; `arrived` is told of every floor that this log has come up
    to."""

    def __init__(
        self,
        partition_id: PartitionId,
        applied: AppliedLog,
        ask: Ask,
        holders: Callable[[], Sequence[int]],
        voters: Callable[[], Sequence[int]],
        wanted: Callable[[], int | None],
        arrived: Callable[[Floor], None],
        entropy: Entropy,
        era: int,
    ) -> None:
        self._partition_id = partition_id
        self._applied = applied
        self._ask = ask
        self._holders = holders
        self._voters = voters
        self._wanted = wanted
        self._arrived = arrived
        self._entropy = entropy
        self._era = era
        self._damaged: dict[int, int] = {}
        """The brokers that have the batch at `_damaged_at` damaged, or know nothing of it (`doubts`), and up to
        where."""
        self._damaged_at = (-1, False)
        self._told: dict[int, str] = {}
        """The brokers that gave nothing, and the reasons, as far as they are in the log already."""

    async def run(self) -> None:
        """Copies until nothing is lacking."""
        turn = 0
        self._told.clear()
        while self._wanted() is not None and self._applied.log.offline_reason is None:
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
        """Logs why a broker gives nothing, once for each reason."""
        if self._told.get(node) != error:
            self._told[node] = error
            logger.info("a log could not be copied yet", partition=str(self._partition_id), broker=node, error=error)

    def _is_damaged_on(self, nodes: Sequence[int]) -> bool:
        """Returns True if all of these brokers have the next batch damaged, and it has not come meanwhile."""
        # At least one voter must have said so: of nobody's silence nothing follows.
        return self._next() == self._damaged_at and self._damaged.keys() >= set(nodes) > set()

    def _go_on_behind(self, offset: int) -> None:
        if self._applied.doubted():
            self._applied.compare([ReportedBatch(offset)])
        else:
            self._applied.append_lost(offset)

    def _next(self) -> tuple[int, bool]:
        """Returns the next offset to ask for, and whether the log here has it, and doubts it."""
        doubted = self._applied.doubted()
        return doubted.start if doubted else self._applied.log.log_end_offset, bool(doubted)

    def _note_damage(self, node: int, end_offset: int) -> None:
        if self._damaged_at != self._next():
            self._damaged, self._damaged_at = {}, self._next()
        self._damaged[node] = end_offset

    async def _copy_from(self, node: int) -> bool:
        """Makes one copying step from another replica; returns True if it brought something."""
        log = self._applied.log
        asked_for = offset, is_doubted = self._next()
        partition_id = self._partition_id
        request = ReadApplied(
            partition_id.topic_id, partition_id.partition, offset, COPY_BYTES, self._era, takes_rows=True
        )
        answer = await self._ask(node, request, ANSWER_S_MAX)
        read = answer.message
        assert isinstance(read, AppliedRead)
        self._told.pop(node, None)
        # The log has changed while the answer was on its way, so it continues another end.
        if self._wanted() is None or self._applied.is_truncating or self._next() != asked_for:
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
        wanted_position = self._wanted() or 0
        # Only here does the log stand for what the sender's journal has given up.
        if log.log_end_offset >= floor.next_offset and floor.position >= wanted_position:
            self._arrived(floor)
        return self._wanted() is None or log.log_end_offset > offset

    def _compare(self, node: int, read: AppliedRead, data: Buffer, offset: int, floor: Floor) -> bool:
        """Compares what is doubted from this offset on with another's log; returns True if that told something."""
        if read.log_start_offset > offset:
            return self._applied.begins_later(read.log_start_offset)
        reported = reported_by(read, data, offset)
        if reported:
            self._damaged.pop(node, None)
            return self._applied.compare(reported)
        if (end := read.damaged_to or floor.next_offset) > offset:
            self._note_damage(node, end)
        return False

    async def _start_over(self, offset: int, producers: list[tuple[int, ProducerState]]) -> None:
        logger.info("a replica starts over", partition=str(self._partition_id), offset=offset)
        await self._applied.start_over(offset, producers)
