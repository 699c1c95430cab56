"""The rows of a log beyond its journal's floor are compared with the journal, and with what is chosen.

The log's row of a batch says at which position it was agreed on, and by which birth. When the row is written the
journal may or may not have that value on its disk yet; the row says that as well: its value is *accounted for*. So a
row that is accounted for, and that the journal has no such slot for, proves that the journal has lost what was durable:
this replica has forgotten what it accepted. Rows of values that were only learned, or whose journal entry was still on
its way, prove nothing, and neither do copied batches, which name no position.

What the journal does not account for may be chosen, or be what nobody else has ever heard of. So every row beyond the
floor is compared, as the log is applied again, with what stands at its position. A row is at odds with what is applied

- at its own position, if that is another value or none that counts;
- behind its position, if it was not met there;
- before its position, if it begins within the offsets of what is applied, or is of an older birth, and so void.

- at its own offset, if it names no position and is of another leader epoch. A power cut can take a row and leave its
  batch; the row that is made again from the batch has the epoch that stands there, which no checksum covers.

From there on the log is truncated, and goes on with what is chosen.

Where the journal goes on at a later floor, nobody tells any more what stood at the positions below. What is hidden
there is *doubted*: it stays, and is compared with other replicas' logs (`doubts`).
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
"""In a row's `number`, beside the birth: the journal had the value on its disk."""


class AppliedRow(NamedTuple):
    """A row of the log, of a batch that its replica has applied itself."""

    base_offset: int
    position: int
    birth: int
    is_accounted: bool


def row_identity(position: int, birth: int, *, is_accounted: bool) -> tuple[int, int]:
    """Returns position and number of a row."""
    return position, birth | ACCOUNTED if is_accounted else birth


def birth_of(number: int) -> int:
    """Returns the birth that a row's number names."""
    return number & ~ACCOUNTED


def rows_beyond(log: PartitionLog, floor: Prefix) -> list[AppliedRow]:
    """Returns the log's rows of positions from the floor on, in order. Blocking; raises `Overloaded`."""
    return [
        AppliedRow(row.base_offset, row.position, birth_of(row.number), row.number >= ACCOUNTED)
        for row in log.entries(max(floor.next_offset, log.log_start_offset))
        if isinstance(row, Row) and row.number > 0 and row.position >= floor.position
    ]


def unnamed_beyond(log: PartitionLog, floor: Prefix) -> list[tuple[int, int]]:
    """Returns (base offset, leader epoch) of the log's rows behind the floor that name no position, in order. Blocking;
    raises `Overloaded`."""
    return [
        (row.base_offset, row.epoch)
        for row in log.entries(max(floor.next_offset, log.log_start_offset))
        if isinstance(row, Row) and row.number == 0
    ]


def find_forgotten(rows: Iterable[AppliedRow], slots: Sequence[Slot]) -> AppliedRow | None:
    """Returns the first row that the journal must have had a slot for, and has not. A slot that has lost its value's
    name is there, and its number stands."""
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
    """Compares one log, from its opening on. `rows_hidden_from` is the offset from which on no row that names its
    position is shown before it is compared; None if all are. From there to `doubted_to` no row is."""

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
        """The offset from which on nothing is shown before it is compared; None if all is."""
        if not self._unnamed:
            return self._rows_hidden_from
        # Such a batch names no position, so nobody knows by which leader it was written, and whether it was ever
        # chosen.
        unnamed_from = self._unnamed[0][0]
        return unnamed_from if self._rows_hidden_from is None else min(unnamed_from, self._rows_hidden_from)

    @property
    def is_done(self) -> bool:
        """True if no row is left that was not compared."""
        return not self._rows and not self._unnamed and not self.doubted

    @property
    def doubted(self) -> range:
        """The offsets of which nobody but other replicas' logs can tell what stands there."""
        hidden_from = self._rows_hidden_from
        return range(0) if hidden_from is None else range(hidden_from, self._doubted_to)

    def hidden_below(self, offset: int) -> int:
        """Returns from where on rows below this offset are hidden that may have been forgotten; -1 if none are."""
        hidden_from = self._rows_hidden_from
        return hidden_from if hidden_from is not None and hidden_from < offset else -1

    def pass_over(self, offset: int) -> None:
        """Takes rows below this offset for compared: their records are deleted."""
        while self._rows and self._rows[0].base_offset < offset:
            self._rows.popleft()
        self._drop_unnamed(offset)

    def agrees(self, position: int, value: Value) -> bool:
        """Returns True if the log, whose end lies behind this value, holds it, as far as its next row tells."""
        if self._misdated(value) is not None:
            return False
        if not self._rows:
            return True
        row = self._rows[0]
        if row.position == position:
            return row.birth == value.birth
        return row.position > position and row.base_offset >= value.base_offset + value.count

    def at_odds(self, applied: Applied) -> int | None:
        """Compares the value at the next position with the log; returns the offset from which on the log is at odds
        with it, or None. The same position may be asked for again."""
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
        """Returns the first of this value's offsets where the log has another leader epoch."""
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
        """Goes on at this floor, below which nobody tells any more what was chosen; returns the offset from which on
        the log is at odds with the floor, or None. Rows that are hidden below are doubted from now on, and all others
        are relied on."""
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
        """Takes what is doubted below this offset for compared."""
        if self._rows_hidden_from is not None:
            self._rows_hidden_from = max(self._rows_hidden_from, offset)
        self._show()

    def truncated(self, offset: int) -> None:
        """Notes that the log was truncated to `offset`: nothing is left to compare but what is doubted below."""
        self._rows.clear()
        self._unnamed.clear()
        self._doubted_to = min(self._doubted_to, offset)
        self._show()

    def _show(self) -> None:
        # While something below is doubted nothing above it can be shown: readers go by one end.
        if self._rows_hidden_from is not None and not self.doubted:
            self._rows_hidden_from = max(self._rows_hidden_from, self._rows[0].base_offset) if self._rows else None
