"""The options of the source, with the names, defaults and meanings of Spark's Kafka source.

`docs/spark.md` has the table. An option of Spark's Kafka source that tidelog does not support is rejected with the
reason, never ignored. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tidelog.model.errors import InvalidRequest
from tidelog.spark.bounds import EARLIEST, LATEST, Bound, parse_bound
from tidelog.spark.errors import LossRule
from tidelog.spark.option_values import OptionValues
from tidelog.transport.security import KAFKAS_NAMES, NAMES, Security, parse_security

BOOTSTRAP = ("bootstrap.servers", "kafka.bootstrap.servers")
TIMEOUT_MS = 120_000
MAX_TRIGGER_DELAY_S = 900.0
TASKS_MAX = 16

NO_GROUPS = "a query's position is in its checkpoint, not in a consumer group; leave it out"
_REFUSED = {
    "kafka.group.id": NO_GROUPS,
    "groupIdPrefix": NO_GROUPS,
    "kafka.auto.offset.reset": "use startingOffsets",
    "kafka.enable.auto.commit": "a query's position is in its checkpoint",
    "kafka.key.deserializer": "keys are bytes; cast the column",
    "kafka.value.deserializer": "values are bytes; cast the column",
    "kafka.interceptor.classes": "there are no interceptors",
    "fetchOffset.numRetries": "retries go on until kafkaConsumer.pollTimeoutMs; leave it out",
    "fetchOffset.retryIntervalMs": "retries go on until kafkaConsumer.pollTimeoutMs; leave it out",
}
_STREAM_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "maxBytesPerTrigger")
_BATCH_ONLY = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "filterPushdown")
_SPARKS_OWN = ("path", "queryName")


@dataclass(frozen=True, slots=True)
class Selection:
    """The partitions to read: `assigned` ones, all of the `topics` subscribed to, or all of the topics that match
    `pattern`."""

    topics: tuple[str, ...] = ()
    assigned: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    pattern: str | None = None

    def wants_topic(self, topic: str) -> bool:
        """Returns True if partitions of the topic are to be read."""
        if self.pattern is not None:
            return re.fullmatch(self.pattern, topic) is not None
        return topic in self.topics or topic in self.assigned

    def partitions_of(self, topic: str, partitions: int) -> tuple[int, ...]:
        """Returns the partition numbers to read of a topic with `partitions` partitions."""
        numbers = self.assigned.get(topic)
        return tuple(range(partitions)) if numbers is None else tuple(n for n in numbers if n < partitions)

    @property
    def named(self) -> tuple[str, ...] | None:
        """The topics given by name; None for a pattern."""
        return None if self.pattern is not None else (*self.topics, *self.assigned)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a micro-batch. Records are counted as offsets, including those removed by compaction."""

    records_max: int | None = None
    records_min: int | None = None
    delay_s_max: float = MAX_TRIGGER_DELAY_S
    """Maximum seconds that a batch of fewer than `records_min` records is delayed."""
    bytes_max: int | None = None


@dataclass(frozen=True, slots=True)
class Division:
    """The limits by which offset ranges are divided into tasks."""

    partitions_min: int | None = None
    records_max: int | None = None
    tasks_max: int = TASKS_MAX


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The validated options of a reader; picklable, since they are sent to the executors."""

    bootstrap: tuple[str, ...]
    security: Security
    """TLS and authentication settings. Their files must exist on the driver and on each executor."""
    selection: Selection
    start: Bound
    end: Bound
    limits: Limits
    division: Division
    loss: LossRule
    includes_headers: bool
    pushes_filters: bool
    timeout_s: float
    """Seconds without progress after which a read or a lookup fails."""


def parse_source_options(options: Mapping[str, str], *, is_streaming: bool) -> SourceOptions:
    """Parses the options of a query that reads. Raises `InvalidRequest` with the option's name."""
    values = OptionValues(options)
    values.refuse(_REFUSED)
    kind, misplaced = ("streaming", _BATCH_ONLY) if is_streaming else ("batch", _STREAM_ONLY)
    values.refuse(dict.fromkeys(misplaced, f"makes no sense in a {kind} query; leave it out"))
    bootstrap, security = parse_servers(values)
    parsed = SourceOptions(
        bootstrap=bootstrap,
        security=security,
        selection=_parse_selection(values),
        start=parse_bound(values, "starting", LATEST if is_streaming else EARLIEST),
        end=parse_bound(values, "ending", LATEST),
        limits=_parse_limits(values),
        division=Division(
            values.number("minPartitions"),
            values.number("maxRecordsPerPartition"),
            values.number("maxTasks") or TASKS_MAX,
        ),
        loss=LossRule(values.flag("failOnDataLoss", True)),
        includes_headers=values.flag("includeHeaders", False),
        pushes_filters=values.flag("filterPushdown", False),
        timeout_s=(values.number("kafkaConsumer.pollTimeoutMs") or TIMEOUT_MS) / 1000,
    )
    values.finish(*_SPARKS_OWN)
    return parsed


def parse_servers(values: OptionValues) -> tuple[tuple[str, ...], Security]:
    """Returns the base URLs of `bootstrap.servers` or its alias, and the security settings."""
    text = values.text(*BOOTSTRAP)
    if text is None:
        raise InvalidRequest("option bootstrap.servers is missing: give the address of a broker, such as HOST:8082")
    values.refuse({"kafka.sasl.password": "it would be seen in the query's plan; use kafka.sasl.password.file"})
    given = {name: values.text(f"kafka.{name}" if name in KAFKAS_NAMES else name) for name in NAMES}
    security = Security(**parse_security({name: value for name, value in given.items() if value is not None}))
    return security.addresses(text), security


def _parse_limits(values: OptionValues) -> Limits:
    limits = Limits(
        values.number("maxOffsetsPerTrigger"),
        values.number("minOffsetsPerTrigger"),
        values.duration_s("maxTriggerDelay", MAX_TRIGGER_DELAY_S),
        values.number("maxBytesPerTrigger"),
    )
    if limits.records_max is not None and (limits.records_min or 0) > limits.records_max:
        raise InvalidRequest("minOffsetsPerTrigger is more than maxOffsetsPerTrigger")
    return limits


def _parse_selection(values: OptionValues) -> Selection:
    assigned = values.document("assign")
    subscribed, pattern = values.text("subscribe"), values.text("subscribePattern")
    if sum(given is not None for given in (assigned, subscribed, pattern)) != 1:
        raise InvalidRequest("give exactly one of the options subscribe, subscribePattern and assign")
    if assigned is not None:
        return Selection(assigned=_parse_assigned(assigned))
    if subscribed is not None:
        topics = tuple(dict.fromkeys(name.strip() for name in subscribed.split(",") if name.strip()))
        if not topics:
            raise InvalidRequest("option subscribe names no topic")
        return Selection(topics=topics)
    assert pattern is not None
    try:
        re.compile(pattern)
    except re.error as error:
        raise InvalidRequest(f"option subscribePattern is no regular expression: {error}") from None
    return Selection(pattern=pattern)


def _parse_assigned(document: object) -> dict[str, tuple[int, ...]]:
    assigned: dict[str, tuple[int, ...]] = {}
    if isinstance(document, dict):
        for topic, numbers in document.items():
            if isinstance(numbers, list) and all(type(number) is int and number >= 0 for number in numbers):
                assigned[topic] = tuple(sorted({*numbers}))
    if not isinstance(document, dict) or len(assigned) != len(document) or not any(assigned.values()):
        raise InvalidRequest('option assign must be JSON such as {"orders": [0, 1]}')
    return assigned
