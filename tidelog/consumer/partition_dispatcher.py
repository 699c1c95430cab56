"""The dispatcher of one partition: which of its records may be processed now, beside those that are.

    read -> held: ready | behind a record of its key -> handed out -> finished -> the partition's processed offsets

`order` says which records conflict, and so are processed one after the other in the order of their offsets:

    total   all records of the partition
    key     records of the same key; a record without a key conflicts with none
    none    no two records

Of the records that may be processed the lowest offset comes first, nearly: those that have waited for their key, and
those that have not, are each in the order in which they became ready, and the lower head of the two queues is taken. So
`take` takes constant time, whatever is held, and the same calls always give the same records.

**Bounds.** Reading stops (`wants_more`) when the records that are held, their bytes, or the intervals processed above
the low offset reach a bound; and goes on when all three are below half of it. While a commit has no room for another
interval, only the lowest record that is held is handed out: no record below it can keep it waiting, and when it is
finished the low offset moves and the intervals get fewer. So the bound is kept, and no record waits for ever.

**Records read early**, above the high watermark, are held and processed like others, and counted once: where reading in
order comes to a record that is held or processed already, it is not held again. They are taken in only while half of
each bound is free, so that there is always room for what comes in order, which alone moves the low offset; and reading
in order never stops while all that it has brought is processed.

**Offsets without a record** (deleted by compaction, or passed by the commit protocol) count as processed with the next
record above them: a record stands for all offsets from `start`, behind the record before it.

Pure: no clock, no tasks.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Literal

from tidelog.consumer.intervals import ProcessedOffsets
from tidelog.consumer.records import ConsumerRecord

Order = Literal["total", "key", "none"]

HELD_MAX: Final = 10_000
"""The number of records of a partition that are held, processed ones not counted."""
EARLY_LEVEL: Final = 0.5
"""The used share of each bound from which on no records are read early."""


class State(Enum):
    """The state of a held record."""

    BEHIND = auto()
    """An earlier record of the same key is not finished."""
    READY = auto()
    TAKEN = auto()
    """Handed out, and being processed."""
    DROPPED = auto()
    """Being processed while the partition was begun anew: the record counts no more, but keeps its key busy."""


@dataclass(slots=True, eq=False)
class HeldRecord:
    """A record that was read, and is not processed."""

    record: ConsumerRecord
    start: int
    """The offset behind the partition's previous record; the offsets from there to this record belong to no record, and
    count as processed together with it."""
    key: bytes | None
    """The key that the record conflicts by: two records of the same key are not processed at the same time. None for a
    record that conflicts with no other."""
    state: State

    @property
    def size(self) -> int:
        """The size of the record's key, value and headers (bytes)."""
        headers = sum(len(name) + len(value or b"") for name, value in self.record.headers)
        return len(self.record.key or b"") + len(self.record.value or b"") + headers


class PartitionDispatcher:
    """The records of one partition that are held and processed."""

    def __init__(
        self, order: Order, processed: ProcessedOffsets, *, held_max: int = HELD_MAX, bytes_max: int = 1 << 20
    ) -> None:
        self._order = order
        self._held_max = held_max
        self.bytes_max = bytes_max
        """The size of the held records at which reading stops (bytes)."""
        self._taken: dict[HeldRecord, None] = {}
        self.begin(processed)

    def begin(self, processed: ProcessedOffsets) -> None:
        """Begins anew at `processed.low`: forgets what is held. A record that is being processed keeps its key busy
        until it is finished, and does not count as processed."""
        self.processed = processed
        self.end = processed.low
        """The offset up to which records were read."""
        self._position = processed.low
        """The offset where reading goes on: `end`, or beyond it where no records are between the two."""
        for taken in self._taken:
            taken.state = State.DROPPED
        self._early_end = processed.low
        """The offset up to which records were read early."""
        self._held: OrderedDict[int, HeldRecord] = OrderedDict()
        """The records that were read in order and are not processed, by offset, in the order of offsets."""
        self._early: dict[int, HeldRecord] = {}
        """The records that were read early and are not processed, above `end`, by offset."""
        self._behind: dict[bytes, deque[HeldRecord]] = {
            taken.key: deque() for taken in self._taken if taken.key is not None
        }
        """The records that wait for one of their key, by the keys of which a record is ready or being processed."""
        self._ready: deque[HeldRecord] = deque()
        self._freed: deque[HeldRecord] = deque()
        """Ready records that have waited for their key."""
        self._bytes = 0
        self._is_full = False
        self._is_closed = False

    def close(self) -> None:
        """Hands out no more records, for good; those being processed may be finished."""
        self._is_closed = True

    # -- what is read ---------------------------------------------------------------------------------------------

    @property
    def wants_more(self) -> bool:
        """True if more records may be read."""
        return not self._is_closed and not self._is_full

    @property
    def wants_early(self) -> bool:
        """True if more records may be read early."""
        return self.wants_more and self._level() < EARLY_LEVEL

    @property
    def room(self) -> int:
        """The number of records that may be added at a time; at least one, because a batch that was read early may have
        filled all the room."""
        return max(1, self._held_max - self.held)

    def add(self, records: Sequence[ConsumerRecord], position: int) -> None:
        """Takes records in that were read next, in the order of offsets; reading goes on at `position`."""
        for record in records:
            start, self.end = self.end, record.offset + 1
            if record.offset in self.processed:
                self.processed.add(start, self.end)
            elif (held := self._early.pop(record.offset, None)) is not None:
                held.start = start
                self._held[record.offset] = held
            else:
                self._held[record.offset] = self._hold(record, start)
        self._position = position
        self._pass_rest()
        self._weigh()

    def add_early(self, records: Sequence[ConsumerRecord]) -> None:
        """Takes records in that were read above the high watermark, in the order of offsets, after all that were read
        in order before, and after all read early that they wait for."""
        for record in records:
            if record.offset >= self.end and record.offset not in self._early and record.offset not in self.processed:
                self._early[record.offset] = self._hold(record, record.offset)
                self._early_end = max(self._early_end, record.offset + 1)
        self._weigh()

    def _hold(self, record: ConsumerRecord, start: int) -> HeldRecord:
        match self._order:
            case "total":
                key: bytes | None = b""
            case "key":
                key = record.key
            case "none":
                key = None
        held = HeldRecord(record, start, key, State.READY)
        self._bytes += held.size
        if key is None:
            self._ready.append(held)
        elif key in self._behind:
            held.state = State.BEHIND
            self._behind[key].append(held)
        else:
            self._behind[key] = deque()
            self._ready.append(held)
        return held

    # -- what is handed out ---------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """True if all records that were read in order are processed."""
        return not self._held

    @property
    def held(self) -> int:
        """The number of records that were read and are not processed."""
        return len(self._held) + len(self._early)

    @property
    def taken(self) -> int:
        """The number of records that are being processed."""
        return len(self._taken)

    def take(self) -> HeldRecord | None:
        """Returns the next record to process, to be told `finish` or `abandon`; None if no record may be processed
        now."""
        if self._is_closed:
            return None
        if self._interval_level() > 1:
            held = next(iter(self._held.values()), None)
            if held is None or held.state is not State.READY:
                return None
        else:
            held = self._lower_head()
            if held is None:
                return None
        held.state = State.TAKEN
        self._taken[held] = None
        return held

    def _lower_head(self) -> HeldRecord | None:
        """Takes the head of the two queues of ready records with the lower offset."""
        for queue in (self._ready, self._freed):
            while queue and queue[0].state is not State.READY:  # handed out past the queue, being the lowest
                queue.popleft()
        if not self._ready:
            return self._freed.popleft() if self._freed else None
        is_freed_lower = self._freed and self._freed[0].start < self._ready[0].start
        return (self._freed if is_freed_lower else self._ready).popleft()

    def finish(self, held: HeldRecord) -> None:
        """Counts a record as processed; the next one of its key may be handed out."""
        del self._taken[held]
        self._free(held.key)
        if held.state is State.DROPPED:
            return
        del (self._early if held.record.offset in self._early else self._held)[held.record.offset]
        self._bytes -= held.size
        self.processed.add(held.start, held.record.offset + 1)
        self._pass_rest()
        self._weigh()

    def abandon(self, held: HeldRecord) -> None:
        """Gives up processing a record. It stays unprocessed, and no record of its key is handed out any more, until
        the partition is begun anew."""
        del self._taken[held]

    def _free(self, key: bytes | None) -> None:
        if key is None:
            return
        behind = self._behind[key]
        if behind:
            freed = behind.popleft()
            freed.state = State.READY
            self._freed.append(freed)
        else:
            del self._behind[key]

    def _pass_rest(self) -> None:
        """Counts offsets behind the last record that hold no records as processed, if all before them are."""
        if not self._held and self.end < self._position:
            self.processed.add(self.end, self._position)
            self.end = self._position

    def _weigh(self) -> None:
        """Decides whether reading stops: when the number of held records, their bytes, or the intervals of a commit
        reach their maximum; until all three are below half of it, or all that was read in order is processed."""
        self._is_full = not self.is_idle and self._level() >= (0.5 if self._is_full else 1)

    def _level(self) -> float:
        """Returns how full the fullest of the three bounds is; 1 if it is reached."""
        return max(self.held / self._held_max, self._bytes / self.bytes_max, self._interval_level())

    def _interval_level(self) -> float:
        """Returns how full a commit is if each record that is being processed, and another one, becomes an interval."""
        return self.processed.fill_level(len(self._taken) + 1, max(self.end, self._early_end))
