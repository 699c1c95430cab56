"""The positions of a consumer instance in its partitions, and which of them may be committed. No I/O, no clock.

Three offsets for each partition, each the *next* offset to read, as in Kafka's consumers:

    committed <= processed <= next

`next` is the position after the latest read. `processed` is the position before the latest read: a client that reads
again has processed what it got before, while nothing is known about the records of the latest read. So an automatic
commit commits `processed`, and a commit by the client commits `next`.

A read has an *attempt* id. A client that repeats an attempt did not receive its records, and gets them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidelog.broker.rest_consumers.requests import Partition


class Positions:
    """The positions of one consumer instance in the partitions assigned to it now."""

    __slots__ = ("_attempt", "_before", "_committed", "_next", "_partitions")

    def __init__(self) -> None:
        self._next: dict[Partition, int] = {}
        self._partitions: tuple[Partition, ...] = ()
        self._before: dict[Partition, int] = {}
        """The positions at which the latest read began, of the partitions that it advanced."""
        self._committed: dict[Partition, int] = {}
        self._attempt = ""

    # -- which partitions ---------------------------------------------------------------------------------------------

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """The partitions assigned now, sorted by topic and number."""
        return self._partitions

    def have(self, partitions: Iterable[Partition]) -> None:
        """Replaces the assigned partitions. Positions of partitions that stay assigned are kept, those of all others
        dropped.
        """
        self._partitions = tuple(sorted(partitions))
        kept = dict.fromkeys(self._partitions)
        for table in (self._next, self._before, self._committed):
            for gone in [partition for partition in table if partition not in kept]:
                del table[gone]

    @property
    def unknown(self) -> list[Partition]:
        """The assigned partitions that have no position yet."""
        return [partition for partition in self._partitions if partition not in self._next]

    @property
    def next_offsets(self) -> list[tuple[Partition, int]]:
        """The assigned partitions that have a position, each with its next offset to read."""
        return [(partition, self._next[partition]) for partition in self._partitions if partition in self._next]

    # -- moves --------------------------------------------------------------------------------------------------------

    def begin(self, partition: Partition, offset: int, *, is_committed: bool = False) -> None:
        """Sets the position of a partition: its first one, or after a seek. Ignored if the partition is not assigned
        any more.
        """
        if partition not in self._partitions:
            return
        self._next[partition] = offset
        self._before.pop(partition, None)
        if is_committed:
            self._committed[partition] = offset

    def begin_read(self, attempt: str) -> None:
        """Starts a read. The records of the read before count as processed; but with the same attempt id they are read
        again.
        """
        if attempt == self._attempt:
            self._next.update(self._before)
        self._attempt = attempt
        self._before = {}

    def move(self, advanced: Mapping[Partition, int]) -> None:
        """Advances the positions to these offsets, since the current read returned the records below them."""
        for partition, offset in advanced.items():
            if partition in self._next:
                self._before.setdefault(partition, self._next[partition])
                self._next[partition] = offset

    def take_back(self, attempt: str) -> None:
        """Resets positions to where the read `attempt` began, because its records did not reach the client. Without
        effect if another read has begun.
        """
        if attempt == self._attempt:
            self._next.update(self._before)
            self._before = {}

    # -- commits ------------------------------------------------------------------------------------------------------

    def processed(self) -> dict[Partition, int]:
        """Returns the processed offsets that differ from the committed ones, which an automatic commit commits."""
        return self._changed({**self._next, **self._before})

    def returned(self) -> dict[Partition, int]:
        """Returns the next offsets to read that differ from the committed ones."""
        return self._changed(self._next)

    def commit(self, partitions: Mapping[Partition, int]) -> None:
        """Records that these offsets are committed."""
        for partition, offset in partitions.items():
            if partition in self._partitions:
                self._committed[partition] = offset

    def _changed(self, offsets: Mapping[Partition, int]) -> dict[Partition, int]:
        return {partition: offset for partition, offset in offsets.items() if self._committed.get(partition) != offset}
