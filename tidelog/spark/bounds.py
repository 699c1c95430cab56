"""The start of a query and the end of a batch query: `startingOffsets`, `endingTimestamp` and so on, as given by the
user.

With the precedence of Spark's Kafka source: one timestamp for all partitions, then timestamps by partition, then
offsets. The offset -2 is the earliest and -1 the latest. Pure; `resolve` looks the offsets up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tidelog.model.errors import InvalidRequest
from tidelog.model.ids import TopicPartition
from tidelog.spark.offsets import parse_partitions
from tidelog.spark.option_values import OptionValues

EARLIEST = -2
LATEST = -1

Side = Literal["starting", "ending"]


@dataclass(frozen=True, slots=True)
class Bound:
    """The start or end of a query. `offset` is EARLIEST or LATEST for all partitions; otherwise one of the other fields
    is set.

    `latest_if_none`: a partition without a record of that timestamp or later uses its end, instead of raising an error.
    """

    offset: int | None = None
    offsets: Mapping[TopicPartition, int] | None = None
    timestamp_ms: int | None = None
    timestamps_ms: Mapping[TopicPartition, int] | None = None
    latest_if_none: bool = False

    @property
    def is_fixed(self) -> bool:
        """True if a later lookup gives the same offsets; the earliest counts as fixed, since nothing is written before
        it."""
        if self.offsets is not None:
            return LATEST not in self.offsets.values()
        return self.offset == EARLIEST

    def of(self, partition: TopicPartition) -> int | None:
        """Returns the offset, EARLIEST or LATEST; None if the bound is a timestamp. Raises `InvalidRequest` if the
        partition is not listed."""
        return self.offset if self.offsets is None else _named(self.offsets, partition, "offsets")

    def timestamp_of(self, partition: TopicPartition) -> int | None:
        """Returns the timestamp (ms) for the partition; None if the bound is an offset."""
        if self.timestamp_ms is not None or self.timestamps_ms is None:
            return self.timestamp_ms
        return _named(self.timestamps_ms, partition, "timestamps")


def _named(given: Mapping[TopicPartition, int], partition: TopicPartition, what: str) -> int:
    if partition not in given:
        raise InvalidRequest(
            f"{what} by partition must name every partition, and {partition} is not there; -2 is the earliest offset, "
            "-1 the latest"
        )
    return given[partition]


def parse_bound(values: OptionValues, side: Side, default: int) -> Bound:
    """Returns the bound given by a query's options. Raises `InvalidRequest`."""
    timestamp = values.number(f"{side}Timestamp", least=0)
    by_partition = values.document(f"{side}OffsetsByTimestamp")
    strategy = "latest"
    if side == "starting":
        strategy = values.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
    latest_if_none = strategy == "latest"
    text = values.text(f"{side}Offsets")
    if timestamp is not None:
        return Bound(timestamp_ms=timestamp, latest_if_none=latest_if_none)
    if by_partition is not None:
        return Bound(timestamps_ms=parse_partitions(by_partition, lowest=0), latest_if_none=latest_if_none)
    word = None if text is None else {"earliest": EARLIEST, "latest": LATEST}.get(text.strip().lower())
    if text is not None and word is None:
        return _parse_offsets(values, side)
    offset = default if word is None else word
    if side == "ending" and offset == EARLIEST:
        raise InvalidRequest("endingOffsets can not be earliest: nothing would be read")
    return Bound(offset=offset)


def _parse_offsets(values: OptionValues, side: Side) -> Bound:
    offsets = parse_partitions(values.document(f"{side}Offsets"), lowest=EARLIEST)
    if side == "ending" and EARLIEST in offsets.values():
        raise InvalidRequest("endingOffsets can not be -2 (earliest): nothing would be read")
    return Bound(offsets=offsets)
