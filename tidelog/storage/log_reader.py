"""Reading a log: which segment holds an offset, which offsets are missing between segments, and the producers' states
where the log begins."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from tidelog.model.batch_codec import empty_batch
from tidelog.model.errors import DamagedBatch
from tidelog.model.ports import Buffer
from tidelog.model.producers import ProducerState
from tidelog.storage.log_state import LogState
from tidelog.storage.rows import Row
from tidelog.storage.segment import Damage, Entry, Extent, Segment
from tidelog.storage.trails import read_trails

FILLER_OFFSETS_MAX = (1 << 31) - 1
"""The largest number of offsets that one batch can span."""


class PassingRead(NamedTuple):
    """The result of a read that skips offsets which an operator has given up."""

    extent: Extent
    lost: tuple[int, int] | None
    """The given-up offsets [start, end) that were skipped before the first batch; None if there were none."""


class LogReader:
    """Reads a log, and notes the damage that it finds. End offsets of reads are exclusive, and at most the
    log's end."""

    def __init__(self, state: LogState) -> None:
        self._state = state

    # -- walking --------------------------------------------------------------------------------------------------

    def parts(self, offset: int) -> Iterator[Segment | Damage]:
        """Yields the segments from the one that holds `offset` on, and a `Damage` where files of segments are
        missing."""
        segments = self._state.segments
        # The last segment that begins at or before the offset: those before it end before it.
        first = bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1
        expected = offset
        for segment in segments[max(first, 0) :]:
            # Segments follow each other without a gap, so one that begins later has lost the files before it. Passing
            # over them in silence would hide acknowledged records.
            if segment.base_offset > expected:
                yield Damage(expected, segment.base_offset, "segment files are missing")
            yield segment
            expected = max(expected, segment.end_offset)

    def entries(self, offset: int) -> Iterator[Entry]:
        """Yields the catalog rows of the batches, and the damaged ranges, in order of offsets, from the one that holds
        `offset` on."""
        for part in self.parts(offset):
            if isinstance(part, Damage):
                yield part
            else:
                yield from part.entries(offset)

    # -- reading --------------------------------------------------------------------------------------------------

    def extent(self, offset: int, bytes_max: int, end_offset: int) -> Extent:
        """Reads verified batches of one segment, from the one that holds `offset` on. If there are none, the result
        names the damage at `offset`, or is empty at the end."""
        extent = self._extent(offset, bytes_max, end_offset)
        if extent.damage is not None:
            # Whoever meets damage reports it, so that the repair begins with the first reader, not with the next scrub.
            self._state.damage.note(extent.damage)
        return extent

    def _extent(self, offset: int, bytes_max: int, end_offset: int) -> Extent:
        for part in self.parts(offset):
            if isinstance(part, Damage):
                return Extent(b"", offset, part if part.start < end_offset else None)
            extent = part.read(offset, bytes_max, end_offset)
            if extent.data or extent.damage is not None or part.end_offset >= end_offset:
                return extent
        return Extent(b"", offset, None)

    def read(self, offset: int, bytes_max: int, end_offset: int) -> Extent:
        """Reads verified batches from the one that holds `offset`, below `end_offset`; none at the end.

        Raises `OffsetOutOfRange`, `Overloaded`, or `DamagedBatch` if the batch that holds `offset` is damaged.
        """
        self._state.require_in_range(offset, self._state.tail.offset)
        return self._read(offset, bytes_max, end_offset)

    def _read(self, offset: int, bytes_max: int, end_offset: int) -> Extent:
        extent = self.extent(offset, bytes_max, end_offset)
        # Damage behind sound batches is no error yet: these are returned, and the next read begins with it.
        if extent.damage is not None and not extent.data:
            raise self._damaged(extent.damage)
        return extent

    def read_passing(self, offset: int, bytes_max: int, end_offset: int) -> PassingRead:
        """Reads as `read` does, but skips the offsets that an operator has given up, even if a good copy is there:
        every reader of committed records gets the same log. The given-up range that holds `offset` is skipped first;
        the read ends before the next one.

        Raises `DamagedBatch` also for a batch that was given up in part only: no reader gets any of it.
        """
        self._state.require_in_range(offset, self._state.tail.offset)
        if offset >= end_offset:  # a reader that has come to the end: most reads
            return PassingRead(Extent(b"", offset, None), None)
        lost = self._state.damage.lost
        if not lost:  # nearly always
            return PassingRead(self._read(offset, bytes_max, end_offset), None)
        begin = min(lost.past(offset), end_offset)
        following = lost.from_offset(begin)
        limit = end_offset if following is None else min(end_offset, following[0])
        # What lies in a given-up range is not shown, even if a sound copy has turned up: a reader who passed the range
        # before would have seen another log.
        passed = (offset, begin) if begin > offset else None
        if begin >= limit:
            return PassingRead(Extent(b"", begin, None), passed)
        extent = self.read(begin, bytes_max, limit)
        if extent.data or following is None or limit == end_offset:
            return PassingRead(extent, passed)
        # A sound batch that begins before the next range and ends in it. Reading on from `begin` would return nothing
        # for ever.
        across = self._batch_before(begin, limit)
        if across is not None:
            raise self._damaged(Damage(across.first_offset, across.next_offset, "given up in part"))
        if passed is not None:
            return PassingRead(extent, passed)
        end = min(following[1], end_offset)  # no batch has the offsets before that range
        return PassingRead(Extent(b"", end, None), (limit, end))

    def _batch_before(self, offset: int, end: int) -> Row | None:
        """Returns the catalog row of the first sound batch from `offset` on, if it begins before `end`."""
        entry = next(self.entries(offset), None)
        return entry if isinstance(entry, Row) and entry.base_offset < end else None

    def read_filling(self, offset: int, bytes_max: int, end_offset: int) -> Sequence[Buffer]:
        """Reads for another replica's log: given-up offsets are returned as batches without records (`fillers`), so
        that both logs have the same offsets and leader epochs."""
        lost = self._state.damage.lost
        begin = min(lost.past(offset), end_offset)
        if begin > offset:
            # A follower has to get something for these offsets, or its log, its epochs and its high watermark would
            # never reach those of this one.
            return tuple(self.fillers(offset, begin))
        following = lost.from_offset(begin)
        limit = end_offset if following is None else min(end_offset, following[0])
        data = self.read(offset, bytes_max, limit).data
        if not data and limit < end_offset and self._batch_before(offset, limit) is None:
            return tuple(self.fillers(offset, min(lost.past(limit), end_offset)))
        return (data or self.read(offset, 1, end_offset).data,)

    def fillers(self, start: int, end: int) -> Iterator[bytes]:
        """Yields batches without records that span the offsets [start, end), each with the leader epoch that this log
        has there."""
        lineage = self._state.lineage
        while start < end:
            following = bisect_right(lineage, start, key=lambda begun: begun[1])
            epoch = lineage[max(following - 1, 0)][0] if lineage else self._state.tail.epoch
            stop = min(end, start + FILLER_OFFSETS_MAX)
            # One batch has one epoch, and a follower compares epochs: the filler ends where the next epoch begins.
            if following < len(lineage):
                stop = min(stop, lineage[following][1])
            yield empty_batch(start, stop, epoch)
            start = stop

    def has_bytes_passing(self, offset: int, size: int, end_offset: int) -> bool:
        """Returns True if a `read_passing` that waits for `size` bytes need not wait: they lie between `offset` and
        `end_offset`, or a given-up range begins there, or damage. Raises `OffsetOutOfRange`."""
        self._state.require_in_range(offset, self._state.tail.offset)
        lost = self._state.damage.lost
        begin = lost.past(offset)
        if begin >= end_offset:
            return False
        following = lost.from_offset(begin)
        if following is not None and following[0] < end_offset:
            return True
        return size <= 1 or self.has_bytes(begin, size, end_offset)

    def has_bytes(self, offset: int, size: int, end_offset: int) -> bool:
        """Returns True if batches of `size` bytes in all lie between `offset` and `end_offset`, or damage, for which
        `read` raises an error. Looks at catalog rows only.

        Raises `OffsetOutOfRange`.
        """
        self._state.require_in_range(offset, self._state.tail.offset)
        for entry in self.entries(offset):
            if isinstance(entry, Damage):
                return entry.start < end_offset
            # Bytes above the end are not waited for: they can't be read yet.
            if entry.next_offset > end_offset:
                return False
            size -= entry.length
            if size <= 0:
                return True
        return False

    def batch_since(self, timestamp_ms: int, end_offset: int) -> Extent | None:
        """Reads the first batch below `end_offset` with a record of that timestamp or later, skipping offsets that an
        operator has given up; None if there is none.

        Raises `DamagedBatch` if that batch is damaged, or a batch right before it that may have had such a record.
        """
        lost = self._state.damage.lost
        start = lost.past(self._state.log_start_offset)
        entry = self._first_since(start, timestamp_ms)
        while entry is not None and lost.past(max(start, _start(entry))) > max(start, _start(entry)):
            start = lost.past(max(start, _start(entry)))
            entry = self._first_since(start, timestamp_ms)
        if isinstance(entry, Damage):
            raise self._damaged(entry)
        # Above the end, which is what is committed, a later leader may have another batch, with another timestamp.
        if entry is None or entry.next_offset > end_offset:
            return None
        return self.read(max(entry.base_offset, start), 1, end_offset)

    def _first_since(self, offset: int, timestamp_ms: int) -> Entry | None:
        missing: Damage | None = None
        for part in self.parts(offset):
            if isinstance(part, Damage):
                # Files that are missing right before the answer may have held an earlier one: a lookup by time must not
                # skip records in silence.
                missing = part
            elif part.is_lost:
                missing = next((entry for entry in part.entries(offset) if isinstance(entry, Damage)), missing)
            elif part.max_timestamp < timestamp_ms:
                missing = None
            else:
                entry = missing or part.first_since(timestamp_ms, offset)
                if entry is not None:
                    return entry
        return None

    # -- producers ------------------------------------------------------------------------------------------------

    def producers_before(self, offset: int, now_ms: int) -> list[tuple[int, ProducerState]]:
        """Returns the producers' states as of when the log ended at `offset`, which is not far behind its start: for a
        replica whose log begins there. At most `LogSettings.producers_max` of them. Raises `Overloaded`.

        They are read from the first segment's checkpoint, which covers the deleted segments. Only if that is damaged,
        they are taken from memory, which has the last batches of each producer.
        """
        state = self._state
        # Segments wholly behind the offset are not read: the other log, which ends there, does not know what producers
        # did in them.
        segment_count = max(1, bisect_left(state.segments, offset, key=lambda segment: segment.base_offset))
        settings, codec = state.settings, state.files.codec
        trails = read_trails(codec, state.segments[:segment_count], settings.producers_max, now_ms, end_offset=offset)
        return list(trails.producers.items() if trails.has_checkpoint else state.producers.states_before(offset))

    def _damaged(self, damage: Damage) -> DamagedBatch:
        # What was given up already is not named again: whoever reads this decides about the rest.
        remaining = next(self._state.damage.lost.rest(damage.start, damage.end), (damage.start, damage.end))
        damage = replace(damage, start=remaining[0], end=remaining[1])
        return DamagedBatch(
            f"offsets {damage.start} to {damage.end - 1} of partition {self._state.name} are damaged on this "
            f"broker ({damage.reason}); other offsets are not affected. A good copy on another replica repairs them; "
            "if none is left, `tidelog log accept-loss` gives them up"
        )


def _start(entry: Entry) -> int:
    return entry.start if isinstance(entry, Damage) else entry.base_offset
