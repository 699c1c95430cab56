"""Decides when the head of a partition's journal is truncated, and up to which position.

An applied batch is on a replica's disk twice: in the journal, and in the log of applied batches. When its own journal
has grown beyond a bound, the leader proposes a TRUNCATE value, which truncates the heads of all journals. `covered`
returns how far that may go.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.replication.quorum import Quorum

HOPELESS = 4
"""A live replica is no longer waited for once the journal is this many times as large as its bound."""

WORTH_SHARE = 4
"""A TRUNCATE is proposed only if it gives up at least one in this many slots."""


class JournalBounds(NamedTuple):
    """Bounds of a journal (`paxos.journal.max.bytes`, `.max.entries`). The journal exceeds them until a TRUNCATE takes
    effect, which removes whole segments."""

    bytes_max: int = 64 << 20
    slots_max: int = 20_000
    """Slots that the journal may hold: each costs memory until it is truncated."""


class JournalUsage(NamedTuple):
    """The bytes and slots that a journal holds now."""

    journal_bytes: int
    slots: int


class JournalTruncation:
    """The leader's view of the journals of its partition: how far each replica's log is durable."""

    def __init__(self, settings: JournalBounds) -> None:
        self._settings = settings
        self._durable: dict[int, int] = {}
        self._left = JournalUsage(0, 0)

    def heard(self, engine_id: int, durable_offset: int) -> None:
        """Notes up to which offset a replica's log is durable. The offset may fall if the replica was begun anew."""
        self._durable[engine_id] = durable_offset

    def durable_end_of(self, engine_id: int) -> int:
        """Returns the offset up to which a replica last reported its log as durable; -1 if it has not reported."""
        return self._durable.get(engine_id, -1)

    def truncated(self, usage: JournalUsage) -> None:
        """Notes the size of the journal after a TRUNCATE was applied."""
        self._left = usage

    def is_due(self, usage: JournalUsage) -> bool:
        """Returns True if the journal exceeds its bounds, and has grown by half since the last TRUNCATE."""
        settings, left = self._settings, self._left
        by_bytes = usage.journal_bytes > max(settings.bytes_max, left.journal_bytes * 3 // 2)
        return by_bytes or usage.slots > max(settings.slots_max, left.slots * 3 // 2)

    def is_worth_it(self, slots: int, usage: JournalUsage) -> bool:
        """Returns True if truncating this many slots is worth the round of messages that a TRUNCATE costs."""
        return slots * WORTH_SHARE >= usage.slots

    def covered(self, quorum: Quorum, live: Sequence[int], usage: JournalUsage) -> int:
        """Returns the offset up to which the logs of a quorum, and of all live replicas that are not hopelessly behind,
        are durable."""
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
