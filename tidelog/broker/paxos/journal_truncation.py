"""When the head of a journal is of no more use, and how much of it.

What is applied lies twice on a replica's disk: in the journal, and in the log of applied batches. The leader has the
journals truncated by a TRUNCATE, now and then, when its own has grown by so much. `covered` tells how much may go.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.replication.quorum import Quorum

HOPELESS = 4
"""A replica that is so many times the journal's bound behind is waited for no more."""

WORTH_SHARE = 4
"""At least one slot in so many is given up at a time."""


class JournalBounds(NamedTuple):
    """Bounds of a journal (`paxos.journal.max.bytes`, `.max.entries`). It grows beyond them until a TRUNCATE takes
    effect, a segment at a time."""

    bytes_max: int = 64 << 20
    slots_max: int = 20_000
    """A slot costs memory as long as it is in the journal."""


class JournalUsage(NamedTuple):
    """The bytes and slots that a journal holds now."""

    journal_bytes: int
    slots: int


class JournalTruncation:
    """A leader's view of its partition."""

    def __init__(self, settings: JournalBounds) -> None:
        self._settings = settings
        self._durable: dict[int, int] = {}
        self._left = JournalUsage(0, 0)

    def heard(self, engine_id: int, durable_offset: int) -> None:
        """Notes how far a replica's log is durable; less than before if it was begun anew."""
        self._durable[engine_id] = durable_offset

    def durable_end_of(self, engine_id: int) -> int:
        """Returns how far it was heard to be durable last; -1 if it was not."""
        return self._durable.get(engine_id, -1)

    def truncated(self, usage: JournalUsage) -> None:
        """Notes how much the last TRUNCATE has left."""
        self._left = usage

    def is_due(self, usage: JournalUsage) -> bool:
        """Returns True if the journal has outgrown its bounds, and by half what the last TRUNCATE has left."""
        settings, left = self._settings, self._left
        by_bytes = usage.journal_bytes > max(settings.bytes_max, left.journal_bytes * 3 // 2)
        return by_bytes or usage.slots > max(settings.slots_max, left.slots * 3 // 2)

    def is_worth_it(self, slots: int, usage: JournalUsage) -> bool:
        """Returns True if a TRUNCATE, which costs a round of its own, would give up a good part of the slots."""
        return slots * WORTH_SHARE >= usage.slots

    def covered(self, quorum: Quorum, live: Sequence[int], usage: JournalUsage) -> int:
        """Returns the offset up to which the logs of a quorum, and of all that are waited for, are durable."""
        # A replica that is alive and merely a little behind should not have to copy anything, so all live ones are
        # waited for, until the journal has become several times as long as it should be.
        waited_for = [] if self._is_hopeless(usage) else [member for member in live if member in quorum]
        reached = [self._durable.get(member, 0) for member in quorum.members]
        for offset in sorted(set(reached), reverse=True):
            holders = [member for member in quorum.members if self._durable.get(member, 0) >= offset]
            # A replica that lacks something below copies it from another's log. From then on those logs alone keep it,
            # so a quorum must have it durable there: a loss of power takes the rest.
            if quorum.is_met(holders) and all(member in holders for member in waited_for):
                return offset
        return 0

    def _is_hopeless(self, usage: JournalUsage) -> bool:
        settings = self._settings
        return usage.journal_bytes > HOPELESS * settings.bytes_max or usage.slots > HOPELESS * settings.slots_max
