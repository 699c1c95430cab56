"""Requests for a REST consumer instance, as one broker forwards them to the broker that keeps the instance.

Each request is complete in itself: only the broker that keeps the instance has state. All but `OpenInstance` may be
repeated. A repeated read has the same attempt id, and returns the same records, or as many as there are by then.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tidelog.model.groups import CommittedOffset, InstanceSettings, TopicPartitions
from tidelog.model.records import RecordForm
from tidelog.model.wire_numbers import Int64, Natural

Partition = tuple[str, int]
"""A topic name and a partition number."""


class InstanceRequest(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Base of the requests for one consumer instance. All may raise `UnknownInstance` (also for an instance of another
    principal), `CoordinatorNotAvailable` and `Overloaded`.
    """

    group: str
    instance: str
    caller: str = ""
    """The principal that makes the request. Empty for a caller that may use any instance: a super user, or anybody
    where access control is off.
    """


class OpenInstance(InstanceRequest, frozen=True, tag=True, kw_only=True):
    """Creates an instance; its settings name its `owner`. The answer is empty. Raises `InstanceExists`, and
    `Overloaded` if the broker has too many instances.
    """

    settings: InstanceSettings


class CloseInstance(InstanceRequest, frozen=True, tag=True, kw_only=True):
    """Deletes an instance. With auto-commit it first commits all records that it has returned. The answer is empty."""


class Subscribe(InstanceRequest, frozen=True, tag=True, kw_only=True):
    """Subscribes to topics or a pattern, as a member of the group; with neither, ends the subscription or assignment.
    The answer is empty. Raises `IllegalState` for an instance that is assigned partitions.
    """

    topics: tuple[str, ...] = ()
    pattern: str = ""


class Assign(InstanceRequest, frozen=True, tag=True, kw_only=True):
    """Assigns partitions to an instance, without group membership. The answer is empty. Raises `IllegalState` for an
    instance that has subscribed.
    """

    partitions: tuple[TopicPartitions, ...]


class ShowReading(InstanceRequest, frozen=True, tag=True, kw_only=True):
    """Asks which topics and partitions an instance reads. Answered by `Reading`."""


class Reading(msgspec.Struct, frozen=True, tag=True):
    """The topics an instance subscribed to, those that match its pattern included, and the partitions it has now."""

    topics: tuple[str, ...]
    partitions: tuple[TopicPartitions, ...]


class Seek(InstanceRequest, frozen=True, tag=True, kw_only=True):
    """Sets positions to offsets, or to the first records of given timestamps (ms) or later; to the high watermark if
    there is no such record. The answer is empty. Raises `IllegalState` for a partition that is not assigned now; then
    no position changes.
    """

    offsets: tuple[tuple[str, Int64, Int64], ...] = ()
    timestamps: tuple[tuple[str, Int64, Int64], ...] = ()


class SeekToEdge(InstanceRequest, frozen=True, tag=True, kw_only=True):
    """Sets positions to the beginning or the end of these partitions, or of all assigned ones if none are named. The
    answer is empty. Raises `IllegalState` for a partition that is not assigned now.
    """

    partitions: tuple[TopicPartitions, ...]
    is_end: bool


class ReadRecords(InstanceRequest, frozen=True, tag=True, kw_only=True):
    """Reads the next records. Answered by `RecordsRead`, with the records as JSON behind it. A newer read ends an older
    one that waits.

    Raises `IllegalState` for an instance without subscription or assignment; `FormatMismatch` if `format` is not the
    instance's format or a record cannot be shown in it; `RecordsLost` at an accepted loss, unless the instance skips
    losses.
    """

    attempt: str
    wait_ms: Int64 | None = None
    """Milliseconds to wait for `fetch_bytes_min` bytes of records; after that any number of records is returned. None:
    the instance's own setting.
    """
    bytes_max: Int64
    format: RecordForm | None = None
    """The record format that the client requires; None if it accepts the instance's format."""


class RecordsRead(msgspec.Struct, frozen=True, tag=True):
    """The format of the records that follow, and the accepted losses (ranges of lost offsets) that the read skipped."""

    format: RecordForm
    lost: tuple[tuple[str, Natural, Natural, Natural], ...] = ()
    """Accepted losses that the read skipped: topic, partition, and offsets [start, end)."""


class CommitPositions(InstanceRequest, frozen=True, tag=True, kw_only=True):
    """Commits the given offsets, or if `offsets` is None, the next offset to read of every partition that the instance
    has read. Answered by `OffsetsCommitted`.
    """

    offsets: tuple[CommittedOffset, ...] | None
    is_async: bool = False
    """True to answer at once, before the commit is done; its outcome is then not reported."""


class OffsetRefused(msgspec.Struct, frozen=True):
    """An offset that was not committed, with the error."""

    topic: str
    partition: Int64
    error_code: Int64
    message: str


class OffsetsCommitted(msgspec.Struct, frozen=True, tag=True):
    """All offsets were committed except `refused`. (If all are refused, the answer is an error instead.)"""

    refused: tuple[OffsetRefused, ...] = ()


class FetchCommitted(InstanceRequest, frozen=True, tag=True, kw_only=True):
    """Asks for the group's committed offsets in these partitions. Answered by `CommittedFetched`."""

    partitions: tuple[TopicPartitions, ...]


class CommittedFetched(msgspec.Struct, frozen=True, tag=True):
    """The committed offsets in the requested partitions, without partitions that have none."""

    offsets: tuple[CommittedOffset, ...]


class TakeBack(InstanceRequest, frozen=True, tag=True, kw_only=True):
    """Reports that the client of this read is gone and did not receive the records. It has no answer."""

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
"""All message types of this module, to be registered with the peer transport."""
INSTANCE_REQUESTS: Final = tuple(kind for kind in REST_CONSUMER_MESSAGES if issubclass(kind, InstanceRequest))
"""The message types that are requests for an instance."""
