"""The positions of an instance in its partitions, and which of them may be committed. No I/O, no time.

Three offsets for each partition, each the *next* one to be read, as with Kafka's consumers:

    committed <= processed <= next

`next` is where its reads have come to. `processed` is where they had come to before the latest one: who comes for more
has done what it got, and nothing is known yet of what it got last. So a commit that nobody asked for commits what is
processed; one that the client asks for, `next`.

A read belongs to an *attempt*. Who repeats an attempt did not get its records, and has them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidelog.broker.rest_consumers.requests import Partition


class Positions:
    """The positions of one instance, for the partitions that it has now."""

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
        """All that it has, sorted."""
        return self._partitions

    def have(self, partitions: Iterable[Partition]) -> None:
        """It has these from now on, and no others. Those that it had before are not disturbed."""
        self._partitions = tuple(sorted(partitions))
        kept = dict.fromkeys(self._partitions)
        for table in (self._next, self._before, self._committed):
            for gone in [partition for partition in table if partition not in kept]:
                del table[gone]

    @property
    def unknown(self) -> list[Partition]:
        """The partitions whose position has not been determined yet."""
        return [partition for partition in self._partitions if partition not in self._next]

    @property
    def known(self) -> list[tuple[Partition, int]]:
        """Partitions, and where to read on."""
        return [(partition, self._next[partition]) for partition in self._partitions if partition in self._next]

    # -- moves --------------------------------------------------------------------------------------------------------

    def begin(self, partition: Partition, offset: int, *, is_committed: bool = False) -> None:
        """It goes on here: it has just got the partition, or somebody says so. Unless it has lost it meanwhile."""
        if partition not in self._partitions:
            return
        self._next[partition] = offset
        self._before.pop(partition, None)
        if is_committed:
            self._committed[partition] = offset

    def begin_read(self, attempt: str) -> None:
        """A read begins. What the one before returned is processed; unless it is the same attempt again."""
        if attempt == self._attempt:
            self._next.update(self._before)
        self._attempt = attempt
        self._before = {}

    def move(self, advanced: Mapping[Partition, int]) -> None:
        """The read that has begun returned the records below these offsets."""
        for partition, offset in advanced.items():
            if partition in self._next:
                self._before.setdefault(partition, self._next[partition])
                self._next[partition] = offset

    def take_back(self, attempt: str) -> None:
        """Goes back to where this attempt began, since its records never arrived. It does nothing if another attempt
        has begun.
        """
        if attempt == self._attempt:
            self._next.update(self._before)
            self._before = {}

    # -- commits ------------------------------------------------------------------------------------------------------

    def processed(self) -> dict[Partition, int]:
        """The processed offsets that differ from the committed ones: an automatic commit may commit them."""
        return self._changed({**self._next, **self._before})

    def returned(self) -> dict[Partition, int]:
        """All where its reads have come to, and that is not committed."""
        return self._changed(self._next)

    def commit(self, partitions: Mapping[Partition, int]) -> None:
        """These are committed."""
        for partition, offset in partitions.items():
            if partition in self._partitions:
                self._committed[partition] = offset

    def _changed(self, offsets: Mapping[Partition, int]) -> dict[Partition, int]:
        return {partition: offset for partition, offset in offsets.items() if self._committed.get(partition) != offset}
