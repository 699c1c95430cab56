"""`Cursor`: the position in one assigned partition, and its prefetched bytes.

    fetched chunk -> iter_batches -> decode one batch at a time -> return it, or its records -> position moves

Ranges of lost offsets lie in a chunk like batches. When everything before such a range has been returned, it stops the
cursor or is skipped, as the consumer's `LossPolicy` says.

Fetched bytes are decoded only when records are requested, so prefetching costs memory but no CPU, and a seek discards
undecoded bytes. The position moves when records are returned, not when they arrive.

`generation` counts seeks and resets: a response to a fetch of an older generation is dropped.

Batches above the high watermark (`early`) come besides: they move neither position, and are taken only while nothing
waits to be read in order, so that of the records of a key the earlier ones come first.

Pure: no clock, no tasks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Literal

from tidelog.consumer.early_batches import EarlyBatches
from tidelog.consumer.intervals import ProcessedOffsets
from tidelog.consumer.losses import LossPolicy
from tidelog.consumer.records import ConsumerBatch, ConsumerRecord, consumer_batch
from tidelog.model.batch_header import RecordBatch, iter_batches, verify_batch
from tidelog.model.errors import DamagedBatch, InvalidBatch, InvalidRequest, RecordsLost, TidelogError, TooLarge
from tidelog.model.ids import OFFSET_MAX, TopicPartition
from tidelog.model.lost_ranges import LostRange, within
from tidelog.model.ports import Buffer

ResetPolicy = Literal["earliest", "latest"]


CHUNKS_MAX = 2
"""Maximum fetched chunks per partition: the one being read, and the next."""


class Cursor:
    """The position in one assigned partition, and its prefetched chunks.

    Either `reset` says which offset has to be looked up, or `fetch_offset` is the offset of the next fetch. `error` has
    stopped the fetching; it is raised after the records before it were returned.
    """

    def __init__(
        self, partition: TopicPartition, reset: ResetPolicy | None, losses: LossPolicy, *, check_crcs: bool = True
    ) -> None:
        self.partition = partition
        self._losses = losses
        self.check_crcs = check_crcs
        self.generation = 0
        self.is_paused = False
        self.high_watermark: int | None = None
        self.processed: ProcessedOffsets | None = None
        """The processed offsets, where `run` processes records out of order; None if the position tells them."""
        self.early = EarlyBatches()
        self.reset: ResetPolicy | None
        self.fetch_offset: int
        self.error: TidelogError | None
        self._position: int | None
        self._chunks: deque[deque[RecordBatch | LostRange]]
        self._batch: ConsumerBatch | None
        self._count: int
        self._index: int
        self._records: list[ConsumerRecord]
        self._clear(reset)

    # -- position ------------------------------------------------------------------------------------------------

    @property
    def position(self) -> int | None:
        """The offset of the next record to return; None while a reset is being looked up."""
        if self._batch is None:
            return self._position
        if self._index == self._count:
            return self._batch.next_offset
        return self._batch.offsets[self._index] if self._index else self._position

    @property
    def low(self) -> int | None:
        """The offset below which everything is processed or handed out; None while a reset is being looked up."""
        return self.position if self.processed is None else self.processed.low

    @property
    def committable(self) -> ProcessedOffsets | None:
        """The processed offsets as they may be committed; None if the position tells them."""
        # Records read early can join what was read in order before the high watermark has passed them. Nobody could
        # begin beyond it.
        end = max(self.fetch_offset, self.high_watermark or 0)
        return None if self.processed is None else self.processed.up_to(end)

    @property
    def has_position(self) -> bool:
        """True if the position is known; otherwise only a seek or a reset provides it."""
        return self.reset is not None or self._position is not None

    def check_position(self) -> None:
        """Raises `InvalidRequest` if only a seek can tell where to read."""
        if not self.has_position:
            raise InvalidRequest(f"{self.partition} has no position, and auto_offset_reset is none: `seek` first")

    def seek(self, offset: int) -> None:
        """Moves the position to `offset`, and drops the prefetched chunks."""
        self.generation += 1
        self._clear(None)
        self._position = self.fetch_offset = offset

    def request_reset(self, policy: ResetPolicy) -> None:
        """Moves the position to the partition's beginning or end, once that is looked up, and drops the prefetched
        chunks."""
        self.generation += 1
        self._clear(policy)

    def resolve_reset(self, generation: int, offset: int) -> bool:
        """Moves to `offset`, the result of the lookup for a reset. Returns False, without effect, if a seek or another
        reset has come since the lookup began (`generation` is not the present one)."""
        if generation != self.generation or self.reset is None:
            return False
        self.reset = None
        self._position = self.fetch_offset = offset
        return True

    # -- what comes in -------------------------------------------------------------------------------------------

    @property
    def wants_more(self) -> bool:
        """True if the next fetch, or the lookup of a reset, should start."""
        is_full = len(self._chunks) >= CHUNKS_MAX or self.early.is_full
        return self.has_position and not is_full and self.error is None and not self.is_paused

    def add(self, generation: int, data: Buffer, lost: Sequence[LostRange] = ()) -> bool:
        """Adds the bytes of a fetch as a chunk, with the lost ranges in it. Returns False, without effect, if a seek or
        reset has come since the fetch began (`generation` is not the present one), if an error has stopped the cursor,
        or if there is neither a whole batch nor a lost range from the fetch offset on.

        Raises `InvalidBatch` if the batches cannot be separated.
        """
        if generation != self.generation or self.error is not None:
            return False
        pieces: list[RecordBatch | LostRange] = list(iter_batches(data))
        if lost:
            pieces += within(lost, self.fetch_offset, OFFSET_MAX)
            pieces.sort(key=_start)
        end = max(map(_end, pieces), default=0)
        if end <= self.fetch_offset:
            return False
        self.fetch_offset = end
        self._chunks.append(deque(pieces))
        return True

    def add_early(self, generation: int, data: Buffer) -> bool:
        """Adds the bytes of a fetch that lie above the high watermark. Returns False, without effect, if a seek or
        reset has come since the fetch began (`generation` is not the present one), if an error has stopped the cursor,
        or if there is no whole batch that was not fetched before.

        Raises `InvalidBatch` if they are not what may follow `fetch_offset`.
        """
        if generation != self.generation or self.error is not None:
            return False
        return self.early.add(data, self.fetch_offset)

    def fail(self, generation: int, error: TidelogError) -> None:
        """Stops the fetching with an error, which is raised after the records before it were returned. No effect if a
        seek or reset has come since the failed fetch began (`generation` is not the present one)."""
        if generation == self.generation:
            self.error = error

    # -- what goes out -------------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        """True if nothing can be returned without fetching."""
        return self._index == self._count and not self._chunks

    @property
    def has_record(self) -> bool:
        """True if the decoded batch has records left."""
        return self._index < self._count

    def next_record(self) -> ConsumerRecord | None:
        """Returns the next record of the decoded batch; None if it has no more: call `decode` for the next batch."""
        index = self._index
        if index == self._count:
            return None
        self._index = index + 1
        return (self._records or self._all_records())[index]

    def take(self, records_max: int) -> list[ConsumerRecord]:
        """Removes and returns up to `records_max` records of the decoded batch, as a new list."""
        start = self._index
        if start == 0 and 0 < self._count <= records_max:
            return self.take_batch().records()
        if start == self._count:
            return []
        self._index = min(self._count, start + records_max)
        return (self._records or self._all_records())[start : self._index]

    def take_batch(self) -> ConsumerBatch:
        """Removes and returns the decoded batch, without its already returned records."""
        assert self._batch is not None
        remaining = self._batch.rest(self._index) if self._index else self._batch
        self._set(None, remaining.next_offset)
        return remaining

    def _all_records(self) -> list[ConsumerRecord]:
        assert self._batch is not None
        self._records = self._batch.records()
        return self._records

    def decode(self) -> int:
        """Decodes the next batch with records at or after the position; returns its size in bytes, 0 if there is none.

        A damaged batch is never skipped: it becomes the cursor's `error`, chunks after it are dropped, and after the
        error was raised it is fetched again. So is a lost range, unless the policy skips it.
        """
        while self._index == self._count and self._chunks:
            piece = self._next_piece()
            position = self.position
            assert position is not None
            if isinstance(piece, LostRange):
                if not self._passes(piece, position):
                    return 0
                continue
            batch = self._opened(piece, position)
            if batch is None:
                return 0
            if batch:
                self._set(batch, position)
                return piece.header.size
            self._set(None, batch.next_offset)
        return 0

    def take_early(self) -> list[ConsumerRecord]:
        """Removes and returns the records of the next batch above the high watermark, all of which come before any that
        is fetched in order from now on; none while something waits to be read in order. A damaged batch becomes the
        cursor's error, as in `decode`."""
        position = self.position
        if not self.is_empty or self.error is not None or position is None:
            return []
        while (piece := self.early.next()) is not None:
            batch = self._opened(piece, position)
            if batch is None:
                return []
            if batch:
                return batch.records()
        return []

    def _opened(self, piece: RecordBatch, position: int) -> ConsumerBatch | None:
        """Returns the records of a batch from `position` on. If it is damaged, stops the cursor with an error, drops
        what was fetched, and returns None."""
        try:
            if self.check_crcs:
                verify_batch(piece.data)
            return consumer_batch(self.partition, piece, position)
        except (InvalidBatch, TooLarge) as error:
            self.seek(position)
            self.error = DamagedBatch(
                f"{self.partition}: the batch at offset {piece.header.base_offset} is damaged ({error.message}); "
                f"seek to {piece.header.next_offset} to go on after it"
            )
            return None

    def take_error(self) -> TidelogError | None:
        """Removes and returns the error, once everything before it was returned; fetching may then restart."""
        if self.error is None or not self.is_empty:
            return None
        error, self.error = self.error, None
        return error

    def _passes(self, lost: LostRange, position: int) -> bool:
        """Moves the position behind a lost range and returns True; or, if the consumer's `LossPolicy` does not skip
        lost records, stops before it with an error and returns False."""
        if lost.end <= position:
            return True
        try:
            self._losses.meet(self.partition, lost)
        except RecordsLost as error:
            self.seek(position)
            self.error = error
            return False
        self._set(None, lost.end)
        return True

    def _next_piece(self) -> RecordBatch | LostRange:
        pieces = self._chunks[0]
        piece = pieces.popleft()
        if not pieces:
            self._chunks.popleft()
        return piece

    def _clear(self, reset: ResetPolicy | None) -> None:
        self.reset = reset
        self.fetch_offset = 0
        self.error = None
        self._chunks = deque()
        self.early.clear()
        self._set(None, None)

    def _set(self, batch: ConsumerBatch | None, position: int | None) -> None:
        """Sets the decoded batch and the position in it; None for no batch."""
        self._batch = batch
        self._count = 0 if batch is None else len(batch)
        self._index = 0
        self._records = []
        self._position = position


def _start(piece: RecordBatch | LostRange) -> int:
    return piece.start if isinstance(piece, LostRange) else piece.header.base_offset


def _end(piece: RecordBatch | LostRange) -> int:
    return piece.end if isinstance(piece, LostRange) else piece.header.next_offset
