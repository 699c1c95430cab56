"""The state of a log: its segments, its tail, and how far it is durable. The parts of a `PartitionLog` share it.

Each part is one verb on this state: `LogReader` reads, `Appender` appends and rolls, `Flusher` makes durable, `Deleter`
deletes a prefix, `Truncator` drops a suffix, `Mender` and `Scrubber` see to damage. No part calls back into the whole.
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
    """The part of a topic's configuration that its logs need."""

    segment_bytes: int
    """A segment of so many bytes is rolled before the next append; one gathered append is never split."""
    segment_ms: int
    segment_rows_max: int = 131_072
    """Opening reads the rows of the last segment: this bounds it to a third of a second, however small batches are."""
    producers_max: int = 65_536


@dataclass(frozen=True, slots=True)
class LogFiles:
    """The files of one log: the directory that holds them, and how their rows and metainfo are written."""

    opened: OpenFiles
    directory: str
    codec: RowCodec
    metainfo: MetainfoStore

    def hold(self, segment: Segment) -> Callable[[], None]:
        """Keeps a segment's files open until what is returned is called: for who reads, or repairs, elsewhere than on
        the event loop's thread. Raises `OSError`, `Overloaded`."""
        return self.opened.hold((segment.log_path, segment.catalog_path))


class FoundLog(NamedTuple):
    """A log as the loader has found it. All of it is durable."""

    incarnation: str
    segments: list[Segment]
    tail: Tail
    lineage: Lineage
    producers: ProducerTable
    marked: int
    """How far the rows themselves say that the log is durable."""


class LogState:
    """The state of one log: `log_start_offset <= durable_offset <= log_end_offset`. Single-threaded, but for
    `store_metainfo`."""

    def __init__(
        self, identity: PartitionId, files: LogFiles, settings: LogSettings, found: FoundLog, now_ms: int
    ) -> None:
        assert found.segments
        # The loader has made it so, or has taken the log offline: nobody is shown what a power cut could still take.
        assert found.tail.durable == found.tail.sequence, "a log is opened with all of it durable"
        self.identity = identity
        self.name = str(identity)
        """Errors call the partition so: whoever knows the name of its topic puts that here."""
        self.files = files
        self.settings = settings
        self.incarnation = found.incarnation
        self.replica: bytes | UnsetType = UNSET
        """See `Metainfo.replica`."""
        self.stands_in_since: int | UnsetType = UNSET
        """See `Metainfo.stands_in_since`."""
        self.noted: Metainfo | None = None
        """The metainfo that the disk has; None if that is not sure."""
        self.segments = found.segments
        self.tail = found.tail
        self.lineage = found.lineage
        """(leader epoch, first offset) of what is here, both strictly increasing."""
        self.producers = found.producers
        self.damage = DamageList()
        # In offsets what `tail.durable` is in sequences. The two move together, at the end of a flush.
        self.durable_offset = found.tail.offset
        self.offline_reason: str | None = None
        self.on_offline: Callable[[], None] = lambda: None
        """Is called when the log goes offline."""
        self.sequences_used = 0
        """See `Metainfo.sequences_used`. While the log is not beyond it, the next append begins a new segment."""
        self.rolled_ms = now_ms
        self.marked = found.marked

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
        """Returns True if the next row would take the sequence of one that was dropped."""
        # Not `<=`: `sequences_used` is exclusive, so a row may have that very sequence.
        return self.tail.sequence < self.sequences_used

    # -- refusing -------------------------------------------------------------------------------------------------

    def take_offline(self, reason: str) -> None:
        """Ends all writes until the log is loaded again; what is committed can still be read."""
        # The first reason is the cause; later ones follow from it.
        if self.offline_reason is None:
            self.offline_reason = reason
            self.on_offline()

    def require_online(self) -> None:
        """Raises `LogOffline`."""
        if self.offline_reason is not None:
            raise LogOffline(
                f"the log of partition {self.name} is offline ({self.offline_reason}); check the disk and restart"
            )

    def require_in_range(self, offset: int, end: int) -> None:
        """Raises `OffsetOutOfRange`."""
        start = self.log_start_offset
        if not start <= offset <= end:
            raise OffsetOutOfRange(f"offset {offset} is out of range: the log holds {start} to {end}", start, end)

    # -- metainfo -------------------------------------------------------------------------------------------------

    def metainfo(self, high_watermark: int, *, restarts: bool = False) -> Metainfo:
        """Returns the replica's metainfo as of now."""
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
        """Stores this metainfo in both copies. That of before a truncation that was made meanwhile would promise what
        the log holds no more, and are passed over. Blocking; may run on the disk thread. Raises `OSError`."""
        # `info` was taken on the event loop, and a truncation may have been made since. Every truncation raises
        # `sequences_used`, so metainfo of before it is told by its own.
        if (info.sequences_used or 0) == self.sequences_used:
            self.files.metainfo.store(info)
            self.noted = info

    def mend_metainfo(self, info: Metainfo) -> int:
        """Looks at both copies as `TwoCopyStore.mend`, which says what it returns. Blocking; for the disk thread."""
        is_outdated = self.offline_reason is not None or (info.sequences_used or 0) != self.sequences_used
        return 0 if is_outdated else self.files.metainfo.mend(info)
