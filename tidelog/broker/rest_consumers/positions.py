"""Where an instance is in its partitions, and what of that may be committed. No I/O, no time.

Three offsets for each partition, each the *next* one to be read, as with Kafka's consumers:

    committed <= processed <= next

`next` is where its reads have come to. `processed` is where they had come to before the latest one: who comes for more
has done what it got, and nothing is known yet of what it got last. So a commit that nobody asked for commits what is
processed; one that the client asks for, `next`.

A read belongs to an *attempt*. Who repeats an attempt did not get its records, and has them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidelog.broker.rest_consumers.requests import Place


class Positions:
    """The positions of one instance, for the partitions that it has now."""

    __slots__ = ("_attempt", "_before", "_committed", "_next", "_placed")

    def __init__(self) -> None:
        self._next: dict[Place, int] = {}
        self._placed: tuple[Place, ...] = ()
        self._before: dict[Place, int] = {}
        """Where the latest read began, of those that it moved."""
        self._committed: dict[Place, int] = {}
        self._attempt = ""

    # -- which partitions ---------------------------------------------------------------------------------------------

    @property
    def places(self) -> tuple[Place, ...]:
        """All that it has, sorted."""
        return self._placed

    def have(self, places: Iterable[Place]) -> None:
        """It has these from now on, and no others. Those that it had before are not disturbed."""
        self._placed = tuple(sorted(places))
        kept = dict.fromkeys(self._placed)
        for table in (self._next, self._before, self._committed):
            for gone in [place for place in table if place not in kept]:
                del table[gone]

    @property
    def unknown(self) -> list[Place]:
        """Those of which nobody has said yet where to begin."""
        return [place for place in self._placed if place not in self._next]

    @property
    def known(self) -> list[tuple[Place, int]]:
        """Partitions, and where to read on."""
        return [(place, self._next[place]) for place in self._placed if place in self._next]

    # -- moves --------------------------------------------------------------------------------------------------------

    def begin(self, place: Place, offset: int, *, is_committed: bool = False) -> None:
        """It goes on here: it has just got the partition, or somebody says so. Unless it has lost it meanwhile."""
        if place not in self._placed:
            return
        self._next[place] = offset
        self._before.pop(place, None)
        if is_committed:
            self._committed[place] = offset

    def begin_read(self, attempt: str) -> None:
        """A read begins. What the one before returned is processed; unless it is the same attempt again."""
        if attempt == self._attempt:
            self._next.update(self._before)
        self._attempt = attempt
        self._before = {}

    def move(self, moved: Mapping[Place, int]) -> None:
        """The read that has begun returned the records below these offsets."""
        for place, offset in moved.items():
            if place in self._next:
                self._before.setdefault(place, self._next[place])
                self._next[place] = offset

    def take_back(self, attempt: str) -> None:
        """What this attempt returned never arrived. Means nothing if another one has begun."""
        if attempt == self._attempt:
            self._next.update(self._before)
            self._before = {}

    # -- commits ------------------------------------------------------------------------------------------------------

    def processed(self) -> dict[Place, int]:
        """What may be committed unasked, and is not."""
        return self._changed({**self._next, **self._before})

    def returned(self) -> dict[Place, int]:
        """All where its reads have come to, and that is not committed."""
        return self._changed(self._next)

    def commit(self, places: Mapping[Place, int]) -> None:
        """These are committed."""
        for place, offset in places.items():
            if place in self._placed:
                self._committed[place] = offset

    def _changed(self, offsets: Mapping[Place, int]) -> dict[Place, int]:
        return {place: offset for place, offset in offsets.items() if self._committed.get(place) != offset}
