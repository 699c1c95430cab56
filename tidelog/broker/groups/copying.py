"""Compaction of a coordinator's log by copying forward: the log stays proportional to its live records.

When the log has several times more records than there are live ones, the live ones are appended again as ordinary
records, in pieces between which requests are served. Then everything before the first copy is deleted like any log
prefix. So all replicas hold the same log and offsets keep their meaning; Kafka's log cleaner instead rewrites each
replica by itself.

The log alone gives the right state at every moment. Before the deletion, because a copy repeats a value that was
current when it was appended. After it, because each key that was live when the copying began has since been copied or
written again. If a coordinator fails in between, some records exist twice, and its successor starts over when it finds
the log too long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

import structlog

from tidelog.broker.groups.coordinator_state import CoordinatorState
from tidelog.broker.groups.outbox import OutgoingBatch
from tidelog.broker.runtime.stats import Stats
from tidelog.groups.records import GroupLogRecord
from tidelog.model.errors import TidelogError

LENGTH_MIN: Final = 20_000
"""Minimum number of records in a coordinator's log before its live records are appended to it again and the rest is
deleted; a shorter log loads quickly anyway."""
GARBAGE_FACTOR: Final = 4
PIECE_RECORDS: Final = 500
DELETE_S_MAX: Final = 30.0

logger = structlog.get_logger("tidelog.groups")


class Piece(NamedTuple):
    """Live records that are being appended to the log again. They are committed when `last`, their last batch, is."""

    last: OutgoingBatch
    copied: int


class CopyForward:
    """Compaction of one `CoordinatorState`'s log: appends its live records to the log again and deletes the log before
    them. `run` is its task. `is_due` makes it compact at once, however short the log is."""

    def __init__(self, state: CoordinatorState, stats: Stats, *, is_due: bool = False) -> None:
        self._state = state
        self._is_due_anyway = is_due
        self._stats = stats
        self._look_at = LENGTH_MIN
        """Length of the log, in records, at which the live records are counted next."""

    async def run(self) -> None:
        """Appends the live records again and deletes the log before them, whenever the log has grown too long, until
        cancelled."""
        while True:
            if self._is_due_anyway or self._is_due():
                try:
                    await self._copy()
                    self._is_due_anyway = False
                except TidelogError as error:
                    logger.warning("the groups' log stays long for now", error=error.message)
                    # Not again at the next commit: where a copy fails halfway, each try would make the log longer
                    # still.
                    self._look_at = 2 * self._length
            # The log grows by commits alone, so there is nothing to look at before the next one.
            self._state.progressed.clear()
            await self._state.progressed.wait()

    @property
    def _length(self) -> int:
        return self._state.end_offset - self._state.partition.log_start_offset

    def _is_due(self) -> bool:
        if self._length < self._look_at:
            return False
        # The live records are counted only when the log has come to the length that the last count made worth it.
        self._look_at = max(LENGTH_MIN, GARBAGE_FACTOR * self._state.shard.live_count)
        return self._length >= self._look_at

    def _copy_piece(self, live: Iterator[GroupLogRecord]) -> Piece | None:
        """Queues as many live records as fit into one batch to be appended again, without yielding to other tasks, so
        that each record is current at its place in the log. Returns the piece, or None if no records are left."""
        piece: Piece | None = None
        for record in islice(live, PIECE_RECORDS):
            batch = self._state.rewrite(record)
            # The record that had no room is in the next batch by now, so the piece ends with that batch.
            is_full = piece is not None and piece.last is not batch
            piece = Piece(batch, 1 if piece is None else piece.copied + 1)
            if is_full:
                break
        return piece

    async def _copy(self) -> None:
        """Appends all live records to the log again, then deletes the log before them. Raises the error that
        ended the coordinator state, `TooLarge` or `Overloaded` if a copy cannot be appended; `LeaderNotAvailable`,
        `TimedOutAfterAppend`, `Overloaded`, `DiskFull` or `LogOffline` if the deletion fails."""
        state = self._state
        # Read before the keys are listed, with no await in between. So each key that is live now is copied behind
        # `begin`, or was written there by a decision since; and whatever is below may go.
        begin, copied = state.end_offset, 0
        live = state.shard.live_records()
        while piece := self._copy_piece(live):
            copied += piece.copied
            # Each piece is committed before the next one: the copies never fill the outbox, and requests have their
            # turn.
            failure = await asyncio.shield(piece.last.outcome)
            if failure is not None:
                raise failure.with_traceback(None)
        # Only now: until the last copy is committed, a record below may be the only one that tells of its key.
        await state.partition.delete_below(begin, deadline_s=asyncio.get_running_loop().time() + DELETE_S_MAX)
        self._stats.group_records_copied += copied
        logger.info("copied forward", partition=state.partition.partition, records=copied, begins_at=begin)
