"""Opening a log: finds out what is there, tells a torn end from later damage, and never guesses.

`tidelog.storage.scan` tells these apart within one segment. This module decides between segments. D is the highest row
sequence that any row or metainfo copy declares durable.
- Which segments need a scan. One with a sound seal below D is not read at all, so opening takes two small reads a
  segment, plus the rows of the last one.
- What precedes something that was durable once was durable, too, and is kept, even if it is damaged. What follows a
  torn end was written after it, and is dropped.
- What lies wholly below the log's start is left over from a deletion, and is not checked.
"""

from __future__ import annotations

from functools import partial
from itertools import zip_longest
from typing import NamedTuple

from msgspec import structs

from tidelog.model.errors import TidelogError
from tidelog.model.ids import OFFSET_MAX, PartitionId
from tidelog.storage.handover import drop_handover, read_handover
from tidelog.storage.load_report import Corrections, LoadReport
from tidelog.storage.log_state import FoundLog, LogFiles
from tidelog.storage.marks import Marks
from tidelog.storage.metainfo import Metainfo, MetainfoStore
from tidelog.storage.open_files import OpenFiles
from tidelog.storage.partition_log import LogSettings, PartitionLog
from tidelog.storage.rewriting import write_again
from tidelog.storage.rows import NO_TIMESTAMP, RowCodec, Tail
from tidelog.storage.scan import BadEnd, Scan
from tidelog.storage.segment import Segment
from tidelog.storage.strangers import find_strangers, has_rows, set_aside
from tidelog.storage.trails import read_trails
from tidelog.storage.truncation import remove_all, remove_segment, segment_names
from tidelog.storage.two_copies import LoadedCopies


def load_log(
    opened: OpenFiles,
    directory: str,
    identity: PartitionId,
    settings: LogSettings,
    *,
    new_incarnation: str,
    now_ms: int,
    held: Held | None = None,
    bad_end: BadEnd = BadEnd.KEEP,
) -> tuple[PartitionLog, LoadReport]:
    """Opens the log in `directory`, or makes an empty one there. Blocking.

    `new_incarnation` becomes the log's id if there is no metainfo; `held` says since when this disk should have the
    log; `bad_end` decides whether a damaged batch at the end, which no mark declares durable, is kept. Damage never
    raises; `OSError` is raised only if files cannot be opened or made. If what was found cannot be made durable, the
    log is offline at once.
    """
    return _Loader(opened, directory, identity, settings, bad_end).load(new_incarnation, now_ms, held)


class Held(NamedTuple):
    """The metadata log position since which this broker is assigned a log."""

    since: int
    is_begun: bool
    """True if the log was created on this disk, durably: if none of its files is found, it is lost."""


class _Loader:
    def __init__(
        self, opened: OpenFiles, directory: str, identity: PartitionId, settings: LogSettings, bad_end: BadEnd
    ) -> None:
        self._opened = opened
        self._files = opened.files
        self._directory = directory
        self._identity = identity
        self._settings = settings
        self._bad_end = bad_end
        self._codec = RowCodec(identity)
        self._metainfo = MetainfoStore(opened.files, directory, identity)
        self._report = LoadReport()
        self._corrections = Corrections()
        self._marks = Marks(self._codec)
        self._is_bare = False
        """True if no segment was found."""
        self._is_known = False
        """True if metainfo of this log was found on the disk."""
        self._info: Metainfo
        self._held: Held | None = None

    def load(self, new_incarnation: str, now_ms: int, held: Held | None) -> tuple[PartitionLog, LoadReport]:
        loaded = self._metainfo.load()
        if loaded is None:  # else the directory was durable before its metainfo was
            self._files.make_dirs(self._directory)
        info = loaded.info if loaded else Metainfo(incarnation=new_incarnation)
        self._report.high_watermark = info.high_watermark
        segments = self._find(info, is_known=loaded is not None)
        info = self._judge_loss(info, segments, loaded, held)
        self._info, self._held, self._is_known = info, held, loaded is not None
        self._make_missing(segments)
        if loaded is None and any(segment.log.size() for segment in segments):
            self._report.say("both metainfo copies are lost; this replica starts a new incarnation")
        marks = self._marks
        marks.note(info.durable_sequence, info.log_start_offset)
        for segment, following in zip_longest(segments, segments[1:]):
            marks.read(segment, following.base_offset if following else OFFSET_MAX)
        used = info.sequences_used or 0
        doomed = self._take_doomed(segments)
        sequence = max([used if info.restarts else 0, *(segment.next_sequence for segment in doomed)])
        tail = self._scan_all(segments, max(info.end_offset, marks.log_start_offset), sequence)
        info = self._info
        # Everything that was kept beyond D is written again and fsynced before anybody can see it: it may be in the
        # page cache only. Without this, a follower could acknowledge what the next power cut takes.
        offline_reason = self._make_durable(segments, tail)
        self._report_damage(tail.log_start_offset)
        # True by now, or the log is offline and will write no row that says so.
        tail = tail._replace(durable=tail.sequence)
        trails = read_trails(self._codec, [*doomed, *segments], self._settings.producers_max, now_ms)
        files = LogFiles(self._opened, self._directory, self._codec, self._metainfo)
        found_log = FoundLog(info.incarnation, segments, tail, trails.lineage, trails.producers, marks.durable)
        log = PartitionLog(self._identity, files, self._settings, found_log, now_ms)
        log.replica, log.stands_in_since, log.sequences_used = info.replica, info.stands_in_since, used
        if info.restarts:
            producers_max = self._settings.producers_max
            log.producers.restore(read_handover(self._files, self._directory, self._codec, producers_max))
        for damage in self._report.damage:
            log.damage.note(damage)
        # A truncation, or a start over, that a crash cut short before it gave the empty last segment its sequences.
        is_interrupted = log.tail.sequence < used and log.active.end_offset == log.active.base_offset
        is_interrupted = is_interrupted or bool(info.restarts)
        # The last segment must begin with a sound checkpoint: epochs and producers have to outlive the older segments,
        # which retention may delete at any time.
        if offline_reason is None and (trails.first < len(doomed) + len(segments) - 1 or is_interrupted):
            offline_reason = self._begin_anew(log, now_ms)
        # Metainfo that claims more than the log has, or less than its rows, is written anew: a `durable_sequence`
        # beyond the tail would make damage of the next torn end.
        is_moved = info.log_start_offset < tail.log_start_offset or info.durable_sequence > log.tail.sequence
        is_moved = is_moved or bool(info.restarts)
        log.noted = _durable(loaded)
        if loaded is None or loaded.bad_copies or is_moved:
            if loaded is not None and loaded.bad_copies:
                self._report.say("one metainfo copy was bad or old and is written again")
            offline_reason = offline_reason or self._store(log, info)
        # Only now: the log's start is durable in metainfo, so no second crash can find the files gone and the order
        # with them.
        offline_reason = offline_reason or self._finish_deletion(doomed)
        if offline_reason:
            log.take_offline(offline_reason)
        else:
            drop_handover(self._files, self._directory)
        return log, self._report

    # -- finding --------------------------------------------------------------------------------------------------

    def _find(self, info: Metainfo, *, is_known: bool) -> list[Segment]:
        """Returns the segments found in the directory, or one empty segment if there are none. `is_known` says that
        metainfo of this log was found."""
        if info.restarts:
            # The decision to start over was durable; what is left of the segments is no part of the log, however sound
            # it looks.
            self._corrections.attempt(partial(remove_all, self._opened, self._directory, wipes=True))
        stems = {name[:20] for name in segment_names(self._opened, self._directory)}
        segments = self._without_strangers([*map(self._segment, sorted(map(int, stems)))], is_known=is_known)
        self._is_bare = not segments
        if not segments:
            if info.end_offset > info.log_start_offset:
                self._report.say(f"all segments are missing; offsets up to {info.end_offset} are lost")
            # The empty log goes on where metainfo says that it ended: an offset that was given out names nothing else,
            # ever.
            segments = [self._segment(info.end_offset)]
        return segments

    def _make_missing(self, segments: list[Segment]) -> None:
        for segment in segments:
            for path in (segment.log_path, segment.catalog_path):
                if not self._files.exists(path):
                    self._opened.get(path, create=True)
                    self._corrections.are_made = True
                    if not self._is_bare:
                        self._report.say(f"{path} is missing")

    def _judge_loss(
        self, info: Metainfo, segments: list[Segment], loaded: LoadedCopies[Metainfo] | None, held: Held | None
    ) -> Metainfo:
        """Returns metainfo with `stands_in_since` set if the log is lost: it was created here, and metainfo is gone and
        no batch is left, or metainfo is left and no segment file. Else returns it unchanged."""
        if held is None:
            return info
        if loaded is None:
            has_batches = not self._is_bare and any(
                segment.log.size() for segment in segments if self._files.exists(segment.log_path)
            )
            # A new log gets its metainfo last, so a crash while it is made leaves files without metainfo, and without
            # batches. But if this disk noted that the log was made, that is no crash, and the log is lost.
            is_gone = held.is_begun and not has_batches
        else:
            # Metainfo is written after the first segment's files. Metainfo alone is what fsck or an operator left.
            is_gone = self._is_bare and not info.restarts
        if not is_gone:
            return info
        self._report.say("the log is lost; an empty one stands in its place until it is filled from other replicas")
        # Said before there are files again. Without this, the empty log in its place would be in good standing after
        # one more restart: it could lead, and all others would truncate what was acknowledged.
        info = structs.replace(info, stands_in_since=held.since)
        if loaded is not None:
            self._corrections.attempt(partial(self._metainfo.store, info))
        return info

    def _segment(self, base_offset: int) -> Segment:
        return Segment(self._opened, self._directory, base_offset, self._codec)

    def _without_strangers(self, segments: list[Segment], *, is_known: bool) -> list[Segment]:
        """Opens segments by their headers and seals, renames files that belong to another log, and returns the segments
        that are left."""
        # A segment with a header and a seal of ours is ours; these checksums are seeded with the log's identity.
        doubtful = [segment for segment in segments if not self._is_sealed(segment)]
        strangers = dict.fromkeys(
            path
            for segment in doubtful
            for path in find_strangers(self._opened, self._directory, segment.base_offset, self._identity)
        )
        if not is_known and (strangers or self._metainfo.is_of_another()):
            unclaimed = (segment for segment in doubtful if not has_rows(self._opened, segment, self._codec))
            strangers |= dict.fromkeys(
                path for segment in unclaimed for path in (segment.log_path, segment.catalog_path)
            )
        # All logs go first: without the catalogs nobody would know them for a stranger's.
        for path in sorted(strangers, key=lambda path: path.endswith(".catalog")):
            if self._files.exists(path):
                self._report.say(f"{path} belongs to another log and is set aside")
                # Set aside, never removed: it may be the last copy of that other log.
                self._corrections.attempt(partial(set_aside, self._opened, path))
        return [segment for segment in segments if segment.log_path not in strangers]

    def _is_sealed(self, segment: Segment) -> bool:
        return self._files.exists(segment.catalog_path) and self._marks.open_sealed(segment)

    def _take_doomed(self, segments: list[Segment]) -> list[Segment]:
        """Removes from `segments` those that lie wholly below the log's start, left by a deletion that a crash
        interrupted, and returns them."""
        # Deletions are asked for below the high watermark only. So whatever row says how far, everything up to there
        # was durable, and it does no harm if the row itself is truncated later.
        doomed: list[Segment] = []
        while len(segments) > 1 and segments[1].base_offset <= self._marks.log_start_offset:
            # A crash lets the files of a deletion go in any order, so what is left of them is not judged: to the scan,
            # a hole there would look like the torn end of the log, and all behind it would be dropped.
            doomed.append(segments.pop(0))
        return doomed

    # -- scanning -------------------------------------------------------------------------------------------------

    def _scan_all(self, segments: list[Segment], durable_end: int, sequence: int) -> Tail:
        """Scans and corrects every segment that is not sealed below D (the highest durable sequence); returns the log's
        end."""
        tail = Tail(sequence, 0, 0, segments[0].base_offset, 0, NO_TIMESTAMP, self._marks.log_start_offset)
        for index, segment in enumerate(segments):
            later = segments[index + 1 :]
            # The seal itself was durable: every row and batch before it was, too, and what is damaged there is found
            # when it is read. So opening costs two small reads a segment, however large it is.
            if later and segment.is_sealed and segment.next_sequence <= self._marks.durable:
                tail = self._tail_of_sealed(segment, tail)
                continue
            # Evidence reaches backwards. If anything behind this segment was durable once, all of it was, and nothing
            # in it may be taken for torn, whatever has become of its rows.
            is_settled = not later or later[0].base_offset <= durable_end
            is_settled = is_settled or any(0 <= following.first_sequence < self._marks.durable for following in later)
            settled_end = (later[0].base_offset if later else durable_end) if is_settled else segment.base_offset
            scan = Scan(
                self._codec,
                segment,
                self._marks.durable,
                self._report,
                self._corrections,
                bad_end=self._bad_end,
                on_end_lost=self._note_end_lost if self._may_be_filled else None,
                # A log's first header is durable before its metainfo is. Of later segments a crash during a roll may
                # have left a catalog whose header never was on the disk.
                had_header=index == 0,
            )
            start = tail._replace(offset=segment.base_offset, file_position=0, running_max_timestamp=NO_TIMESTAMP)
            tail = scan.run(start, settled_end, later[0].base_offset if later else None)
            # The segment ends early, so its end was torn. What lies in later segments was written after that, and was
            # never acknowledged: an acknowledgement takes a flush of all before it.
            if later and tail.offset != later[0].base_offset:
                self._drop(segments, index + 1)
                return scan.unseal(tail)
            # A roll that a crash cut short left the next segment without this seal; the batches are whole, so it is
            # written now.
            if later and not segment.is_sealed:
                tail = scan.seal(tail)
        return tail

    @property
    def _may_be_filled(self) -> bool:
        """Returns True if the log existed here before, and other replicas can fill it again."""
        # Of a new log nobody counts on anything yet; of a log by itself there is nobody to fill it from.
        is_made = self._is_known and not self._is_bare and not self._info.restarts
        return is_made and self._held is not None and self._bad_end == BadEnd.KEEP

    def _note_end_lost(self) -> None:
        """Notes in metainfo, before the end is truncated, that durable batches at the log's end are lost. Until it is
        filled from other replicas the log counts as lost."""
        assert self._held is not None
        if self._info.stands_in_since != self._held.since:
            self._report.say("the log has lost its end; nobody counts on it until it is filled from other replicas")
            self._info = structs.replace(self._info, stands_in_since=self._held.since)
            self._corrections.attempt(partial(self._metainfo.store, self._info))

    def _tail_of_sealed(self, segment: Segment, tail: Tail) -> Tail:
        seal = self._marks.seals[segment.base_offset]
        start = max(tail.log_start_offset, seal.start_offset)
        epoch = max(tail.epoch, seal.epoch)
        return Tail(segment.next_sequence, 0, epoch, segment.end_offset, 0, NO_TIMESTAMP, start)

    def _drop(self, segments: list[Segment], first: int) -> None:
        """Removes segments behind a truncated one: they were written after what is truncated, so never acknowledged."""
        # The last one first, each step durable: a crash on the way leaves a shorter log, never one with a hole.
        for segment in reversed(segments[first:]):
            self._report.say(f"segment {segment.base_offset} follows a torn tail and is dropped")
            self._report.bytes_cut += segment.log.size()
            self._corrections.attempt(partial(self._remove, segment))
        del segments[first:]

    def _remove(self, segment: Segment) -> None:
        remove_segment(self._opened, segment)
        self._files.sync_dir(self._directory)

    # -- finishing ------------------------------------------------------------------------------------------------

    def _make_durable(self, segments: list[Segment], tail: Tail) -> str | None:
        # After a clean stop all is below D, and opening writes and syncs nothing.
        if not self._corrections.are_made and tail.sequence <= self._marks.durable:
            return None
        try:
            if self._corrections.error is not None:
                # Nothing is synced after a change that failed: an fsync would vouch for files that are not as the log
                # says.
                raise self._corrections.error
            for segment in segments:
                if not segment.is_sealed or segment.next_sequence > self._marks.durable or segment is segments[-1]:
                    write_again(segment, self._marks.durable)
                    segment.log.sync()
                    segment.catalog.sync()
            if self._corrections.are_made or not self._has_durable_names(segments[-1]):
                self._files.sync_dir(self._directory)
        except OSError as error:
            return f"what was found could not be made durable: {error}"
        return None

    def _has_durable_names(self, last: Segment) -> bool:
        """Returns True if the names of the last segment's files are durable: its first row is, and the flush of that
        row fsyncs the directory. If the segment is sealed, a later one was being removed, and the answer is False."""
        return not last.is_sealed and self._marks.durable > last.first_sequence

    def _finish_deletion(self, doomed: list[Segment]) -> str | None:
        """Removes the files of deleted segments; returns why that failed, or None."""
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
        """Reports the damage at and above the log's start. Files missing below it were deleted: a crash may leave any
        of them."""
        report = self._report
        report.damage = [damage for damage in report.damage if damage.end > log_start_offset]
        for damage in report.damage:
            report.say(f"offsets {damage.start} to {damage.end - 1} are lost: {damage.reason}")

    def _begin_anew(self, log: PartitionLog, now_ms: int) -> str | None:
        try:
            log.begin_anew(now_ms)
        except (OSError, TidelogError) as error:
            return f"the newest segment has lost its checkpoint, and no new one could be begun: {error}"
        return None

    def _store(self, log: PartitionLog, info: Metainfo) -> str | None:
        try:
            log.store_metainfo(log.metainfo(min(info.high_watermark, log.log_end_offset)))
        except OSError as error:
            return f"metainfo could not be written: {error}"
        return None


def _durable(loaded: LoadedCopies[Metainfo] | None) -> Metainfo | None:
    """Returns the metainfo that is surely on the disk (both copies are good), or None."""
    return None if loaded is None or loaded.bad_copies else loaded.info
