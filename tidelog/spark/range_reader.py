"""Reading one offset range from its leader, come what may: the bytes of its batches, whole batches at a time.

A range is one request whose answer is streamed, so its cost does not depend on the way to the broker. When the stream
ends early, the leader changed, its broker died, or it is not yet known there that the range is committed. Then whoever
leads now is asked for the rest, from the next offset that is missing; local Spark never repeats a task, so it is done
here. Without progress for `timeout_s` the last error is raised.

An answer that would pass offsets whose loss was accepted says so before its first byte. Then only what lies before them
is asked for, so that their loss is told, or raised, when everything before it has been handed out.

A batch that lies across the range's start or end is handed out whole. Where it stops is decided by offsets, not by
counting: compaction and the Paxos log leave gaps.
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
"""A piece ends with the batch that makes it so large."""
ROOM_BYTES = PIECE_BYTES + READ_BYTES
"""Has room for a piece, or several small ones, so that little of what was read is moved."""


def read_range(
    cluster: Cluster, one: OffsetRange, leader: str | None, loss: LossRule, *, replica: str | None = None
) -> Iterator[memoryview]:
    """Pieces of whole batches that hold all records of the range there are, each until the next is asked for. `leader`
    is where to begin, if known.

    With `replica`, a broker's address, that broker's own copy is read and no other.
    Raises `DataLoss` as `loss` says, or the last `TidelogError` when nothing comes for the cluster's `timeout_s`.
    """
    return _RangeReader(cluster, one, leader, loss, replica).read()


class _RangeReader:
    def __init__(
        self, cluster: Cluster, one: OffsetRange, leader: str | None, loss: LossRule, replica: str | None
    ) -> None:
        self._cluster, self._range, self._loss = cluster, one, loss
        self._address, self._replica = replica or leader, replica
        self._position = one.start
        self._ahead: LostRange | None = None
        """An accepted loss that is to be met before anything behind it is read."""

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
        one, lost = self._range, self._ahead
        if lost is not None and lost.start <= self._position:
            self._meet(lost)
            return
        if self._address is None:
            self._address = self._find_leader()
        end = one.end if lost is None else lost.start
        copy = "" if self._replica is None else "&replica=local"
        target = (
            f"/topics/{quote(one.topic, safe='')}/partitions/{one.partition}/batches"
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
            raise LeaderNotAvailable(f"{one}: not known to be committed beyond {self._position} where it was read")

    def _meet(self, lost: LostRange) -> None:
        self._loss.lost(f"{self._range}: records {lost} are lost, and an operator has accepted that", lost)
        self._position, self._ahead = max(self._position, lost.end), None

    def _find_leader(self) -> str:
        """Raises `LeaderNotAvailable` while there is none, `UnknownTopic` if the topic is another one now."""
        one = self._range
        found = self._cluster.metadata([one.topic])
        if not found.topics or found.topics[0].topic_id != one.topic_id:
            raise UnknownTopic(f"{one}: topic {one.topic!r} was deleted")
        if one.partition >= len(found.topics[0].partitions):
            raise UnknownPartition(f"{one}: there is no such partition")
        leader = found.topics[0].partitions[one.partition].leader
        for broker in found.brokers:
            if broker.node_id == leader:
                return broker.address
        raise LeaderNotAvailable(f"{one}: the partition has no leader at the moment")

    def _out_of_range(self, error: OffsetOutOfRange, patience: Patience) -> None:
        """Before the log: lost. Behind its end: a leader that does not know yet, or records that are gone for good."""
        if error.log_start_offset > self._position:
            end = min(error.log_start_offset, self._range.end)
            self._loss.lost(f"{self._range}: records {self._position} to {end - 1} have been deleted")
            self._position = end
            return
        self._address = self._replica
        patience.pause(error)


def split_stream(stream: Stream) -> Iterator[tuple[memoryview, int]]:
    """Whole batches, gathered until they are worth decoding together, and the offset after them; their bytes are there
    until the next ones are asked for. Bytes that make no whole batch at the end of the stream are dropped; nothing else
    is. Raises what ends the stream too early, after the batches that came before."""
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
    """Moves what is from there on to the beginning: of the same room, or of a larger one where that is of no use."""
    held = room[begin:]
    if begin == 0 or len(room) < ROOM_BYTES:
        room = memoryview(bytearray(max(ROOM_BYTES, 2 * len(held))))
    room[: len(held)] = held
    return room


class _Cut:
    """How far the batches of a piece go: `position` in the bytes held, and `next_offset`."""

    def __init__(self) -> None:
        self.position = 0
        self.next_offset = 0
        self._records = 0

    def advance(self, held: memoryview) -> bool:
        """Goes over the batches that are whole; True when they are enough for a piece. Raises `InvalidBatch`."""
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
