"""Requests for a REST consumer instance, as one broker hands them to the one that keeps the instance.

Each request is whole: no broker remembers anything between two of them but the keeper. All but `OpenInstance` may be
repeated: a read names its attempt, and who repeats an attempt gets the same records, or as many as there are by then.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tidelog.model.groups import CommittedOffset, InstanceSettings, TopicPartitions
from tidelog.model.records import RecordForm
from tidelog.model.wire_numbers import Int64, Natural

Partition = tuple[str, int]
"""Topic and partition."""


class InstanceRequest(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Base of what is asked of one instance. Raises `UnknownInstance`, also if it is another principal's;
    `CoordinatorNotAvailable`, `Overloaded`."""

    group: str
    instance: str
    caller: str = ""
    """Names the principal that asks; empty for one to whom no instance is another's: a super user, or whoever it may be
    where nobody has to log in."""


class OpenInstance(InstanceRequest, frozen=True, tag=True, kw_only=True):
    """Create it, for the `owner` of its settings. Answered by nothing. Raises `InstanceExists`; `Overloaded` if there
    are too many."""

    settings: InstanceSettings


class CloseInstance(InstanceRequest, frozen=True, tag=True, kw_only=True):
    """Delete it. Answered by nothing. One that commits by itself commits all that it has returned."""


class Subscribe(InstanceRequest, frozen=True, tag=True, kw_only=True):
    """Read these topics, as a member of the group; with neither, read nothing any more, whatever it was. Answered by
    nothing. Raises `IllegalState` for one that is assigned partitions."""

    topics: tuple[str, ...] = ()
    pattern: str = ""


class Assign(InstanceRequest, frozen=True, tag=True, kw_only=True):
    """Read these partitions, whoever else does. Answered by nothing. Raises `IllegalState` for one that subscribed."""

    partitions: tuple[TopicPartitions, ...]


class ShowReading(InstanceRequest, frozen=True, tag=True, kw_only=True):
    """Asks which topics and partitions an instance reads. Answered by `Reading`."""


class Reading(msgspec.Struct, frozen=True, tag=True):
    """The topics an instance subscribed to, those that match its pattern included, and the partitions it has now."""

    topics: tuple[str, ...]
    partitions: tuple[TopicPartitions, ...]


class Seek(InstanceRequest, frozen=True, tag=True, kw_only=True):
    """Go on at these offsets, or at the first record of these times (ms) or later, or else at the end. Answered by
    nothing. Raises `IllegalState` for partitions that it does not have now: then no position changes."""

    offsets: tuple[tuple[str, Int64, Int64], ...] = ()
    timestamps: tuple[tuple[str, Int64, Int64], ...] = ()


class SeekToEdge(InstanceRequest, frozen=True, tag=True, kw_only=True):
    """Go on at the beginning, or the end, of these partitions; of all that it has, if none are named. As `Seek`."""

    partitions: tuple[TopicPartitions, ...]
    is_end: bool


class ReadRecords(InstanceRequest, frozen=True, tag=True, kw_only=True):
    """The next records. Answered by `RecordsRead`, and the records as JSON text. A newer read ends one that waits.

    Raises `IllegalState` for one that reads nothing; `FormatMismatch` if the records are wanted in another form than
    that of the instance, or one of them cannot be shown in it; `RecordsLost` at an accepted loss, unless the instance
    skips those."""

    attempt: str
    wait_ms: Int64 | None = None
    """For the first record, or `fetch_bytes_min` bytes; the instance's own time by default."""
    bytes_max: Int64
    format: RecordForm | None = None
    """The form that the client wants, if it wants one."""


class RecordsRead(msgspec.Struct, frozen=True, tag=True):
    """The form of the records that follow, and the accepted losses that the read has skipped."""

    format: RecordForm
    lost: tuple[tuple[str, Natural, Natural, Natural], ...] = ()
    """Topic and partition, and offsets [start, end)."""


class CommitPositions(InstanceRequest, frozen=True, tag=True, kw_only=True):
    """Keep these committed offsets, or all where its reads have come to (None). Answered by `OffsetsCommitted`."""

    offsets: tuple[CommittedOffset, ...] | None
    is_async: bool = False
    """Answered at once; what becomes of it is not told."""


class OffsetRefused(msgspec.Struct, frozen=True):
    """A committed offset that was not kept, and why."""

    topic: str
    partition: Int64
    error_code: Int64
    message: str


class OffsetsCommitted(msgspec.Struct, frozen=True, tag=True):
    """All were kept, but those that are named. (Were none kept, it would have been an error.)"""

    refused: tuple[OffsetRefused, ...] = ()


class FetchCommitted(InstanceRequest, frozen=True, tag=True, kw_only=True):
    """The group's committed offsets in these partitions. Answered by `CommittedFetched`."""

    partitions: tuple[TopicPartitions, ...]


class CommittedFetched(msgspec.Struct, frozen=True, tag=True):
    """The committed offsets of those partitions that have one."""

    offsets: tuple[CommittedOffset, ...]


class TakeBack(InstanceRequest, frozen=True, tag=True, kw_only=True):
    """The client of this attempt to read is gone, and has not got what was read. Needs no answer."""

    attempt: str


REST_CONSUMER_MESSAGES: Final = (
    OpenInstance,
    CloseInstance,
    Subscribe,
    Assign,
    ShowReading,
    Reading,
    Seek,
    SeekToEdge,
    ReadRecords,
    RecordsRead,
    CommitPositions,
    OffsetsCommitted,
    FetchCommitted,
    CommittedFetched,
    TakeBack,
)
"""All messages of this page: a peer node has to know them."""
INSTANCE_REQUESTS: Final = tuple(kind for kind in REST_CONSUMER_MESSAGES if issubclass(kind, InstanceRequest))
"""These ask something of an instance."""
