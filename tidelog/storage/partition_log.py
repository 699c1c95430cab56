"""A partition's log: appended at the end, read anywhere, shortened at either end, repaired in its middle.

Deleting a prefix is a row in the catalog first; files go only when that row is durable, so a crash half-way through the
deletion finds the decision, not a hole. Two truncations are for a replica whose log is not its leader's:

- `truncate_to` drops the end. Done half, it leaves a longer piece of the log as it was, and is asked for again.
  Metainfo goes first, so that what goes is not taken for lost, and that no row sequence is given out twice.
- `start_over` drops everything. Metainfo says so first, and whoever opens the log next finishes it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from msgspec import UNSET, UnsetType

from tidelog.model.errors import DiskFull, TidelogError
from tidelog.model.ids import PartitionId
from tidelog.model.ports import Buffer
from tidelog.model.producers import ProducerTable
from tidelog.storage.appendable_log import AppendableLog, LogSettings
from tidelog.storage.damage import DamageList
from tidelog.storage.flush import Flush
from tidelog.storage.lineage import Lineage, epoch_before
from tidelog.storage.metainfo import Metainfo, MetainfoStore
from tidelog.storage.open_files import OpenFiles
from tidelog.storage.repair import Repair, mend_rows, repair_batch
from tidelog.storage.rows import NO_TIMESTAMP, Kind, Tail
from tidelog.storage.scrub import Piece, Scrubber, ScrubStep
from tidelog.storage.segment import Damage, Extent, Segment
from tidelog.storage.trails import read_trails
from tidelog.storage.truncation import Truncation, find_truncation, remove_all, remove_behind, remove_segment

__all__ = ["ROWS_LEFT_MAX", "LogSettings", "PartitionLog"]

ROWS_LEFT_MAX = 4_096
"""A clean stop rolls a segment with more rows, so that the next opening has little to read."""


class PartitionLog(AppendableLog):
    """One replica's log of one partition. Single-threaded, but for `Flush.run` and `store_metainfo`.

    `log_start_offset <= durable_offset <= log_end_offset`. Made by `tidelog.storage.loader.load_log`.
    """

    def __init__(
        self,
        opened: OpenFiles,
        directory: str,
        identity: PartitionId,
        settings: LogSettings,
        metainfo: MetainfoStore,
        incarnation: str,
        segments: list[Segment],
        tail: Tail,
        lineage: Lineage,
        producers: ProducerTable,
        now_ms: int,
        *,
        marked: int,
    ) -> None:
        super().__init__(
            opened, directory, identity, settings, segments, tail, lineage, producers, now_ms, marked=marked
        )
        self.incarnation = incarnation
        self.replica: bytes | UnsetType = UNSET
        """See `Metainfo.replica`."""
        self.damage = DamageList()
        self.on_damage: Callable[[], None] = _nobody
        """Called when something is found damaged that was not known to be."""
        self._metainfo = metainfo
        self._doomed: list[tuple[int, Segment]] = []
        self._scrubber = Scrubber(self)

    # -- deleting and truncating ---------------------------------------------------------------------------------------

    def end_flush(self, flush: Flush, error: OSError | None) -> None:
        """Takes in a flush's outcome; on success `durable_offset` covers it and doomed files go."""
        super().end_flush(flush, error)
        if self.offline_reason is None:
            self._remove_doomed()

    def delete_records(self, offset: int) -> None:
        """Lets go of everything below `offset` (Kafka's DeleteRecords). Files go after the next flush.

        Raises `OffsetOutOfRange` beyond what is durable, else as `append`. Below the start there is nothing to do.
        """
        self._require_online()
        if offset <= self.log_start_offset:
            return
        self._require_in_range(offset, self.durable_offset)
        try:
            self._note_deletion(offset)
        except DiskFull:
            if not self._opened.reserve.spend():
                raise
            self._note_deletion(offset)
        while len(self.segments) > 1 and self.segments[1].base_offset <= offset:
            self._doomed.append((self.tail.sequence, self.segments.pop(0)))
        while len(self.lineage) > 1 and self.lineage[1][1] <= offset:
            del self.lineage[0]  # the epoch in force at the start stays
        self.damage.clip(offset, self.log_end_offset)

    def _note_deletion(self, offset: int) -> None:
        if self._is_behind_a_truncation:
            self.roll(self._rolled_ms)
        self._note_row(Kind.DELETE_RECORDS, offset)

    def truncate_to(self, offset: int, *, high_watermark: int, now_ms: int) -> None:
        """Drops the batch that holds `offset` and all behind it, durably. What is appended next may be of any epoch
        from that of what is kept on, also below what was dropped. Blocking; no flush may be under way. May run on the
        disk thread while nobody uses this log; the same holds of `start_over`.

        Deleted offsets never come back: where a batch goes that the log starts within, the log restarts at its start.
        Raises `OffsetOutOfRange`, or `OSError`: the log is offline then.
        """
        self._require_online()
        self._require_in_range(offset, self.log_end_offset)
        if offset == self.log_end_offset:
            return
        if self.is_dirty:
            self.flush()  # what is kept must be durable, and may lie in other segments than what goes
            self._require_online()
        kept = len(self.segments)
        while kept > 1 and self.segments[kept - 1].base_offset >= offset:
            kept -= 1
        last = self.segments[kept - 1]
        epoch = epoch_before(self.lineage, last.base_offset) or 0
        truncation = find_truncation(self._codec, last, offset, self.tail._replace(epoch=epoch))
        if truncation.tail.offset < self.log_start_offset:
            self.start_over(self.log_start_offset, now_ms=now_ms)
            return
        try:
            with self._opened.pinned(last.log_path, last.catalog_path):
                self._truncate(kept, truncation, high_watermark, now_ms)
        except OSError as error:
            self.take_offline(f"truncation failed: {error}")
            raise

    def _truncate(self, kept: int, truncation: Truncation, high_watermark: int, now_ms: int) -> None:
        self._use_up_sequences()
        self.tail = truncation.tail._replace(durable=truncation.tail.sequence)
        self.durable_offset, self._marked = truncation.tail.offset, truncation.tail.sequence
        # Metainfo first: were it to promise more than the log holds, the loader would call the difference lost.
        self.store_metainfo(self.metainfo(min(high_watermark, truncation.tail.offset)))
        remove_behind(self._opened, self.directory, self.segments[kept:])
        del self.segments[kept:]
        self.active.truncate(truncation.slot, truncation.rows, truncation.tail)
        self.active.log.sync()
        trails = read_trails(self._codec, self.segments, self.settings.producers_max, now_ms)
        self.lineage, self.producers = trails.lineage, trails.producers
        self.damage.clip(self.log_start_offset, self.log_end_offset)
        if self.active.end_offset == self.active.base_offset:
            self._write_catalog_afresh()  # there is nothing that a roll could seal

    def start_over(self, offset: int, *, now_ms: int) -> None:
        """Drops everything, durably: the log is empty and goes on at `offset`, which may be anywhere. Neither epochs
        nor producers are known any more. For a follower whose log ends before its leader's begins, or that has nothing
        in common with it. Blocking; no flush may be under way. Raises `OSError`: the log is offline then.
        """
        self._require_online()
        self._use_up_sequences()
        self._unflushed.disown_all()
        try:
            self._begin_at(offset)
        except OSError as error:
            self.take_offline(f"starting over at offset {offset} failed: {error}")
            raise
        self._rolled_ms = now_ms

    def _use_up_sequences(self) -> None:
        """Every truncation has a number of its own: facts noted before it are told by theirs."""
        self.sequences_used = max(self.sequences_used + 1, self.tail.sequence)

    def _begin_at(self, offset: int) -> None:
        used, is_behind = self.sequences_used, offset < self.tail.offset
        self.tail = Tail(used, used, 0, offset, 0, NO_TIMESTAMP, offset)
        self.durable_offset = offset
        self.lineage, self.producers = [], ProducerTable(self.settings.producers_max)
        self.store_metainfo(self.metainfo(offset, restarts=True))
        for segment in [*self.segments, *(doomed for _, doomed in self._doomed)]:
            self._opened.close(segment.log_path)
            self._opened.close(segment.catalog_path)
        self._doomed.clear()
        remove_all(self._opened, self.directory, wipes=is_behind)
        segment = Segment(self._opened, self.directory, offset, self._codec)
        for path in (segment.log_path, segment.catalog_path):
            self._opened.get(path, create=True)
        with self._opened.pinned(segment.log_path, segment.catalog_path):
            segment.log.sync()
            self.segments[:] = [segment]
            self._write_catalog_afresh()
        self._opened.files.sync_dir(self.directory)
        self._marked = self.tail.durable
        self.damage.clip(offset, offset)
        self.store_metainfo(self.metainfo(offset))

    def _remove_doomed(self) -> None:
        """Files that the disk does not let go yet are tried again after the next flush, or at the next opening."""
        ready = [doomed for doomed in self._doomed if doomed[0] <= self.tail.durable]
        with suppress(OSError):
            for doomed in ready:
                remove_segment(self._opened, doomed[1])
                self._doomed.remove(doomed)
                self._unflushed.has_names = True
        if ready:
            self._opened.reserve.fill()

    # -- damage and repair ----------------------------------------------------------------------------------------

    def extent(self, offset: int, bytes_max: int, end_offset: int) -> Extent:
        """As `ReadableLog.extent`; damage that is met is remembered."""
        extent = super().extent(offset, bytes_max, end_offset)
        if extent.damage is not None:
            self.note_damage(extent.damage)
        return extent

    def note_damage(self, damage: Damage) -> None:
        """Remembers what was found to be damaged, and tells whoever listens if that is news."""
        if self.damage.note(damage):
            self.on_damage()

    def look_again(self, damage: Damage) -> None:
        """Forgets what is known to be damaged as far as it can be read now: disks have moods. Reads one batch."""
        start = max(damage.start, self.log_start_offset)
        extent = self.extent(start, 1, self.log_end_offset)
        if extent.data:
            self.damage.forget(damage.start, extent.next_offset)

    def hold(self, segment: Segment) -> Callable[[], None]:
        """Keeps a segment's files open until what is returned is called: for who reads, or repairs, elsewhere than on
        the event loop's thread. Raises `OSError`, `Overloaded`."""
        return self._opened.hold((segment.log_path, segment.catalog_path))

    def damaged_ranges(self) -> list[Damage]:
        """What is known to be damaged on this disk, from opening, reading and scrubbing, in order of offsets."""
        return self.damage.ranges()

    def scrub(self, budget_bytes: int) -> ScrubStep:
        """Verifies the next piece of the log, some `budget_bytes` of it, round and round. Damage goes to
        `damaged_ranges`; catalog rows that are damaged alone are written again. Blocking. Raises `OSError` if that
        fails (the log is offline then), or `Overloaded`."""
        piece = self.begin_scrub(budget_bytes)
        if piece is None:
            return ScrubStep(has_finished=True)
        piece.run()
        step = self.end_scrub(piece)
        if step.mend_at is not None:
            self.mend(step.mend_at)
        return step

    def begin_scrub(self, budget_bytes: int) -> Piece | None:
        """The next piece, whose `run` may be called on another thread, then `end_scrub` in any case; None if a round is
        complete. Raises `OSError`, `Overloaded`."""
        return self._scrubber.begin(budget_bytes)

    def end_scrub(self, piece: Piece) -> ScrubStep:
        """Takes in what a piece found: damage goes to `damaged_ranges`."""
        return self._scrubber.end(piece)

    def mend(self, offset: int) -> None:
        """Makes the damaged catalog rows of the segment that holds `offset` again, as far as the log tells what they
        said, durably. Blocking. Raises as `scrub`."""
        part = next(self.parts(offset), None)
        if self.offline_reason is not None or not isinstance(part, Segment):
            return
        try:
            mend_rows(self._codec, part, self.tail)
        except OSError as error:
            self.take_offline(f"repair failed: {error}")
            raise

    def repair(self, data: Buffer, *, is_committed: bool = False) -> Repair:
        """Puts a batch back in its place, durably, if a peer's copy is the very batch that is damaged there. Its row is
        made again, if only that is damaged, or, with `is_committed`, if both are. Blocking. See
        `tidelog.storage.repair`.

        Raises `InvalidBatch` if these bytes are no sound batch, `OffsetOutOfRange`, `LogOffline`, `Overloaded`, or
        `OSError`: the log is offline then.
        """
        self._require_online()
        try:
            verdict, healed = repair_batch(self._codec, self, data, is_committed=is_committed)
        except OSError as error:
            self.take_offline(f"repair failed: {error}")
            raise
        if healed is not None:
            self.damage.forget(healed.start, healed.end)
        return verdict

    # -- metainfo and closing -------------------------------------------------------------------------------------

    def metainfo(self, high_watermark: int, *, restarts: bool = False) -> Metainfo:
        """The replica's facts as of now."""
        return Metainfo(
            incarnation=self.incarnation,
            durable_sequence=self.tail.durable,
            end_offset=self.durable_offset,
            epoch=self.tail.epoch,
            high_watermark=high_watermark,
            log_start_offset=self.tail.log_start_offset,
            sequences_used=self.sequences_used or UNSET,
            restarts=restarts or UNSET,
            replica=self.replica,
        )

    def store_metainfo(self, info: Metainfo) -> None:
        """Blocking; may run on the disk thread. Raises `OSError`. Facts of before a truncation that was made meanwhile
        would promise what the log holds no more, and are passed over."""
        if (info.sequences_used or 0) == self.sequences_used:
            self._metainfo.store(info)

    def close(self, high_watermark: int) -> None:
        """Makes all durable, notes it, and closes the files. Blocking; no flush may be under way.

        Raises `OSError` or `Overloaded` if it could not be noted: the files are closed all the same, and the next
        opening looks closer.
        """
        try:
            self._settle()
            if self.offline_reason is None:
                self.store_metainfo(self.metainfo(high_watermark))
        finally:
            self._unflushed.disown_all()
            for segment in [*self.segments, *(doomed for _, doomed in self._doomed)]:
                self._opened.close(segment.log_path)
                self._opened.close(segment.catalog_path)

    def _settle(self) -> None:
        if self.is_dirty:
            self.flush()
        if self.active.body_rows > ROWS_LEFT_MAX:
            with suppress(TidelogError):
                self.roll(self._rolled_ms)
        self.mark()
        if self.offline_reason is None:
            self._unflushed.soil(self.active.catalog_path)
            self.flush()


def _nobody() -> None:
    """Nobody listens yet."""
