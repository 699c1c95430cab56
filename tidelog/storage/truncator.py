"""Dropping the end of a log, or all of it: for a replica whose log diverges from its leader's.

- `truncate_to` drops the end. If a crash interrupts it, the log is still longer, and is truncated again. Metainfo is
  stored first, so that dropped batches are not taken for lost, and no sequence number of a catalog row is used twice.
- `start_over` drops everything. Metainfo says so first; if a crash interrupts it, the next opening of the log completes
  it. The producers' states that the leader has sent are kept for that in a file of their own (`handover.py`).

Both are durable when they return. Blocking; no flush may be under way. They may run on the disk thread while nothing
else uses the log.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.model.producers import ProducerState, ProducerTable
from tidelog.storage.appender import OUT_OF_SPACE, Appender
from tidelog.storage.deleter import Deleter
from tidelog.storage.flush import Flusher
from tidelog.storage.handover import drop_handover, keep_handover
from tidelog.storage.lineage import epoch_before
from tidelog.storage.log_reader import LogReader
from tidelog.storage.log_state import LogState
from tidelog.storage.rows import NO_TIMESTAMP, Tail
from tidelog.storage.segment import Segment
from tidelog.storage.trails import read_trails
from tidelog.storage.truncation import Truncation, find_truncation, remove_all, remove_behind


class Truncator:
    """Truncates one log."""

    def __init__(
        self, state: LogState, reader: LogReader, appender: Appender, flusher: Flusher, deleter: Deleter
    ) -> None:
        self._state = state
        self._reader = reader
        self._appender = appender
        self._flusher = flusher
        self._deleter = deleter
        self._opened = state.files.opened
        self._codec = state.files.codec

    def truncate_to(self, offset: int, *, high_watermark: int, now_ms: int) -> None:
        """Drops the batch that holds `offset` and everything behind it. Later batches may have any leader epoch from
        that of the last kept batch on, also one below the dropped ones'.

        If the dropped batch begins before the log start offset, the log is emptied and begins at that offset: deleted
        records never come back. Raises `OffsetOutOfRange`, or `OSError`: the log is offline then.
        """
        state = self._state
        state.require_online()
        state.require_in_range(offset, state.log_end_offset)
        if offset == state.log_end_offset:
            return
        if self._flusher.is_dirty:
            self._flusher.flush()  # what is kept must be durable, and may lie in other segments than what goes
            self._deleter.remove_doomed()
            state.require_online()
        segments_kept = len(state.segments)
        while segments_kept > 1 and state.segments[segments_kept - 1].base_offset >= offset:
            segments_kept -= 1
        last = state.segments[segments_kept - 1]
        epoch = epoch_before(state.lineage, last.base_offset) or 0
        truncation = find_truncation(self._codec, last, offset, state.tail._replace(epoch=epoch))
        # The batch that goes begins before the log's start, so nothing of the log is left. It restarts at its start:
        # deleted offsets never come back.
        if truncation.tail.offset < state.log_start_offset:
            producers = self._reader.producers_before(truncation.tail.offset, now_ms)
            self.start_over(state.log_start_offset, now_ms=now_ms, producers=producers)
            return
        try:
            # On the disk thread, perhaps: the event loop must not close these two to make room for others.
            with self._opened.pinned(last.log_path, last.catalog_path):
                self._truncate(segments_kept, truncation, high_watermark, now_ms)
        except OSError as error:
            state.take_offline(f"truncation failed: {error}")
            raise

    def _truncate(self, segments_kept: int, truncation: Truncation, high_watermark: int, now_ms: int) -> None:
        self._use_up_sequences()
        state, tail = self._state, truncation.tail
        state.tail = tail._replace(durable=tail.sequence)
        state.durable_offset, state.marked = tail.offset, tail.sequence
        # Metainfo first: were it to promise more than the log holds, the loader would call the difference lost.
        state.store_metainfo(state.metainfo(min(high_watermark, tail.offset)))
        # From the last one to the first. Done half, the log is longer than metainfo says, and whole; the truncation is
        # then asked for again.
        remove_behind(self._opened, state.directory, state.segments[segments_kept:])
        del state.segments[segments_kept:]
        state.active.truncate(truncation.slot, truncation.rows, tail)
        state.active.log.sync()
        trails = read_trails(self._codec, state.segments, state.settings.producers_max, now_ms)
        # Read from the rows that are left: what dropped batches said of epochs and producers never happened.
        state.lineage, state.producers = trails.lineage, trails.producers
        state.damage.clip(state.log_start_offset, state.log_end_offset)
        if state.active.end_offset == state.active.base_offset:
            self._appender.write_catalog_afresh()  # there is nothing that a roll could seal

    def start_over(self, offset: int, *, now_ms: int, producers: Iterable[tuple[int, ProducerState]] = ()) -> None:
        """Drops everything: the log is empty and continues at `offset`, which may be any. All leader epochs are
        forgotten, and the producers' states are replaced by `producers`, those as of `offset` in the leader's log. For
        a follower whose log ends before its leader's begins, or has nothing in common with it. Raises `OSError`: the
        log is offline then."""
        state = self._state
        state.require_online()
        self._use_up_sequences()
        # Writes that no flush has taken are of files that go.
        self._flusher.disown_all()
        try:
            self._begin_at(offset, producers)
        except OSError as error:
            state.take_offline(f"starting over at offset {offset} failed: {error}")
            raise
        state.rolled_ms = now_ms

    def _use_up_sequences(self) -> None:
        """Increases `sequences_used`, so that all metainfo taken before this truncation counts as outdated."""
        # One more than before in any case, also if nothing was appended in between.
        self._state.sequences_used = max(self._state.sequences_used + 1, self._state.tail.sequence)

    def _begin_at(self, offset: int, producers: Iterable[tuple[int, ProducerState]]) -> None:
        state, opened = self._state, self._opened
        # If it goes on before its old end, the log gives out offsets again: leftovers of the batches that had them must
        # not look like batches of this one.
        used, is_behind = state.sequences_used, offset < state.tail.offset
        state.tail = Tail(used, used, 0, offset, 0, NO_TIMESTAMP, offset)
        state.durable_offset = offset
        state.lineage, state.producers = [], ProducerTable(state.settings.producers_max)
        state.producers.restore(producers)
        # Before the decision below: the leader tells of these producers once, and a crash after it would find a log
        # that looks as if it needed nothing more.
        self._keep_producers()
        # The decision. From here on, whoever opens the log drops what is left of the segments, and begins at `offset`.
        state.store_metainfo(state.metainfo(offset, restarts=True))
        self._deleter.close_files()
        self._deleter.doomed.clear()
        # In any order, since none of these files counts any more.
        remove_all(opened, state.directory, wipes=is_behind)
        segment = Segment(opened, state.directory, offset, self._codec)
        for path in (segment.log_path, segment.catalog_path):
            opened.get(path, create=True)
        with opened.pinned(segment.log_path, segment.catalog_path):
            segment.log.sync()
            state.segments[:] = [segment]
            self._appender.write_catalog_afresh()
        # The new segment is durable, with its name, before metainfo says that segments count again.
        opened.files.sync_dir(state.directory)
        state.marked = state.tail.durable
        state.damage.clip(offset, offset)
        state.store_metainfo(state.metainfo(offset))
        drop_handover(opened.files, state.directory)

    def _keep_producers(self) -> None:
        state, files = self._state, self._opened.files
        try:
            keep_handover(files, state.directory, self._codec.pack_producers(state.producers.items()))
        except OSError as error:
            if error.errno not in OUT_OF_SPACE:
                raise
            keep_handover(files, state.directory, b"")  # what goes makes room; only a crash meanwhile costs them
