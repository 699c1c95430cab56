"""Reading of one offset range from its leader, with retries: the bytes of its whole batches.

A range is one request with a streamed response, so its cost does not depend on the latency. A stream ends early when
the leader changes, its broker dies, or the leader does not know yet that the range is committed. Then the current
leader is asked for the remainder, from the next missing offset; local Spark never repeats a task, so this module does.
Without progress for `timeout_s` the last error is raised.

A response that would skip given-up lost offsets says so before its first byte. Then only the records before them are
requested, so that the loss is reported after everything before it was returned.

A batch across the range's start or end is returned whole. The end is determined by offsets, not by counts: compaction
and the Paxos log leave gaps.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

from tidelog.model.batch_header import HEADER_BYTES, check_header, parse_header
from tidelog.model.errors import LeaderNotAvailable, OffsetOutOfRange, TidelogError, UnknownPartition, UnknownTopic
from tidelog.model.lost_ranges import LostRange, within
from tidelog.spark.cluster import Cluster, Patience, Stream
from tidelog.spark.errors import LossRule
from tidelog.spark.planner import OffsetRange

READ_BYTES = 1 << 20
PIECE_RECORDS = 10_000
PIECE_BYTES = 4 << 20
"""Bytes at which a piece ends, with the batch that reaches this size."""
ROOM_BYTES = PIECE_BYTES + READ_BYTES
"""Bytes of the buffer: room for one piece, or several small ones, so that few read bytes are moved."""


def read_range(
    cluster: Cluster, offset_range: OffsetRange, leader: str | None, loss: LossRule, *, replica: str | None = None
) -> Iterator[memoryview]:
    """Yields pieces of whole batches with all existing records of the range; each piece is valid until the next one is
    requested. `leader` is the leader's address, if known.

    With `replica`, a broker's address, only that broker's own copy is read. Raises `DataLoss` for missing records if
    `loss` says so (`failOnDataLoss`), or the last `TidelogError` after the cluster's `timeout_s` without progress.
    """
    return _RangeReader(cluster, offset_range, leader, loss, replica).read()


class _RangeReader:
    def __init__(
        self, cluster: Cluster, offset_range: OffsetRange, leader: str | None, loss: LossRule, replica: str | None
    ) -> None:
        self._cluster, self._range, self._loss = cluster, offset_range, loss
        self._address, self._replica = replica or leader, replica
        self._position = offset_range.start
        self._ahead: LostRange | None = None
        """A given-up lost range ahead, to be reported before anything behind it is read."""

    def read(self) -> Iterator[memoryview]:
        patience = self._cluster.patience()
        while self._position < self._range.end:
            try:
                yield from self._read_once(patience)
            except OffsetOutOfRange as error:
                self._out_of_range(error, patience)
            except (UnknownTopic, UnknownPartition):
                self._loss.lost(f"{self._range}: the topic is gone")
                return
            except TidelogError as error:
                if error.definite and not error.retriable:
                    raise
                self._address = self._replica
                patience.pause(error)

    def _read_once(self, patience: Patience) -> Iterator[memoryview]:
        offset_range, lost = self._range, self._ahead
        if lost is not None and lost.start <= self._position:
            self._meet(lost)
            return
        if self._address is None:
            self._address = self._find_leader()
        end = offset_range.end if lost is None else lost.start
        copy = "" if self._replica is None else "&replica=local"
        target = (
            f"/topics/{quote(offset_range.topic, safe='')}/partitions/{offset_range.partition}/batches"
            f"?offset={self._position}&to={end}{copy}"
        )
        stream = self._cluster.open(self._address, target)
        try:
            ahead = within(stream.lost, self._position, end)
            if ahead:
                self._ahead = ahead[0]
                return
            for piece, next_offset in split_stream(stream):
                patience.progress()
                self._position = next_offset
                yield piece
            if stream.number("Tidelog-High-Watermark") >= end:
                self._position = max(self._position, end)  # it ends in a gap
        finally:
            stream.close()
        if self._position < end:
            raise LeaderNotAvailable(
                f"{offset_range}: not known to be committed beyond {self._position} where it was read"
            )

    def _meet(self, lost: LostRange) -> None:
        self._loss.lost(f"{self._range}: records {lost} are lost, and an operator has accepted that", lost)
        self._position, self._ahead = max(self._position, lost.end), None

    def _find_leader(self) -> str:
        """Returns the leader's address. Raises `LeaderNotAvailable` while there is none, `UnknownTopic` if the topic
        was deleted and created again."""
        offset_range = self._range
        metadata = self._cluster.metadata([offset_range.topic])
        if not metadata.topics or metadata.topics[0].topic_id != offset_range.topic_id:
            raise UnknownTopic(f"{offset_range}: topic {offset_range.topic!r} was deleted")
        if offset_range.partition >= len(metadata.topics[0].partitions):
            raise UnknownPartition(f"{offset_range}: there is no such partition")
        leader = metadata.topics[0].partitions[offset_range.partition].leader
        for broker in metadata.brokers:
            if broker.node_id == leader:
                return broker.address
        raise LeaderNotAvailable(f"{offset_range}: the partition has no leader at the moment")

    def _out_of_range(self, error: OffsetOutOfRange, patience: Patience) -> None:
        """Handles a position outside of the log. Before the log start: the records are lost. Beyond the end: waits,
        since the leader may not know yet that they are committed."""
        if error.log_start_offset > self._position:
            end = min(error.log_start_offset, self._range.end)
            self._loss.lost(f"{self._range}: records {self._position} to {end - 1} have been deleted")
            self._position = end
            return
        self._address = self._replica
        patience.pause(error)


def split_stream(stream: Stream) -> Iterator[tuple[memoryview, int]]:
    """Yields pieces of whole batches and the offset after each piece; a piece's bytes are valid until the next one is
    requested. An incomplete batch at the stream's end is dropped. Raises the stream's error, after the batches that
    arrived."""
    room = memoryview(bytearray(READ_BYTES))
    begin = filled = 0
    cut = _Cut()
    failure: TidelogError | None = None
    is_over = False
    while not is_over:
        if filled == len(room):
            room, begin, filled = _cleared(room, begin), 0, filled - begin
        try:
            count = stream.read_into(room[filled : filled + READ_BYTES])
        except TidelogError as error:
            count, failure = 0, error
        is_over = count == 0
        filled += count
        while cut.advance(room[begin:filled]) or (is_over and cut.position > 0):
            yield room[begin : begin + cut.position], cut.next_offset
            begin += cut.position
            cut = _Cut()
    if failure is not None:
        raise failure


def _cleared(room: memoryview, begin: int) -> memoryview:
    """Moves the unread bytes from `begin` on to the start of the buffer, or to a larger buffer if it is full."""
    held = room[begin:]
    if begin == 0 or len(room) < ROOM_BYTES:
        room = memoryview(bytearray(max(ROOM_BYTES, 2 * len(held))))
    room[: len(held)] = held
    return room


class _Cut:
    """The end of the whole batches in the buffer: `position` in bytes, and `next_offset`."""

    def __init__(self) -> None:
        self.position = 0
        self.next_offset = 0
        self._records = 0

    def advance(self, held: memoryview) -> bool:
        """Advances over whole batches; returns True when they are enough for a piece. Raises `InvalidBatch`."""
        while self.position + HEADER_BYTES <= len(held):
            header = parse_header(held, self.position)
            check_header(header)
            if self.position + header.size > len(held):
                return False
            self.position += header.size
            self.next_offset = header.next_offset
            self._records += header.record_count
            if self._records >= PIECE_RECORDS or self.position >= PIECE_BYTES:
                return True
        return False
