"""The rows of a log behind its journal's floor are compared with the journal, and with the values that are chosen.

A log's *row* is the catalog entry of a batch. It names the position at which the batch was agreed on, and the value's
*birth*: the ballot number under which that value was first proposed. When the row is written the journal may or may not
have the value on its disk; the row records that as well: the value is *accounted for* if it has. So a row that is
accounted for, and whose value the journal lacks after a restart, proves that the journal has lost something durable:
this replica has forgotten what it accepted. Rows of values that were only learned, or whose journal entry was not
durable yet, prove nothing, and neither do copied batches, which name no position.

A row that the journal does not account for may be chosen, or known to no other replica. So every row behind the floor
is compared, as values are applied again, with the value applied at its position. The log differs from the chosen values

- if another value, or a void one, is applied at the row's own position;
- if a position behind the row's is applied, and the row's value was not met;
- if a value before the row's position takes the offset at which the row begins, or has a newer birth, so that the row's
  value is void;
- for a row without a position: if its leader epoch is not that of the value applied at its offset. A power cut can take
  a row and leave its batch; the row that is rebuilt from the batch has the batch's epoch, which no checksum covers.

From that row on the log is truncated, and the chosen values are appended.

If the journal continues at a later floor, no journal knows the values below it any more. Hidden rows there are
*doubted*: they stay in the log, and are compared with other replicas' logs (`doubts`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tidelog.broker.paxos.ballots import epoch_of
from tidelog.replication.paxos.apply import Verdict
from tidelog.replication.paxos.events import Applied
from tidelog.replication.paxos.state import Kind, Prefix, Slot, Value
from tidelog.storage.partition_log import PartitionLog
from tidelog.storage.rows import Row

# Births have the leader epoch in their high bits, and never come near this one.
ACCOUNTED = 1 << 63
"""The bit of a row's `number`, beside the value's birth, that is set if the journal had the value durably."""


class AppliedRow(NamedTuple):
    """The log's catalog row of a batch that this replica applied from its own journal: its log position, and the ballot
    number under which it was first proposed (`birth`). `is_accounted`: the journal had its value durably."""

    base_offset: int
    position: int
    birth: int
    is_accounted: bool


def row_identity(position: int, birth: int, *, is_accounted: bool) -> tuple[int, int]:
    """Returns the (position, number) pair that a log's catalog row stores: `number` is the ballot number under which
    the value was first proposed, with the `ACCOUNTED` bit set if the journal has the value durably."""
    return position, birth | ACCOUNTED if is_accounted else birth


def birth_of(number: int) -> int:
    """Returns the birth of a row's value: the ballot number under which it was first proposed."""
    return number & ~ACCOUNTED


def rows_beyond(log: PartitionLog, floor: Prefix) -> list[AppliedRow]:
    """Returns the log's catalog rows that name a position at or behind the journal's floor (its start), in order.
    Blocking; raises `Overloaded`."""
    return [
        AppliedRow(row.base_offset, row.position, birth_of(row.number), row.number >= ACCOUNTED)
        for row in log.entries(max(floor.next_offset, log.log_start_offset))
        if isinstance(row, Row) and row.number > 0 and row.position >= floor.position
    ]


def unnamed_beyond(log: PartitionLog, floor: Prefix) -> list[tuple[int, int]]:
    """Returns (base offset, leader epoch) of the log's catalog rows behind the journal's floor (its start) that name no
    log position, in order. Blocking; raises `Overloaded`."""
    return [
        (row.base_offset, row.epoch)
        for row in log.entries(max(floor.next_offset, log.log_start_offset))
        if isinstance(row, Row) and row.number == 0
    ]


def find_forgotten(rows: Iterable[AppliedRow], slots: Sequence[Slot]) -> AppliedRow | None:
    """Returns the first row that proves that the journal has lost a durable value, or None.

    Such a row says that the journal had its value durably, but `slots`, the journal's content now, lack it. A slot of
    kind `UNKNOWN`, whose position the disk has kept and whose value it has lost, counts as having the value.
    """
    held = {slot.position: slot.value for slot in slots}
    for row in rows:
        value = held.get(row.position)
        # A slot without its name is there all the same: it will not be denied, and that is what counts.
        is_held = value is not None and (value.kind is Kind.UNKNOWN or value.birth == row.birth)
        # Rows that are not accounted for prove nothing: their values may have been applied by the word of others.
        if row.is_accounted and not is_held:
            return row
    return None


class Comparison:
    """The comparison of one replica's log with the chosen values, from the opening of the log on.

    From offset `rows_hidden_from` on, no row that names its position is shown to readers before it is compared; None if
    all rows may be shown. Rows below `doubted_to` among these can be compared with other replicas' logs only.
    """

    def __init__(
        self,
        rows: Iterable[AppliedRow] = (),
        rows_hidden_from: int | None = None,
        unnamed: Iterable[tuple[int, int]] = (),
        doubted_to: int = 0,
    ) -> None:
        self._rows = deque(rows)
        self._unnamed = deque(unnamed)
        self._rows_hidden_from = rows_hidden_from
        self._doubted_to = doubted_to

    @property
    def hidden_from(self) -> int | None:
        """Offset from which on readers see nothing until it is compared; None if they may see everything."""
        if not self._unnamed:
            return self._rows_hidden_from
        # Such a batch names no position, so nobody knows by which leader it was written, and whether it was ever
        # chosen.
        unnamed_from = self._unnamed[0][0]
        return unnamed_from if self._rows_hidden_from is None else min(unnamed_from, self._rows_hidden_from)

    @property
    def is_done(self) -> bool:
        """True if every row of the log that may differ from the chosen values has been compared with them."""
        return not self._rows and not self._unnamed and not self.doubted

    @property
    def doubted(self) -> range:
        """Offsets whose batches can be verified by other replicas' logs only, because no journal has their values any
        more."""
        hidden_from = self._rows_hidden_from
        return range(0) if hidden_from is None else range(hidden_from, self._doubted_to)

    def hidden_below(self, offset: int) -> int:
        """Returns the offset from which on rows below `offset` are hidden because their values may have been forgotten;
        -1 if none is."""
        hidden_from = self._rows_hidden_from
        return hidden_from if hidden_from is not None and hidden_from < offset else -1

    def pass_over(self, offset: int) -> None:
        """Skips the rows below this offset, since their records are deleted."""
        while self._rows and self._rows[0].base_offset < offset:
            self._rows.popleft()
        self._drop_unnamed(offset)

    def agrees(self, position: int, value: Value) -> bool:
        """Returns True if nothing contradicts that the log, which ends behind this value's offsets, holds the value
        applied at `position`: no batch there has another leader epoch, and the next row to compare is this value's or
        begins behind it."""
        if self._misdated(value) is not None:
            return False
        if not self._rows:
            return True
        row = self._rows[0]
        if row.position == position:
            return row.birth == value.birth
        return row.position > position and row.base_offset >= value.base_offset + value.count

    def at_odds(self, applied: Applied) -> int | None:
        """Compares the value applied at the next position with the log; returns the offset from which on the log has to
        be truncated, or None if they agree. May be called again for the same position."""
        position, value = applied.position, applied.value
        counts = applied.verdict is Verdict.APPLIED
        is_batch = counts and value.kind is Kind.APPEND
        if is_batch:
            if (offset := self._misdated(value)) is not None:
                return offset
            # Their leader epoch is that of the chosen value at the same offsets: one leader gives each offset out once.
            self._drop_unnamed(value.base_offset + value.count)
        while self._rows:
            row = self._rows[0]
            if row.position > position:
                # Behind a value of a newer birth an older one is void, so this row's batch is not in force.
                is_void = counts and row.birth < value.birth
                # Two batches cannot begin within the same offsets, so the log's is not the chosen one.
                is_within = is_batch and value.base_offset <= row.base_offset < value.base_offset + value.count
                if is_void or is_within:
                    return row.base_offset
                break
            # The row's position has passed without it, or holds another value: its batch was never chosen.
            if row.position < position or not is_batch or row.birth != value.birth:
                return row.base_offset
            self._rows.popleft()
        self._show()
        return None

    def _misdated(self, value: Value) -> int | None:
        """Returns the first offset of this value at which the log has a batch of another leader epoch; None if there is
        none."""
        for offset, epoch in self._unnamed:
            if offset >= value.base_offset + value.count:
                break
            # A power cut may have taken the row: it was made again from the batch, whose leader epoch no checksum
            # covers.
            if offset >= value.base_offset and epoch != epoch_of(value.birth):
                return offset
        return None

    def _drop_unnamed(self, offset: int) -> None:
        while self._unnamed and self._unnamed[0][0] < offset:
            self._unnamed.popleft()

    def jumped(self, floor: Prefix) -> int | None:
        """Continues at a journal's floor (its start) whose earlier values no journal knows any more; returns the offset
        from which on the log contradicts the floor, or None. Hidden rows below the floor become doubted, all other rows
        below it are trusted."""
        distrusted = []
        hidden_from = self._rows_hidden_from
        while self._rows and self._rows[0].position < floor.position:
            # What is chosen below the floor's position has offsets below the floor's; so this batch was not.
            if hidden_from is not None and self._rows[0].base_offset >= max(hidden_from, floor.next_offset):
                distrusted.append(self._rows[0].base_offset)
                break
            self._rows.popleft()
        while self._unnamed and self._unnamed[0][0] < floor.next_offset:
            offset, epoch = self._unnamed[0]
            # A later epoch than anything below the floor: no leader of those positions has written it.
            if epoch > epoch_of(floor.epoch):
                distrusted.append(offset)
                break
            self._unnamed.popleft()
        if hidden_from is not None and hidden_from < floor.next_offset:
            # It may be the last good copy of something, so it is not truncated; but nothing here tells if it was
            # chosen.
            self._doubted_to = max(self._doubted_to, floor.next_offset)
        self._show()
        return min(distrusted, default=None)

    def settled(self, offset: int) -> None:
        """Takes the doubted offsets (which no journal can confirm) below `offset` as compared."""
        if self._rows_hidden_from is not None:
            self._rows_hidden_from = max(self._rows_hidden_from, offset)
        self._show()

    def truncated(self, offset: int) -> None:
        """Forgets all rows that were to be compared, as the log was truncated to `offset`. Of the doubted offsets,
        which are compared with other replicas' logs, those below `offset` remain."""
        self._rows.clear()
        self._unnamed.clear()
        self._doubted_to = min(self._doubted_to, offset)
        self._show()

    def _show(self) -> None:
        # While something below is doubted nothing above it can be shown: readers go by one end.
        if self._rows_hidden_from is not None and not self.doubted:
            self._rows_hidden_from = max(self._rows_hidden_from, self._rows[0].base_offset) if self._rows else None
