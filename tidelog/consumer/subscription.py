"""The partitions that a consumer reads: the assignment, the paused partitions, and the order of reading.

Partitions take turns: one that records were taken from goes to the back, so that a busy partition cannot starve the
others however few records are requested at a time.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidelog.consumer.cursor import Cursor, ResetPolicy
from tidelog.consumer.losses import LossPolicy
from tidelog.consumer.records import ConsumerBatch, ConsumerRecord
from tidelog.model.errors import InvalidRequest
from tidelog.model.ids import TopicPartition


class Subscription:
    """The assigned partitions, each with its cursor: the read position and the fetched records."""

    def __init__(self, losses: LossPolicy, *, check_crcs: bool) -> None:
        self._losses = losses
        self._check_crcs = check_crcs
        self._cursors: dict[TopicPartition, Cursor] = {}
        self._turns: list[Cursor] = []

    @property
    def partitions(self) -> list[TopicPartition]:
        """All assigned partitions, sorted."""
        return sorted(self._cursors)

    @property
    def all(self) -> Sequence[Cursor]:
        """The cursors (read position and fetched records) of all assigned partitions, those read least recently
        first."""
        return self._turns

    def cursors(self, partitions: Sequence[TopicPartition] = ()) -> list[Cursor]:
        """Returns the cursors of these partitions, or of all. Raises `InvalidRequest` for an unassigned one."""
        return [self.cursor(partition) for partition in partitions or self.partitions]

    def cursor(self, partition: TopicPartition) -> Cursor:
        """Returns the cursor of a partition. Raises `InvalidRequest` if it is not assigned."""
        cursor = self._cursors.get(partition)
        if cursor is None:
            raise InvalidRequest(f"partition {partition} is not assigned to this consumer; `assign` it first")
        return cursor

    def holds(self, cursor: Cursor) -> bool:
        """Returns True if a cursor is that of an assigned partition, and not of an assignment before."""
        return self._cursors.get(cursor.partition) is cursor

    def add(self, partitions: Iterable[TopicPartition], reset: ResetPolicy | None) -> list[Cursor]:
        """Assigns more partitions, which start at `reset`; already assigned ones are unchanged. Returns the new
        cursors."""
        fresh = [
            Cursor(TopicPartition(*partition), reset, self._losses, check_crcs=self._check_crcs)
            for partition in dict.fromkeys(partitions)
            if partition not in self._cursors
        ]
        for cursor in fresh:
            self._cursors[cursor.partition] = cursor
            self._turns.append(cursor)
        return fresh

    def remove(self, partitions: Iterable[TopicPartition]) -> list[Cursor]:
        """Unassigns these partitions, ignoring unassigned ones; returns their cursors."""
        removed = [cursor for partition in partitions if (cursor := self._cursors.pop(partition, None)) is not None]
        for cursor in removed:
            self._turns.remove(cursor)
        return removed

    def clear(self) -> list[Cursor]:
        """Unassigns all partitions; returns their cursors."""
        removed = self._turns
        self._cursors, self._turns = {}, []
        return removed

    # -- taking --------------------------------------------------------------------------------------------------

    def next_cursor(self, partitions: Sequence[TopicPartition] = ()) -> Cursor | None:
        """Returns the cursor (read position and fetched records) of a partition that has a fetched record, and moves it
        to the back of the order of reading; None if none has one. Chooses among these partitions, or all, without the
        paused ones.

        Raises the error that stopped one of the partitions, once all records before it were returned; `InvalidRequest`
        if a partition is not assigned or has no position.
        """
        cursors = self._in_turn(partitions)
        for cursor in cursors:
            if cursor.has_record or cursor.decode():
                self._served(cursor)
                return cursor
        _raise_error(cursors)
        return None

    def take_batch(self, partitions: Sequence[TopicPartition] = ()) -> ConsumerBatch | None:
        """Removes and returns a fetched batch of these partitions, or of all; None if there is none.

        Raises the error that stopped one of the partitions, once all records before it were returned; `InvalidRequest`
        if a partition is not assigned or has no position.
        """
        cursor = self.next_cursor(partitions)
        return None if cursor is None else cursor.take_batch()

    def take(
        self, partitions: Sequence[TopicPartition], records_max: int, bytes_max: int
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Removes and returns the fetched records of these partitions, or of all: at most `records_max`, from batches
        of about `bytes_max` bytes in total.

        Raises the error that stopped one of the partitions, once all records before it were returned; `InvalidRequest`
        if a partition is not assigned or has no position.
        """
        taken: dict[TopicPartition, list[ConsumerRecord]] = {}
        cursors = self._in_turn(partitions)
        for cursor in cursors:
            records = cursor.take(records_max)
            while len(records) < records_max and bytes_max > 0 and (size := cursor.decode()):
                bytes_max -= size
                records.extend(cursor.take(records_max - len(records)))
            if records:
                taken[cursor.partition] = records
                self._served(cursor)
                records_max -= len(records)
            if not records_max or bytes_max <= 0:
                break
        if not taken:
            _raise_error(cursors)  # decoding met it just now; nobody would be woken for it
        return taken

    def _in_turn(self, partitions: Sequence[TopicPartition]) -> list[Cursor]:
        """Returns the cursors of these partitions, or of all, that are not paused, those read least recently first.
        Raises the error that stopped one of them, once all records before it were returned; `InvalidRequest` if a
        partition is not assigned or has no position."""
        chosen = self.cursors(partitions)
        if partitions:
            turns = {cursor: turn for turn, cursor in enumerate(self._turns)}
            chosen.sort(key=lambda cursor: turns[cursor])
        else:
            chosen = self._turns
        chosen = [cursor for cursor in chosen if not cursor.is_paused]
        for cursor in chosen:
            cursor.check_position()
        _raise_error(chosen)
        return chosen

    def _served(self, cursor: Cursor) -> None:
        """Moves a cursor to the back of the order of reading."""
        self._turns.remove(cursor)
        self._turns.append(cursor)


def _raise_error(cursors: Iterable[Cursor]) -> None:
    """Raises the error that stopped one of the cursors, if all records before it were returned."""
    for cursor in cursors:
        error = cursor.take_error()
        if error is not None:
            raise error.with_traceback(None)
