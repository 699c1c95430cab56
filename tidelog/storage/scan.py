"""The scan of one segment that is not known to be in order: each catalog row and batch is found good, torn or damaged.

The rule (CTRL section 3.2, made exact for flushes). Let D be the highest "durable below" mark found in any sound
row or metainfo copy. What was written below D was on disk once, whole; if it does not verify now, it was damaged later:
it is kept, reported, and reads of that batch alone get an error. What lies at D or beyond may have been under way
when the machine stopped, or may have been acknowledged a moment before: this replica cannot tell, and others can. So
there a sound row is believed to have had its batch, too. Only what has no sound row any more at the end of the log is
torn, and truncated. A sound row fits if it follows the rows before it, and ends before the next segment begins.

  batch  row      below D                          at D or beyond
  good   good     keep                             keep
  good   bad      keep, write the row again        keep, write the row again
  bad    good     keep, serve an error             keep, serve an error
  bad    bad      keep, serve an error             truncate here

A log that no other replica has, or in which all that was acknowledged lies below D, is truncated at the first bad batch
at D or beyond (`BadEnd`), unless that batch is known to have been acknowledged.

It is known not to be torn if the catalog's header is gone as well, or if the disk fails to read what is to be
truncated. Then the log has lost its end, acknowledged or not, and nobody may count on it before it is filled again:
`on_end_lost` is called.

What is missing between two segments, row and batch, is judged by D in any log: the file ends there, so there would be
no room to put a copy back. Again only two faults at once look like that in a log that no crash has cut short: if the
catalog alone is damaged its rows are made again from the log, and if the log is, its rows are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from typing import ClassVar

from tidelog.model.ids import OFFSET_MAX
from tidelog.model.ports import File
from tidelog.storage.load_report import Corrections, LoadReport
from tidelog.storage.rows import ROW_BYTES, Kind, Row, RowCodec, Tail
from tidelog.storage.segment import Damage, Segment
from tidelog.storage.slot_entries import FLOOR_NUMBER

READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class BadEnd:
    """The rule for a batch at D (the highest durable mark) or beyond that does not verify: it is kept, or the log is
    truncated there. The Paxos position and number in its catalog row decide."""

    kept_below: int
    """A damaged batch of a lower Paxos position is kept, if its row is sound: other replicas can say what belongs
    there, and whether it was acknowledged. Before any other damaged batch the log is truncated."""
    kept_from_number: int = 0
    """Before a damaged batch with a smaller number in its row the log is truncated, whatever its position."""

    KEEP: ClassVar[BadEnd]
    """The rule that keeps a damaged batch at the log's end if its catalog row is sound, since other replicas can say
    what belongs there. Before one without a sound row the log is truncated."""
    TRUNCATE: ClassVar[BadEnd]
    """The rule that truncates the log before the first damaged batch at D or beyond. It is for a log that has one
    replica only, so that no other can say what belongs there; and for one in which everything acknowledged lies below
    D, so that nothing acknowledged is dropped (the metadata log, decision 0035)."""

    def keeps(self, row: Row) -> bool:
        """Returns True if the damaged batch that this row describes is to be kept; False if the log is to be truncated
        before it."""
        return row.position < self.kept_below and row.number >= self.kept_from_number


BadEnd.KEEP = BadEnd(1 << 64)
BadEnd.TRUNCATE = BadEnd(0)


@dataclass(eq=False)
class Scan:
    """The scan of one segment, row by row. `_tail` is the end of what has been accepted so far.

    `durable` is D, the highest durable mark. `had_header` says that the catalog's header was durable once.
    `on_end_lost` is called if durable batches at the end are lost.
    """

    codec: RowCodec
    segment: Segment
    durable: int
    report: LoadReport
    corrections: Corrections
    bad_end: BadEnd
    on_end_lost: Callable[[], None] | None = None
    had_header: bool = False
    _made: list[tuple[int, bytes]] = field(init=False, default_factory=list)
    """Rows to be written, with their slots in the catalog."""
    _size: int = field(init=False)
    _seal_slot: int = field(init=False, default=-1)
    _settled_end: int = field(init=False, default=0)
    _end_max: int = field(init=False, default=OFFSET_MAX)
    _tail: Tail = field(init=False)

    def __post_init__(self) -> None:
        self._size = self.segment.log.size()

    def run(self, start: Tail, settled_end: int, next_base_offset: int | None) -> Tail:
        """Accepts the catalog's rows, then batches behind them in the log file; returns the log's end. Everything below
        offset `settled_end` was durable once: what is missing there is lost, not torn. `next_base_offset` is where the
        segment has to end, or None for the last one."""
        segment = self.segment
        self._end_max = OFFSET_MAX if next_base_offset is None else next_base_offset
        if segment.first_sequence < 0:
            # Neither a header nor a sound row: what is made anew is numbered on from the segment before.
            segment.first_sequence = start.sequence
        segment.slots = max(segment.slots, 1)
        self._settled_end = settled_end
        self._tail = start._replace(sequence=segment.first_sequence + segment.body_slot)
        is_headless = self._take_header(start)
        slot = self._take_rows(self._skip_settled_rows())
        # Something behind these offsets was durable once, so they were, too. They are lost, not torn, and must not be
        # given out again.
        if self._tail.offset < self._settled_end:
            slot = self._note_lost(slot, self._settled_end)
        # A seal in the last segment tells of one behind it that was removed. The log goes on here now, and nothing is
        # read behind a seal.
        segment.is_sealed = slot == self._seal_slot and next_base_offset is not None
        if segment.is_sealed:
            slot += 1
        self._tail = self._tail._replace(sequence=segment.first_sequence + slot, durable=0)
        # Before anything is written or truncated: a sector that the disk refused can be read once it is written.
        # Without the proof that this end was no tear, the replica could lead, and the others would truncate what was
        # acknowledged.
        if self.on_end_lost is not None and self._has_lost_end(slot, is_headless=is_headless):
            self.on_end_lost()
        for made_slot, raw in self._made:  # not before: a sector that is written can be read
            self._write(made_slot, raw)
        self._trim(slot)
        segment.slots, segment.end_offset, segment.log_bytes = slot, self._tail.offset, self._tail.file_position
        if not segment.is_sealed:
            segment.look_for_lost_end()
        segment.max_timestamp = self._tail.running_max_timestamp
        return self._tail

    def seal(self, tail: Tail) -> Tail:
        """Seals the segment, and returns the log's end. The seal repeats how far the log was durable, since the next
        opening reads nothing else of the segment."""
        segment = self.segment
        # If the seal said that nothing had been durable, the next opening would take a half-deleted segment for a torn
        # one, and drop all behind it.
        note = self.codec.note(Kind.SEAL, self._vouch(tail), start_offset=tail.log_start_offset)
        self._write(segment.slots, note)
        sealed = tail._replace(sequence=tail.sequence + 1)
        segment.extend(1, sealed)
        segment.is_sealed = True
        return sealed

    def unseal(self, tail: Tail) -> Tail:
        """Removes the seal, since the segment is the last one after all, and rows behind a seal are not read. Returns
        the log's end."""
        segment = self.segment
        if not segment.is_sealed:
            return tail
        tail = tail._replace(sequence=tail.sequence - 1)
        self.corrections.attempt(lambda: segment.truncate(segment.slots - 1, [], tail))
        return tail

    def _vouch(self, tail: Tail) -> Tail:
        """Returns `tail` with the durable mark (the row sequence below which everything is durable) for a row written
        now. The mark is at most that row's own sequence: where a catalog was lost, its rows are numbered again, and the
        old mark means nothing."""
        return tail._replace(durable=min(self.durable, tail.sequence))

    def _take_header(self, start: Tail) -> bool:
        """Reads the catalog header. If it is lost, prepares another one and returns True."""
        segment = self.segment
        header = self.codec.parse_header(segment.raw_rows(0, 1))
        # The header of another segment, as in a swapped file, is as good as none.
        if header is not None and header.base_offset == segment.base_offset:
            log_start = max(start.log_start_offset, header.log_start_offset)
            self._tail = self._tail._replace(epoch=max(start.epoch, header.epoch), log_start_offset=log_start)
            return False
        catalog_bytes = segment.catalog.size()
        if self._size or catalog_bytes:
            self.report.say(f"the catalog header of segment {segment.base_offset} is lost and is written again")
        # An empty log's first segment has nothing before it to check-point; any other must ask older segments.
        is_first = start.sequence == 0 and segment.body_slot == 1 and not catalog_bytes
        origin = self._vouch(start._replace(sequence=segment.first_sequence))
        self._made.append((0, self.codec.header(origin, segment.body_slot - 1, has_checkpoint=is_first)))
        return True

    def _has_lost_end(self, slot: int, *, is_headless: bool) -> bool:
        """Returns True if what is missing at the end was durable and lost, not torn by a crash, which leaves zeros or
        old bytes. Damaged rows without bytes behind the batches do not count: they were marks."""
        segment, tail = self.segment, self._tail
        is_short = self._end_max != OFFSET_MAX and tail.offset < self._end_max
        is_empty = tail.offset == segment.base_offset
        has_bytes = self._size > tail.file_position
        # This header was durable before the log's first batch, so no crash takes it: what is gone with it was not torn.
        if is_headless and self.had_header:
            return has_bytes or segment.slots > slot + (self._seal_slot == slot) or is_short or is_empty
        return has_bytes and (
            # A crash leaves zeros or old bytes, never a sector that the disk refuses to read.
            is_unreadable(segment.catalog, slot * ROW_BYTES, segment.slots * ROW_BYTES)
            or is_unreadable(segment.log, tail.file_position, self._size)
        )

    # -- rows that are there --------------------------------------------------------------------------------------

    def _skip_settled_rows(self) -> int:
        """Returns the catalog slot to begin at. Rows below D (the highest durable mark) are not read, if the last of
        them is sound: it has the offset, position and epoch of all before it."""
        segment = self.segment
        slot = min(self.durable - segment.first_sequence, segment.slots)
        if slot <= segment.body_slot:
            return segment.body_slot
        row = segment.row(slot - 1)
        # The last row below D has offset, position and epoch of all before it. If it is bad, the rows are followed one
        # by one.
        if row is None or row.kind == Kind.SEAL or not self._fits(row, is_after_gap=True):
            return segment.body_slot
        self._advance(row)
        return slot

    def _take_rows(self, slot: int) -> int:
        """Accepts catalog rows from a slot on, then batches behind them in the log file; returns the slot behind the
        last row."""
        segment, gap = self.segment, 0
        for row in segment.rows(slot):
            is_settled = segment.first_sequence + slot < self.durable
            fits = row is not None and self._fits(row, is_after_gap=gap > 0)
            # A sound row that fits is believed to have had its batch, at D or beyond as well: the batch may have rotted
            # a moment after it was acknowledged, and other replicas can tell.
            if row is not None and fits and (is_settled or self._is_believed(row)):
                self._close_gap(slot - gap, gap, row)
                gap = 0
                if row.kind == Kind.SEAL:
                    self._seal_slot = slot
                    return slot
                self._judge(row)
                self._advance(row)
            elif row is not None and fits and gap:
                # A torn batch ends the log. What the gap before it held was on disk once.
                self._settled_end = max(self._settled_end, row.first_offset)
                return self._adopt(slot - gap, row.file_position)
            # Below D nothing is torn: the rows that follow say what the gap held.
            elif is_settled or gap:
                gap += 1
            elif fits:
                return slot
            # The first row beyond D that is bad with its batch ends the log, also with sound rows behind it. That was a
            # torn write, never acknowledged, or two faults in one entry. A follower that kept it would acknowledge a
            # batch that nobody can name; a voter would vote without knowing which slot it has lost.
            elif not self._rewrite(slot):
                break
            slot += 1
        return self._adopt(slot - gap, self._size)

    def _is_believed(self, row: Row) -> bool:
        """Returns True if a sound row at D (the highest durable mark) or beyond is accepted. Not accepted is a damaged
        floor entry (the first position of a Paxos journal): no other replica has a copy."""
        # What a floor says no other replica can give back, so a row without it is of no use.
        is_kept = self.bad_end.keeps(row) and row.number != FLOOR_NUMBER
        return is_kept or row.kind != Kind.BATCH or self.segment.holds(row)

    def _judge(self, row: Row) -> None:
        """Reports a damaged batch at D (the highest durable mark) or beyond, since it may not be committed. One below D
        is found when it is read."""
        # A new leader settles what may not be committed before its epoch begins, so it has to know of this damage now.
        is_doubtful = row.kind == Kind.BATCH and row.sequence >= self.durable
        if is_doubtful and self.bad_end.keeps(row) and not self.segment.holds(row):
            reason = "batch does not match its catalog row"
            self.report.damage.append(Damage(row.base_offset, row.next_offset, reason, row.epoch))

    def _fits(self, row: Row, *, is_after_gap: bool) -> bool:
        tail = self._tail
        if is_after_gap:
            is_next = row.first_offset >= tail.offset and row.file_position >= tail.file_position
        else:
            has_bytes = row.kind == Kind.LOST and row.file_position > tail.file_position  # of what is lost
            is_next = row.first_offset == tail.offset and (row.file_position == tail.file_position or has_bytes)
        # Reaching into the next segment, or of an older epoch, it is a leftover of what a truncation dropped.
        return is_next and row.epoch >= tail.epoch and row.next_offset <= self._end_max

    def _advance(self, row: Row) -> None:
        self._tail = Tail(
            self.segment.first_sequence, self.durable, row.epoch, row.next_offset, row.end_position,
            row.running_max_timestamp, max(self._tail.log_start_offset, row.start_offset),
        )  # fmt: skip

    # -- rows that are missing ------------------------------------------------------------------------------------

    def _close_gap(self, slot: int, count: int, following: Row) -> None:
        """Makes damaged rows below D (the highest durable mark) again if the log shows exactly what they said; else
        leaves them, and reports the damage."""
        if count == 0:
            return
        rows = list(self._walk(following.file_position))
        end = rows[-1].next_offset if rows else self._tail.offset
        # The batches must fill the gap exactly. Otherwise one of them is lost, and which slot stood for which batch is
        # a guess.
        if end != following.first_offset or len(rows) > count:
            self.report.damage.append(Damage(end, following.first_offset, "batch and catalog row are both damaged"))
            return
        for row in rows:
            self._note_row(slot, row)
            slot, count = slot + 1, count - 1
        for _ in range(count):
            tail = self._vouch(self._tail._replace(sequence=self.segment.first_sequence + slot))
            self._made.append((slot, self.codec.note(Kind.MARK, tail, start_offset=tail.log_start_offset)))
            slot += 1

    def _rewrite(self, slot: int) -> bool:
        """Makes one row again from the next batch in the log file; returns False if there is none."""
        row = next(self._walk(self._size), None)
        if row is not None:
            self._note_row(slot, row)
        return row is not None

    def _adopt(self, slot: int, end_position: int) -> int:
        """Makes rows for the batches in the log file behind the last row. Returns the slot behind them."""
        first = slot
        for row in list(self._walk(end_position)):
            self._note_row(slot, row)
            slot += 1
        if slot > first:
            self.report.say(f"{slot - first} batches had no catalog row in segment {self.segment.base_offset}")
        return slot

    def _walk(self, end_position: int) -> Iterator[Row]:
        """Yields rows for sound batches in the log file that continue the accepted ones."""
        tail = self._tail
        # No digest is left for these, so each is believed for its CRC and for following the one before: offsets,
        # position and epoch.
        rows = self.segment.walk(tail.offset, tail.file_position, end_position, tail.epoch)
        return takewhile(lambda row: row.next_offset <= self._end_max, rows)

    def _note_row(self, slot: int, row: Row) -> None:
        """Prepares the row of a batch that was found in the log file, for a catalog slot, and accepts the batch."""
        tail = self._vouch(self._tail._replace(sequence=self.segment.first_sequence + slot))
        placed = row._replace(
            sequence=tail.sequence,
            durable=tail.durable,
            running_max_timestamp=max(tail.running_max_timestamp, row.max_timestamp),
            start_offset=tail.log_start_offset,
        )
        self._made.append((slot, self.codec.pack(placed)))
        self._advance(placed)
        self.report.rows_rewritten += 1

    def _note_lost(self, slot: int, end: int) -> int:
        # Behind all bytes of the file: a copy that turns up goes where the lost bytes were.
        sequence, position = self.segment.first_sequence + slot, max(self._size, self._tail.file_position)
        tail = self._vouch(self._tail._replace(sequence=sequence, file_position=position))
        self.report.damage.append(Damage(tail.offset, end, "neither batches nor rows are left"))
        raw = self.codec.note(Kind.LOST, tail, start_offset=tail.log_start_offset, offsets=end - tail.offset)
        self._made.append((slot, raw))
        self._tail = tail._replace(offset=end)
        return slot + 1

    # -- corrections ----------------------------------------------------------------------------------------------

    def _trim(self, slot: int) -> None:
        """Truncates the segment's log file and its catalog behind the batches and rows that were accepted."""
        segment, tail = self.segment, self._tail
        excess = max(self._size - tail.file_position, 0)
        if not excess and segment.catalog.size() <= slot * ROW_BYTES:
            return
        rows = segment.slots - slot - (self._seal_slot == slot)
        if excess or rows > 0:
            self.report.bytes_cut += excess
            self.report.rows_cut += rows
            self.report.say(
                f"{excess} bytes and {rows} rows behind offset {tail.offset} do not verify, were never acknowledged as "
                f"far as this replica can tell, and are truncated"
            )
        self.corrections.attempt(lambda: segment.truncate(slot, [], tail))

    def _write(self, slot: int, raw: bytes) -> None:
        self.corrections.attempt(lambda: self.segment.catalog.pwritev([raw], slot * ROW_BYTES))


def is_unreadable(file: File, position: int, end: int) -> bool:
    """Returns True if the disk refuses to read some of these bytes."""
    try:
        for start in range(position, end, READ_BYTES):
            file.pread(min(READ_BYTES, end - start), start)
    except OSError:
        return True
    return False
