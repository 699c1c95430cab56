"""Verifying one replica while it serves: every batch below the high watermark is read and checked, a range of offsets
at a time. Offsets that an operator has given up are skipped, for replicas may hold different batches there.

The answer has the damaged offsets, and a checksum over the digests in the catalog. Two replicas with the same checksum
of a range hold the same batches in it, or know what they should hold; so a few bytes for each range compare a whole
partition. Damage is repaired as after any other read; a later request shows the result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from xxhash import xxh3_128

from tidelog.broker.repair.copies import Holder, Peers
from tidelog.broker.repair.repair_messages import DamagedRange, NamedBatch, VerifyQuery, VerifyReply
from tidelog.broker.runtime.log_writer import LogWriter
from tidelog.model.errors import LeaderNotAvailable, NotFound
from tidelog.model.ids import PartitionId, TopicId
from tidelog.storage.rows import Row
from tidelog.storage.scrub import Scrubber
from tidelog.transport.peer import Lane

PIECE_BYTES = 256 << 10
RANGE_BYTES = 8 << 20
"""Bytes that one request verifies, at most about."""
RANGE_S_MAX = 2.0
ANSWER_S_MAX = 20.0


@dataclass(slots=True)
class _Range:
    """The catalog rows of the batches that were verified in a range so far."""

    next_offset: int
    size: int = 0
    rows: list[Row] = field(default_factory=list)

    def take(self, rows: list[Row], end: int) -> bool:
        """Adds batches that begin before `end`; returns False when `end` is reached."""
        for row in rows:
            if row.base_offset >= end:
                return False
            self.rows.append(row)
            self.size += row.length
            self.next_offset = row.next_offset
        return self.next_offset < end


@dataclass(eq=False)
class Verifier:
    """Verifies replicas, on this broker and on others. `holder` returns this broker's replica of a partition."""

    _node_id: int
    _holder: Callable[[PartitionId], Holder | None]
    _log_writer: LogWriter
    _peers: Peers

    async def verify(self, node_id: int, query: VerifyQuery) -> VerifyReply:
        """Verifies a range of the replica on any broker. Raises `NotFound` or `LeaderNotAvailable`; `PeerUnreachable`
        or `Overloaded` if it was not asked, `PeerLost` or `TimeoutError` if it has not answered."""
        if node_id == self._node_id:
            return await self.answer(query)
        answer = await self._peers.request(node_id, query, deadline_s=ANSWER_S_MAX, lane=Lane.DATA)
        assert isinstance(answer.message, VerifyReply)
        return answer.message

    async def answer(self, query: VerifyQuery) -> VerifyReply:
        """Verifies a range of the replica on this broker. Raises `NotFound`, `LeaderNotAvailable`, `OSError`,
        `Overloaded`."""
        holder = self._holder(PartitionId(TopicId(query.topic_id), query.partition))
        if holder is None:
            raise NotFound(f"broker {self._node_id} has no replica of this partition, or could not open it")
        if not holder.is_readable:
            raise LeaderNotAvailable("the replica is being brought in line with its leader; try again")
        log, high_watermark = holder.log, holder.high_watermark
        start = max(query.offset, log.log_start_offset)
        end = max(start, min(query.to, high_watermark))
        await self._make_durable(holder, end)
        verified = await self._read(holder, start, end)
        checksum = xxh3_128()
        rows = [row for row in verified.rows if not log.damage.lost.covers(row.base_offset, row.next_offset)]
        for row in rows:
            checksum.update(row.digest)
        damaged = [
            damage for damage in log.damaged_ranges() if damage.start < verified.next_offset and damage.end > start
        ]
        return VerifyReply(
            log.log_start_offset,
            high_watermark,
            verified.next_offset,
            verified.size,
            checksum.digest(),
            tuple(DamagedRange(damage.start, damage.end, damage.reason) for damage in damaged),
            tuple(NamedBatch(row.base_offset, row.next_offset, row.epoch, row.digest) for row in rows)
            if query.names_batches
            else (),
        )

    async def _make_durable(self, holder: Holder, end: int) -> None:
        """Flushes the log up to `end`, since only durable batches are verified, and waits at most `RANGE_S_MAX`. A log
        that is offline is left as it is."""
        if holder.log.durable_offset < end and holder.log.offline_reason is None:
            self._log_writer.submit(holder)
            with suppress(TimeoutError):
                async with asyncio.timeout(RANGE_S_MAX):
                    await self._log_writer.at_rest(holder.log)

    async def _read(self, holder: Holder, start: int, end: int) -> _Range:
        """Verifies part of the range, but at least one batch. Damage without a catalog row is skipped."""
        verified, scrubber = _Range(start), Scrubber(holder.log, holder.log.reader, start, with_rows=False)
        give_up_s = asyncio.get_running_loop().time() + RANGE_S_MAX
        goes_on = start < end
        while goes_on and verified.size < RANGE_BYTES and asyncio.get_running_loop().time() < give_up_s:
            piece = scrubber.begin(PIECE_BYTES)
            if piece is None:
                verified.next_offset = end
                break
            try:
                await self._log_writer.perform(piece.run)
            finally:
                scrubber.end(piece)
            goes_on = verified.take(piece.rows, end)
        return verified
