"""Bodies of the v2 consumer API: validated, and converted to requests for a consumer instance.

The shapes are those of Confluent's REST Proxy. Additions: `enable.auto.commit`, as Strimzi calls the flag, and
`next_offset` in commits, for clients that prefer the next offset to read over the last one processed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, Literal, TypeVar

from msgspec import Raw, Struct, field

from tidelog.broker.face.rest_consumers import requests
from tidelog.broker.http.json_body import Body, Ignored, OffsetNumber, PartitionNumber, milliseconds
from tidelog.broker.http.params import shown
from tidelog.model.errors import ConsumerConfigRefused, UnprocessableBody
from tidelog.model.groups import CommittedOffset, InstanceSettings, TopicPartitions, check_instance_name, grouped
from tidelog.model.ids import OFFSET_MAX
from tidelog.model.names import check_topic_name
from tidelog.model.records import RecordForm

FETCH_BYTES_MIN_MAX: Final = 10_000_000
"""The largest value of `fetch.min.bytes` that a client may set, as with Confluent's proxy."""
PARTITIONS_MAX: Final = 10_000
T = TypeVar("T", bound=str)

_FORMATS: Final[tuple[RecordForm, ...]] = ("binary", "json", "text")
_RESETS: Final[tuple[Literal["earliest", "latest", "none"], ...]] = ("earliest", "latest", "none")
_ON_LOSS: Final[tuple[Literal["fail", "skip"], ...]] = ("fail", "skip")


class NewConsumer(Body, kw_only=True):
    """A consumer instance to be created; the body may be left out. `id` is an older name of `name`; without either the
    broker chooses one. Both spellings of the auto-commit flag take a boolean, or its name as a string. `client.id`,
    `isolation.level` and `topic.metadata.refresh.interval.ms` are accepted from clients of other proxies and ignored.
    """

    name: str | None = None
    id: str | None = None
    format: str | None = None
    reset: str | None = field(default=None, name="auto.offset.reset")
    auto_commit: bool | str | None = field(default=None, name="auto.commit.enable")
    auto_commit_too: bool | str | None = field(default=None, name="enable.auto.commit")
    fetch_bytes_min: int | str | None = field(default=None, name="fetch.min.bytes")
    fetch_bytes_min_too: int | str | None = field(default=None, name="responseMinBytes")
    request_timeout_ms: int | str | None = field(default=None, name="consumer.request.timeout.ms")
    request_timeout_ms_too: int | str | None = field(default=None, name="requestWaitMs")
    on_loss: str | None = field(default=None, name="on.loss")
    client_id: Ignored = field(default_factory=Raw, name="client.id")
    isolation_level: Ignored = field(default_factory=Raw, name="isolation.level")
    metadata_refresh_ms: Ignored = field(default_factory=Raw, name="topic.metadata.refresh.interval.ms")

    def to_settings(self, request_timeout_ms: int, request_timeout_ms_max: int, owner: str) -> InstanceSettings:
        """Returns the settings of the instance. `request_timeout_ms` is the default for how long a read waits, and
        `request_timeout_ms_max` its maximum. Raises `ConsumerConfigRefused` (42204) for an invalid value.
        """
        bytes_min, timeout = self.fetch_bytes_min, self.request_timeout_ms
        fetch_bytes_min = _number(
            "fetch.min.bytes", self.fetch_bytes_min_too if bytes_min is None else bytes_min, -1, FETCH_BYTES_MIN_MAX
        )
        timeout_ms = _number(
            "consumer.request.timeout.ms",
            self.request_timeout_ms_too if timeout is None else timeout,
            0,
            request_timeout_ms_max,
        )
        return InstanceSettings(
            format=_one_of("format", self.format, _FORMATS, "binary"),
            reset=_one_of("auto.offset.reset", self.reset, _RESETS, "latest"),
            auto_commit=self._commits_by_itself(),
            fetch_bytes_min=max(1, fetch_bytes_min or 1),
            request_timeout_ms=request_timeout_ms if timeout_ms is None else timeout_ms,
            on_loss=_one_of("on.loss", self.on_loss, _ON_LOSS, "fail"),
            owner=owner,
        )

    def named(self, made_up: str) -> str:
        """Returns the instance's name: `name`, else `id`, else `made_up`. Raises `InvalidRequest` if it is not a valid
        name.
        """
        return check_instance_name(self.name or self.id or made_up, "consumer instance")

    def _commits_by_itself(self) -> bool:
        flags = [
            _flag(name, value)
            for name, value in (
                ("auto.commit.enable", self.auto_commit),
                ("enable.auto.commit", self.auto_commit_too),
            )
            if value is not None
        ]
        if len(set(flags)) > 1:
            raise ConsumerConfigRefused(
                "auto.commit.enable and enable.auto.commit contradict each other; leave one out"
            )
        return bool(flags and flags[0])


class PartitionNamed(Body):
    """A partition, by topic and number."""

    topic: str
    partition: PartitionNumber


class PartitionsNamed(Body):
    """Partitions, by topic and number."""

    partitions: list[PartitionNamed]

    def listed(self) -> tuple[TopicPartitions, ...]:
        """Returns the partitions by topic, sorted, without duplicates. Raises `UnprocessableBody` for more than
        `PARTITIONS_MAX` partitions, and `InvalidRequest` for a name that no topic can have."""
        if len(self.partitions) > PARTITIONS_MAX:
            raise UnprocessableBody(f"{len(self.partitions)} partitions: name at most {PARTITIONS_MAX}")
        return grouped([(check_topic_name(named.topic), named.partition) for named in self.partitions])


class Subscription(Body):
    """Topics, or a regular expression (RE2's) that their whole names match; one of the two."""

    topics: list[str] | None = None
    topic_pattern: str | None = None

    def to_request(self, group: str, instance: str) -> requests.Subscribe:
        """Returns the request to subscribe. Raises `UnprocessableBody` unless there is either `topics` or
        `topic_pattern`."""
        if (self.topics is None) == (self.topic_pattern is None):
            raise UnprocessableBody("say either topics or topic_pattern")
        if not (self.topics or self.topic_pattern):
            raise UnprocessableBody("subscribe to at least one topic; DELETE ends a subscription")
        if self.topics is not None and len(self.topics) > PARTITIONS_MAX:
            raise UnprocessableBody(f"{len(self.topics)} topics: name at most {PARTITIONS_MAX}, or a topic_pattern")
        topics = tuple(sorted({check_topic_name(topic) for topic in self.topics or ()}))
        return requests.Subscribe(group=group, instance=instance, topics=topics, pattern=self.topic_pattern or "")


class SoughtOffset(PartitionNamed, kw_only=True):
    """The next offset to read of a partition. `metadata` is accepted, as by Confluent's REST Proxy, and ignored."""

    offset: OffsetNumber
    metadata: str | None = None


class SoughtTime(PartitionNamed, kw_only=True):
    """The time of the next record to read of a partition, as ISO 8601. `metadata` is accepted and ignored."""

    timestamp: datetime
    metadata: str | None = None


class SoughtPositions(Body):
    """The positions to read on at: offsets, timestamps, or both."""

    offsets: list[SoughtOffset] | None = None
    timestamps: list[SoughtTime] | None = None

    def to_request(self, group: str, instance: str) -> requests.Seek:
        """Returns the request to seek. Raises `UnprocessableBody` if there are neither offsets nor timestamps."""
        if not (self.offsets or self.timestamps):
            raise UnprocessableBody("say offsets, or timestamps, to go on at")
        return requests.Seek(
            group=group,
            instance=instance,
            offsets=tuple((*_partition(entry), entry.offset) for entry in self.offsets or ()),
            timestamps=tuple((*_partition(entry), milliseconds(entry.timestamp)) for entry in self.timestamps or ()),
        )


class OffsetToCommit(PartitionNamed, kw_only=True):
    """An offset to commit: `offset`, the last one that was processed, or `next_offset`, the next one to read."""

    offset: OffsetNumber | None = None
    next_offset: OffsetNumber | None = None
    metadata: str | None = None


class OffsetsToCommit(Body):
    """Offsets to commit; if left out, the next offset of every partition that the instance has read."""

    offsets: list[OffsetToCommit] | None = None

    def to_offsets(self, *, offset_is_next: bool) -> tuple[CommittedOffset, ...] | None:
        """Returns the offsets to commit, each the next one to read; None if the body names none. `offset_is_next` is
        True if `offset` means the next offset, as in Kafka, False if it means the last one processed, as in Confluent's
        REST Proxy.
        """
        if self.offsets is None:
            return None
        if len(self.offsets) > PARTITIONS_MAX:
            raise UnprocessableBody(f"{len(self.offsets)} offsets: commit at most {PARTITIONS_MAX} at once")
        partitions = {_partition(entry): _kept(entry, offset_is_next) for entry in self.offsets}
        if len(partitions) < len(self.offsets):
            raise UnprocessableBody("a partition is there twice; keep one")
        return tuple(partitions.values())


class CommittedShown(Struct, frozen=True):
    """A group's committed offset in a partition: `offset` is the next one to read."""

    topic: str
    partition: int
    offset: int
    metadata: str


class CommittedListed(Struct, frozen=True):
    """Committed offsets of a group, without the partitions in which it has none."""

    offsets: list[CommittedShown]


class PartitionShown(Struct, frozen=True):
    topic: str
    partition: int


class PartitionsShown(Struct, frozen=True):
    """The partitions assigned to an instance now."""

    partitions: list[PartitionShown]


class TopicsShown(Struct, frozen=True):
    """The topics that an instance has subscribed to; with a pattern, those that match it now."""

    topics: list[str]


class ConsumerCreated(Struct, frozen=True):
    """The name of a new instance, and the URL for its requests, which any other broker takes as well."""

    instance_id: str
    base_uri: str


def _partition(named: PartitionNamed) -> requests.Partition:
    return check_topic_name(named.topic), named.partition


def _kept(entry: OffsetToCommit, offset_is_next: bool) -> CommittedOffset:
    if (entry.offset is None) == (entry.next_offset is None):
        raise UnprocessableBody(
            f"{entry.topic}-{entry.partition}: say offset (the last one processed) or next_offset (the next to be read)"
        )
    if entry.next_offset is not None:
        offset = entry.next_offset
    else:
        assert entry.offset is not None
        offset = entry.offset if offset_is_next else min(entry.offset + 1, OFFSET_MAX)
    return CommittedOffset(*_partition(entry), offset, metadata=entry.metadata or "")


def _one_of(name: str, value: str | None, choices: Sequence[T], default: T) -> T:
    if value is None:
        return default
    for choice in choices:
        if choice == value.lower():
            return choice
    raise ConsumerConfigRefused(f"{name} must be one of {', '.join(choices)}, not {shown(value)}")


def _flag(name: str, value: bool | str) -> bool:
    if isinstance(value, bool):
        return value
    if value.lower() not in ("true", "false"):
        raise ConsumerConfigRefused(f"{name} must be true or false, not {shown(value)}")
    return value.lower() == "true"


def _number(name: str, value: int | str | None, low: int, high: int) -> int | None:
    if value is None:
        return None
    if isinstance(value, str):
        digits = value.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 19):
            raise ConsumerConfigRefused(f"{name} must be a whole number, not {shown(value)}")
        value = int(value)
    if not low <= value <= high:
        raise ConsumerConfigRefused(f"{name} is {value}, outside {low} to {high}")
    return value
