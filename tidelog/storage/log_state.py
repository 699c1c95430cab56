"""The state of a log: its segments, its end, and how far it is durable. The parts of a `PartitionLog` share it.

Each part is one operation on this state: `LogReader` reads, `Appender` appends and rolls, `Flusher` makes durable,
`Deleter` deletes a prefix, `Truncator` drops a suffix, `Mender` repairs and `Scrubber` looks for damage. No part calls
back into `PartitionLog`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from msgspec import UNSET, UnsetType

from tidelog.model.errors import LogOffline, OffsetOutOfRange
from tidelog.model.ids import PartitionId
from tidelog.model.producers import ProducerTable
from tidelog.storage.damage import DamageList
from tidelog.storage.lineage import Lineage
from tidelog.storage.metainfo import Metainfo, MetainfoStore
from tidelog.storage.open_files import OpenFiles
from tidelog.storage.rows import RowCodec, Tail
from tidelog.storage.segment import Segment


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The settings of a topic that its logs need."""

    segment_bytes: int
    """Size from which on a segment is rolled before the next append, in bytes; one append is never split."""
    segment_ms: int
    segment_rows_max: int = 131_072
    """Number of rows in a segment's catalog (index file) from which on the segment is rolled. Opening reads the rows of
    the last segment: this bounds it to a third of a second, however small batches are."""
    producers_max: int = 65_536


@dataclass(frozen=True, slots=True)
class LogFiles:
    """The files of one log: their directory, the cache of open handles, and the codecs of catalog rows and metainfo."""

    opened: OpenFiles
    directory: str
    codec: RowCodec
    metainfo: MetainfoStore

    def hold(self, segment: Segment) -> Callable[[], None]:
        """Keeps a segment's files open until the returned function is called, for a read or repair on another thread.
        Raises `OSError`, `Overloaded`."""
        return self.opened.hold((segment.log_path, segment.catalog_path))


class FoundLog(NamedTuple):
    """A log as the loader has found it, all of it durable."""

    incarnation: str
    segments: list[Segment]
    tail: Tail
    lineage: Lineage
    producers: ProducerTable
    marked: int
    """The row sequence below which the log is durable according to its own rows."""


class LogState:
    """The state of one log: `log_start_offset <= durable_offset <= log_end_offset`. Single-threaded, but for
    `store_metainfo`."""

    def __init__(
        self, identity: PartitionId, files: LogFiles, settings: LogSettings, loaded: FoundLog, now_ms: int
    ) -> None:
        assert loaded.segments
        # The loader has made it so, or has taken the log offline: nobody is shown what a power cut could still take.
        assert loaded.tail.durable == loaded.tail.sequence, "a log is opened with all of it durable"
        self.identity = identity
        self.name = str(identity)
        """The partition's name in error messages: `topic-partition` once the broker has set it."""
        self.files = files
        self.settings = settings
        self.incarnation = loaded.incarnation
        self.replica: bytes | UnsetType = UNSET
        """Bytes that a Paxos replica has to remember (`Metainfo.replica`); unset in other logs."""
        self.stands_in_since: int | UnsetType = UNSET
        """Metadata log position since which this disk should have held the lost log that this one replaces
        (`Metainfo.stands_in_since`); unset if no log was lost."""
        self.noted: Metainfo | None = None
        """The metainfo that is durable on the disk; None if that is not sure."""
        self.segments = loaded.segments
        self.tail = loaded.tail
        self.lineage = loaded.lineage
        """(leader epoch, first offset) pairs of the batches in the log, both strictly increasing."""
        self.producers = loaded.producers
        self.damage = DamageList()
        # In offsets what `tail.durable` is in sequences. The two move together, at the end of a flush.
        self.durable_offset = loaded.tail.offset
        self.offline_reason: str | None = None
        self.on_offline: Callable[[], None] = lambda: None
        """Listener that is called when the log goes offline."""
        self.sequences_used = 0
        """Row sequences below this may have been used by rows that a truncation dropped. While the log's end is not
        beyond it, the next append begins a new segment."""
        self.rolled_ms = now_ms
        self.marked = loaded.marked

    @property
    def directory(self) -> str:
        return self.files.directory

    @property
    def log_start_offset(self) -> int:
        return self.tail.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.tail.offset

    @property
    def log_bytes(self) -> int:
        return sum(segment.log_bytes for segment in self.segments)

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def is_behind_a_truncation(self) -> bool:
        """Returns True if the next row would get the sequence of a row that a truncation dropped."""
        # Not `<=`: `sequences_used` is exclusive, so a row may have that very sequence.
        return self.tail.sequence < self.sequences_used

    # -- refusing -------------------------------------------------------------------------------------------------

    def take_offline(self, reason: str) -> None:
        """Ends all writes until the log is loaded again; committed records can still be read."""
        # The first reason is the cause; later ones follow from it.
        if self.offline_reason is None:
            self.offline_reason = reason
            self.on_offline()

    def require_online(self) -> None:
        """Raises `LogOffline` if the log takes no writes."""
        if self.offline_reason is not None:
            raise LogOffline(
                f"the log of partition {self.name} is offline ({self.offline_reason}); check the disk and restart"
            )

    def require_in_range(self, offset: int, end: int) -> None:
        """Raises `OffsetOutOfRange` unless `offset` is at or above the log's start, and at most `end`."""
        start = self.log_start_offset
        if not start <= offset <= end:
            raise OffsetOutOfRange(f"offset {offset} is out of range: the log holds {start} to {end}", start, end)

    # -- metainfo -------------------------------------------------------------------------------------------------

    def metainfo(self, high_watermark: int, *, restarts: bool = False) -> Metainfo:
        """Returns the metainfo (what a replica must remember of its log) as of now; `restarts` marks a log that drops
        all its files."""
        return Metainfo(
            incarnation=self.incarnation,
            # The durable end, not the log's end: metainfo vouches for it, and what lies below and does not verify is
            # called damage ever after.
            durable_sequence=self.tail.durable,
            end_offset=self.durable_offset,
            epoch=self.tail.epoch,
            high_watermark=high_watermark,
            log_start_offset=self.tail.log_start_offset,
            sequences_used=self.sequences_used or UNSET,
            restarts=restarts or UNSET,
            stands_in_since=self.stands_in_since,
            replica=self.replica,
        )

    def store_metainfo(self, info: Metainfo) -> None:
        """Stores this metainfo in both copies, unless it was taken before the last truncation and so would promise what
        the log has dropped. Blocking; may run on the disk thread. Raises `OSError`."""
        # `info` was taken on the event loop, and a truncation may have been made since. Every truncation raises
        # `sequences_used`, so metainfo of before it is told by its own.
        if (info.sequences_used or 0) == self.sequences_used:
            self.files.metainfo.store(info)
            self.noted = info

    def mend_metainfo(self, info: Metainfo) -> int:
        """Reads both metainfo copies, and writes a bad one again from the other, or both from `info`. Returns the
        number of bad copies; 0, and does nothing, if the log is offline or `info` is from before a truncation.
        Blocking; for the disk thread."""
        is_outdated = self.offline_reason is not None or (info.sequences_used or 0) != self.sequences_used
        return 0 if is_outdated else self.files.metainfo.mend(info)
