"""Opening a log: find out what is there, tell a torn tail from later damage, and never guess.

The rule (CTRL section 3.2, made exact for group commit). Let D be the highest "durable below" mark found in any sound
row or metainfo copy. What was written below D was on disk once, whole; if it does not verify now, it was damaged later:
it is kept, reported, and answered with an error for that batch alone. What lies at D or beyond may have been under way
when the machine stopped: nothing there was acknowledged as far as this replica can tell, so the first thing that does
not verify ends the log, and it is cut there.

  batch  row      below D                          at D or beyond
  good   good     keep                             keep
  good   bad      keep, write the row again        keep, write the row again
  bad    good     keep, serve an error             cut here
  bad    bad      keep, serve an error             cut here

Segments with a sound seal below D are not read at all, so opening takes two small reads a segment plus the rows of the
last one. Everything that was kept beyond D is written again and fsynced before anybody can see it: it may be in the
page cache only, and even marked clean there by an fsync that failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from xxhash import xxh3_128_digest

from tidelog.model.ids import PartitionId
from tidelog.model.ports import File
from tidelog.storage.metainfo import Metainfo, MetainfoStore
from tidelog.storage.open_files import OpenFiles
from tidelog.storage.partition_log import LogSettings, PartitionLog, remove_segment
from tidelog.storage.rows import NO_TIMESTAMP, ROW_BYTES, Kind, Row, RowCodec, Tail
from tidelog.storage.segment import Damage, Segment
from tidelog.storage.trails import read_trails

COPY_BYTES = 1 << 20


@dataclass(slots=True)
class LoadReport:
    """What opening found. `findings` are sentences for the operator; none means that nothing was wrong."""

    findings: list[str] = field(default_factory=list)
    rows_rewritten: int = 0
    bytes_cut: int = 0
    rows_cut: int = 0
    damage: list[Damage] = field(default_factory=list)

    def say(self, finding: str) -> None:
        self.findings.append(finding)


def load_log(
    opened: OpenFiles,
    directory: str,
    identity: PartitionId,
    settings: LogSettings,
    *,
    new_incarnation: str,
    now_ms: int,
) -> tuple[PartitionLog, LoadReport]:
    """Opens the log in `directory`, or makes an empty one there. Blocking.

    `new_incarnation` is used if there is no metainfo. Damage never makes it fail; `OSError` comes only from a disk
    on which files cannot be opened or made. If what was found cannot be made durable, the log is offline at once.
    """
    return _Loader(opened, directory, identity, settings).load(new_incarnation, now_ms)


class _Loader:
    def __init__(self, opened: OpenFiles, directory: str, identity: PartitionId, settings: LogSettings) -> None:
        self._opened = opened
        self._files = opened.files
        self._directory = directory
        self._identity = identity
        self._settings = settings
        self._codec = RowCodec(identity)
        self._metainfo = MetainfoStore(opened.files, directory, identity)
        self._report = LoadReport()
        self._seals: dict[int, Row] = {}
        self._is_changed = False
        self._error: OSError | None = None

    def load(self, new_incarnation: str, now_ms: int) -> tuple[PartitionLog, LoadReport]:
        self._files.make_dirs(self._directory)
        loaded = self._metainfo.load()
        info = loaded.info if loaded else Metainfo(incarnation=new_incarnation)
        segments = self._find(info)
        if loaded is None and self._is_written(segments):
            self._report.say("both metainfo copies are lost; this replica starts a new incarnation")
        self._durable, self._log_start = info.durable_sequence, info.log_start_offset
        for segment in segments:
            self._survey(segment)
        durable, doomed = self._durable, self._take_doomed(segments)
        sequence = max([0, *(segment.next_sequence for segment in doomed)])
        tail = self._scan_all(segments, durable, info, sequence)
        offline_reason = self._make_durable(segments, tail, durable)
        self._report_damage(tail.log_start_offset)
        tail = tail._replace(durable=tail.sequence)
        lineage, producers = read_trails(self._codec, segments, self._settings.producers_max, now_ms)
        log = PartitionLog(
            self._opened, self._directory, self._identity, self._settings, self._metainfo, info.incarnation,
            segments, tail, lineage, producers, now_ms,
        )  # fmt: skip
        is_moved = info.log_start_offset < tail.log_start_offset or info.durable_sequence > tail.sequence
        if loaded is None or loaded.bad_copies or is_moved:
            if loaded is not None and loaded.bad_copies:
                self._report.say("one metainfo copy was bad or old and is written again")
            offline_reason = offline_reason or self._store(log, info) or self._finish_deletion(doomed)
        if offline_reason:
            log.take_offline(offline_reason)
        return log, self._report

    # -- finding --------------------------------------------------------------------------------------------------

    def _find(self, info: Metainfo) -> list[Segment]:
        """The segments by their names, with both files of each in existence."""
        names = self._files.list(self._directory)
        stems = {name[:20] for name in names if name[20:] in (".log", ".catalog") and name[:20].isdigit()}
        bases = sorted(map(int, stems))
        if not bases:
            if info.end_offset > info.log_start_offset:
                self._report.say(f"all segments are missing; offsets up to {info.end_offset} are lost")
            bases = [info.end_offset]
        segments = []
        for base in bases:
            segment = Segment(self._opened, self._directory, base, self._codec)
            for path in (segment.log_path, segment.catalog_path):
                if not self._files.exists(path):
                    self._opened.get(path, create=True)
                    self._is_changed = True
                    if stems:
                        self._report.say(f"{path} is missing")
            segments.append(segment)
        return segments

    def _is_written(self, segments: list[Segment]) -> bool:
        return any(segment.log.size() for segment in segments)

    def _survey(self, segment: Segment) -> None:
        """Finds where a segment's rows start and how many there are, the highest durable mark, and the log's start."""
        seal = segment.open_sealed()
        if seal is not None:
            self._seals[segment.base_offset] = seal
            self._note_marks(seal.durable, seal.start_offset)
            return
        raw_slots = -(-segment.catalog.size() // ROW_BYTES)
        header = self._codec.parse_header(segment.raw_rows(0, 1)) if raw_slots else None
        segment.slots = raw_slots
        if header is not None and header.base_offset == segment.base_offset:
            segment.first_sequence, segment.body_slot = header.sequence, 1 + header.checkpoint_rows
            self._note_marks(header.durable, header.log_start_offset)
        else:
            self._infer_header(segment)
        for row in segment.rows(segment.body_slot):
            if row is not None:
                self._note_marks(row.durable, row.start_offset)

    def _note_marks(self, durable: int, log_start_offset: int) -> None:
        self._durable = max(self._durable, durable)
        self._log_start = max(self._log_start, log_start_offset)

    def _take_doomed(self, segments: list[Segment]) -> list[Segment]:
        """Takes out what lies wholly below the log's start: a deletion that a crash cut short.

        A crash lets the files go in any order, so what is left of them must not be judged: to the scan, a hole there
        would look like the torn end of the log. Deletions are only asked for below the high watermark, so whatever row
        says how far, everything up to there was durable, and it does no harm if the row itself is cut off later.
        """
        doomed: list[Segment] = []
        while len(segments) > 1 and segments[1].base_offset <= self._log_start:
            doomed.append(segments.pop(0))
        return doomed

    def _infer_header(self, segment: Segment) -> None:
        """Without a header: the slots behind the last checkpoint row, numbered as the first sound row says."""
        segment.body_slot, segment.first_sequence = 1, -1
        for slot in range(1, segment.slots):
            raw = segment.raw_rows(slot, 1)
            row = self._codec.body(raw)
            if row is not None and row.base_offset >= segment.base_offset:  # else an old block of another segment
                segment.first_sequence = row.sequence - slot
                return
            if self._codec.parse_checkpoint(raw) is not None:
                segment.body_slot = slot + 1

    # -- scanning -------------------------------------------------------------------------------------------------

    def _scan_all(self, segments: list[Segment], durable: int, info: Metainfo, sequence: int) -> Tail:
        """Brings every segment that is not sealed below `durable` into a sound state; returns the log's tail."""
        tail = Tail(sequence, 0, 0, segments[0].base_offset, 0, NO_TIMESTAMP, self._log_start)
        durable_end = max(info.end_offset, self._log_start)
        for index, segment in enumerate(segments):
            following = segments[index + 1] if index + 1 < len(segments) else None
            if segment.is_sealed and segment.next_sequence <= durable and following is not None:
                tail = self._tail_of_sealed(segment, tail)
            else:
                start = tail._replace(offset=segment.base_offset, file_position=0, running_max_timestamp=NO_TIMESTAMP)
                scan = _Scan(self._codec, segment, start, durable, self._report)
                expected_end = following.base_offset if following else durable_end
                # What precedes a segment that was durable once was durable, too: it is kept, whatever has become of
                # the segments between.
                is_settled = following is None or following.base_offset <= durable_end
                is_settled = is_settled or any(0 <= s.first_sequence < durable for s in segments[index + 1 :])
                tail = scan.run(expected_end if is_settled else segment.base_offset, is_last=following is None)
                self._is_changed |= scan.is_changed
                self._error = self._error or scan.error
                if not is_settled and (scan.is_cut or tail.offset != segments[index + 1].base_offset):
                    self._drop(segments, index + 1)
                    tail = scan.unseal(tail)
                    self._error = self._error or scan.error
                    return tail
                if following is not None and not segment.is_sealed:
                    tail = scan.seal(tail)
                    self._error = self._error or scan.error
        return tail

    def _tail_of_sealed(self, segment: Segment, tail: Tail) -> Tail:
        seal = self._seals[segment.base_offset]
        start = max(tail.log_start_offset, seal.start_offset)
        epoch = max(tail.epoch, seal.epoch)
        return Tail(segment.next_sequence, 0, epoch, segment.end_offset, 0, NO_TIMESTAMP, start)

    def _drop(self, segments: list[Segment], first: int) -> None:
        """Removes segments behind a cut: all that is in them was written after what is gone, so never acknowledged."""
        for segment in reversed(segments[first:]):
            self._report.say(f"segment {segment.base_offset} follows a torn tail and is dropped")
            self._report.bytes_cut += segment.log.size()
            remove_segment(self._opened, segment)
            self._files.sync_dir(self._directory)
        del segments[first:]
        self._is_changed = True

    # -- finishing ------------------------------------------------------------------------------------------------

    def _make_durable(self, segments: list[Segment], tail: Tail, durable: int) -> str | None:
        if not self._is_changed and tail.sequence <= durable:
            return None
        try:
            if self._error is not None:
                raise self._error
            for segment in segments:
                if not segment.is_sealed or segment.next_sequence > durable or segment is segments[-1]:
                    _write_again(segment, durable)
                    segment.log.sync()
                    segment.catalog.sync()
            self._files.sync_dir(self._directory)
        except OSError as error:
            return f"what was found could not be made durable: {error}"
        return None

    def _finish_deletion(self, doomed: list[Segment]) -> str | None:
        """Removes what is deleted. The log's start is durable in metainfo by now: no second crash can find the files
        gone and the order with them."""
        if not doomed:
            return None
        try:
            for segment in doomed:
                remove_segment(self._opened, segment)
            self._files.sync_dir(self._directory)
        except OSError as error:
            return f"deleted segments could not be removed: {error}"
        return None

    def _report_damage(self, log_start_offset: int) -> None:
        """What is missing below the log's start was deleted, not damaged: a crash lets the files go in any order."""
        report = self._report
        report.damage = [damage for damage in report.damage if damage.end > log_start_offset]
        for damage in report.damage:
            report.say(f"offsets {damage.start} to {damage.end - 1} are lost: {damage.reason}")

    def _store(self, log: PartitionLog, info: Metainfo) -> str | None:
        try:
            log.store_metainfo(log.metainfo(min(info.high_watermark, log.log_end_offset)))
        except OSError as error:
            return f"metainfo could not be written: {error}"
        return None


def _write_again(segment: Segment, durable: int) -> None:
    """Makes everything from the row `durable` on dirty, so that the next fsync has to write it.

    After a failed fsync the kernel holds the lost pages as clean: this process, or the one before it, can read them, an
    fsync says yes, and they are gone with the power (PostgreSQL's fsync trouble of 2018). Raises `OSError`.
    """
    slot = max(0, durable - segment.first_sequence)
    unsettled = segment.rows(max(slot, segment.body_slot))
    position = next((row.file_position for row in unsettled if row is not None), segment.log_bytes)
    _copy_onto_itself(segment.log, position, segment.log_bytes)
    _copy_onto_itself(segment.catalog, slot * ROW_BYTES, segment.slots * ROW_BYTES)


def _copy_onto_itself(file: File, position: int, end: int) -> None:
    while position < end:
        data = file.pread(min(COPY_BYTES, end - position), position)
        if not data:
            return
        file.pwritev([data], position)
        position += len(data)


class _Scan:
    """One segment, row by row. `tail` is where the next row belongs if all before it is taken in."""

    def __init__(self, codec: RowCodec, segment: Segment, start: Tail, durable: int, report: LoadReport) -> None:
        self._codec = codec
        self._segment = segment
        self._durable = durable
        self._report = report
        self._size = segment.log.size()
        self._seal_slot = -1
        self.is_cut = False
        self.is_changed = False
        self.error: OSError | None = None
        if segment.first_sequence < 0 or segment.slots == 0:
            segment.first_sequence = start.sequence if segment.first_sequence < 0 else segment.first_sequence
            segment.slots = max(segment.slots, 1)
        self._tail = start._replace(sequence=segment.first_sequence + segment.body_slot)
        self._restore_header(start)

    def run(self, expected_end: int, *, is_last: bool) -> Tail:
        """Takes in rows, then what the log holds beyond them; `expected_end` was durable once, so what is missing up
        to there is lost, not torn."""
        slot = self._take_rows()
        if not self.is_cut:
            slot = self._adopt(slot)
        if self._tail.offset < expected_end:
            slot = self._note_lost(slot, expected_end)
        segment = self._segment
        segment.is_sealed = slot == self._seal_slot and not is_last
        if segment.is_sealed:
            slot += 1
        self._tail = self._tail._replace(sequence=segment.first_sequence + slot, durable=0)
        self._trim(slot)
        segment.slots, segment.end_offset, segment.log_bytes = slot, self._tail.offset, self._tail.file_position
        segment.max_timestamp = self._tail.running_max_timestamp
        return self._tail

    def seal(self, tail: Tail) -> Tail:
        segment = self._segment
        # The next opening reads of this segment the seal alone: it has to pass on how far the log was durable.
        last = self._vouch(tail)
        self._write(segment.slots, self._codec.note(Kind.SEAL, last, start_offset=tail.log_start_offset))
        sealed = tail._replace(sequence=tail.sequence + 1)
        segment.extend(1, sealed)
        segment.is_sealed = True
        return sealed

    def _vouch(self, tail: Tail) -> Tail:
        """What a row written now says of the past. Never more than what lies before it: where a catalog was lost, its
        rows are numbered anew, and the old mark means nothing among them."""
        return tail._replace(durable=min(self._durable, tail.sequence))

    def unseal(self, tail: Tail) -> Tail:
        """Makes this the last segment after all: whatever is written behind a seal is not read again."""
        segment = self._segment
        if not segment.is_sealed:
            return tail
        tail = tail._replace(sequence=tail.sequence - 1)
        self._attempt(lambda: segment.cut(segment.slots - 1, [], tail))
        return tail

    def _restore_header(self, start: Tail) -> None:
        segment = self._segment
        header = self._codec.parse_header(segment.raw_rows(0, 1))
        if header is not None and header.base_offset == segment.base_offset:
            log_start = max(start.log_start_offset, header.log_start_offset)
            self._tail = self._tail._replace(epoch=max(start.epoch, header.epoch), log_start_offset=log_start)
            return
        if self._size or segment.catalog.size():
            self._report.say(f"the catalog header of segment {segment.base_offset} is lost and is written again")
        # An empty log's first segment has nothing before it to check-point; any other must ask older segments.
        is_first = start.sequence == 0 and segment.body_slot == 1 and not segment.catalog.size()
        origin = self._vouch(start._replace(sequence=segment.first_sequence))
        self._write(0, self._codec.header(origin, segment.body_slot - 1, has_checkpoint=is_first))

    def _take_rows(self) -> int:
        """Follows the catalog; returns the slot behind the last row taken."""
        segment, gap = self._segment, 0
        slot = segment.body_slot
        for row in segment.rows(slot):
            is_settled = segment.first_sequence + slot < self._durable
            fits = row is not None and self._fits(row, is_after_gap=gap > 0)
            if row is not None and fits and (is_settled or self._verifies(row)):
                self._close_gap(slot - gap, gap, row)
                gap = 0
                if row.kind == Kind.SEAL:
                    self._seal_slot = slot
                    return slot
                self._advance(row)
            elif is_settled or gap:
                gap += 1
            elif fits or not self._rewrite(slot):
                self.is_cut = True
                return slot
            slot += 1
        return slot - gap

    def _fits(self, row: Row, *, is_after_gap: bool) -> bool:
        tail = self._tail
        if is_after_gap:
            is_next = row.base_offset >= tail.offset and row.file_position >= tail.file_position
        else:
            is_next = row.base_offset == tail.offset and row.file_position == tail.file_position
        return is_next and row.epoch >= tail.epoch

    def _verifies(self, row: Row) -> bool:
        if row.kind != Kind.BATCH:
            return True
        try:
            data = self._segment.log.pread(row.length, row.file_position)
        except OSError:
            return False
        return xxh3_128_digest(data) == row.digest

    def _advance(self, row: Row) -> None:
        self._tail = Tail(
            self._segment.first_sequence, self._durable, row.epoch, row.next_offset, row.end_position,
            row.running_max_timestamp, max(self._tail.log_start_offset, row.start_offset),
        )  # fmt: skip

    def _close_gap(self, slot: int, count: int, following: Row) -> None:
        """Rows that are damaged below D: made again if the log tells exactly what they said, else left and reported."""
        if count == 0:
            return
        found = list(self._walk(following.file_position))
        end = found[-1].next_offset if found else self._tail.offset
        if end != following.base_offset or len(found) > count:
            damage = Damage(end, following.base_offset, "batch and catalog row are both damaged")
            self._report.damage.append(damage)
            return
        for row in found:
            self._place(slot, row)
            slot, count = slot + 1, count - 1
        for _ in range(count):
            self._place(slot, None)
            slot += 1

    def _rewrite(self, slot: int) -> bool:
        """Makes one row again from the batch that comes next in the log; False if there is none."""
        row = next(self._walk(self._size), None)
        if row is None:
            return False
        self._place(slot, row)
        return True

    def _adopt(self, slot: int) -> int:
        """Batches in the log beyond the last row: the rows are what is missing, so they are written."""
        adopted = 0
        for row in list(self._walk(self._size)):
            self._place(slot, row)
            slot, adopted = slot + 1, adopted + 1
        if adopted:
            self._report.say(f"{adopted} batches had no catalog row in segment {self._segment.base_offset}")
        return slot

    def _walk(self, end_position: int) -> Iterator[Row]:
        """Sound batches in the log that follow the tail."""
        tail = self._tail
        return self._segment.walk(tail.offset, tail.file_position, end_position, tail.epoch)

    def _place(self, slot: int, row: Row | None) -> None:
        """Writes the row of a batch found in the log, or a MARK, at a slot, and moves the tail behind it."""
        tail = self._vouch(self._tail._replace(sequence=self._segment.first_sequence + slot))
        if row is None:
            self._write(slot, self._codec.note(Kind.MARK, tail, start_offset=tail.log_start_offset))
            return
        newest = max(tail.running_max_timestamp, row.max_timestamp)
        placed = row._replace(
            sequence=tail.sequence,
            durable=tail.durable,
            running_max_timestamp=newest,
            start_offset=tail.log_start_offset,
        )
        self._write(slot, self._codec.pack(placed))
        self._advance(placed)
        self._report.rows_rewritten += 1

    def _note_lost(self, slot: int, end: int) -> int:
        sequence, position = self._segment.first_sequence + slot, max(self._size, self._tail.file_position)
        tail = self._vouch(self._tail._replace(sequence=sequence, file_position=position))
        self._report.damage.append(Damage(tail.offset, end, "neither batches nor rows are left"))
        raw = self._codec.note(Kind.LOST, tail, start_offset=tail.log_start_offset, offsets=end - tail.offset)
        self._write(slot, raw)
        self._tail = tail._replace(offset=end)
        return slot + 1

    def _trim(self, slot: int) -> None:
        """Cuts the files behind what was taken in."""
        segment, tail = self._segment, self._tail
        excess = max(self._size - tail.file_position, 0)
        if not excess and segment.catalog.size() <= slot * ROW_BYTES:
            return
        rows = segment.slots - slot - (self._seal_slot == slot)
        if excess or rows > 0:
            self._report.bytes_cut += excess
            self._report.rows_cut += rows
            self._report.say(
                f"{excess} bytes and {rows} rows behind offset {tail.offset} do not verify, were never acknowledged as "
                f"far as this replica can tell, and are cut"
            )
        self._attempt(lambda: segment.cut(slot, [], tail))

    def _write(self, slot: int, raw: bytes) -> None:
        self._attempt(lambda: self._segment.catalog.pwritev([raw], slot * ROW_BYTES))

    def _attempt(self, change: Callable[[], None]) -> None:
        """A correction that the disk refuses costs the log its right to be written, not the data its readers."""
        self.is_changed = True
        try:
            change()
        except OSError as error:
            self.error = error
