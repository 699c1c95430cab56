"""The validated settings of a consumer. Names, defaults and meanings are Kafka's, unless stated otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tidelog.consumer.cursor import CHUNKS_MAX, ResetPolicy
from tidelog.consumer.partition_dispatcher import Order
from tidelog.model.errors import InvalidRequest
from tidelog.model.groups import check_group_name, check_instance_name
from tidelog.model.lost_ranges import LostRange
from tidelog.model.ports import Buffer

FETCH_BYTES_MIN = 16 << 10
"""Minimum bytes of a fetch, however many partitions share the buffer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOptions:
    """The fetch settings. `reset` is the position to use when there is no valid one; None raises an error."""

    reset: ResetPolicy | None
    bytes_max: int
    bytes_min: int
    buffer_bytes: int
    wait_ms: int
    order: Order = "total"
    """The order in which records are processed. Topics whose `commit.order` allows it are read early then."""
    waits_for_topics: bool = False
    """True in a group: fetches from a missing topic are retried, until the coordinator revokes its partitions."""

    def __post_init__(self) -> None:
        if self.bytes_max < 1 or self.buffer_bytes < 1:
            raise InvalidRequest("max_partition_fetch_bytes and fetch_buffer_bytes must be at least 1")
        if self.bytes_min < 0 or self.wait_ms < 0:
            raise InvalidRequest("fetch_min_bytes and fetch_max_wait_ms must not be negative")

    def bytes_max_of(self, partitions: int) -> int:
        """Returns the maximum bytes of one fetch when `partitions` share the buffer."""
        return max(FETCH_BYTES_MIN, min(self.bytes_max, self.buffer_bytes // (CHUNKS_MAX * partitions)))


class FetchAnswer(NamedTuple):
    """The records of one fetch, and the partition's high watermark and leader epoch. `early` are record batches above
    the high watermark."""

    records: Buffer
    lost: Sequence[LostRange]
    high_watermark: int | None
    leader_epoch: int | None
    early: Buffer = b""


def parse_reset(name: str) -> ResetPolicy | None:
    """Returns the parsed option `auto_offset_reset`; None for `none`. Raises `InvalidRequest` for an unknown name."""
    policies: dict[str, ResetPolicy | None] = {"latest": "latest", "earliest": "earliest", "none": None}
    if name not in policies:
        raise InvalidRequest(f"auto_offset_reset must be latest, earliest or none, not {name!r}")
    return policies[name]


def parse_on_loss(name: str) -> bool:
    """Returns True if the option `on_loss` is `skip`. Raises `InvalidRequest` if it is not `fail` either."""
    if name not in ("fail", "skip"):
        raise InvalidRequest(f"on_loss must be fail or skip, not {name!r}")
    return name == "skip"


def parse_order(name: str, group: str | None) -> Order:
    """Returns the parsed setting `order`. Raises `InvalidRequest` for an unknown name, and for an order that needs a
    group if `group` is None."""
    orders: dict[str, Order] = {"total": "total", "key": "key", "none": "none"}
    if name not in orders:
        raise InvalidRequest(f"order must be total, key or none, not {name!r}")
    if name != "total" and group is None:
        raise InvalidRequest(f'order="{name}" is for consumers in a group: give the consumer a `group_id`')
    return orders[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOptions:
    """The settings of a consumer's group membership."""

    group: str
    instance_id: str | None
    client_id: str
    rack: str | None
    assignor: str
    session_timeout_ms: int
    max_poll_interval_ms: int
    auto_commit_interval_ms: int | None
    """Milliseconds between automatic commits; None if only the program commits."""

    def __post_init__(self) -> None:
        check_group_name(self.group)
        if self.instance_id is not None:
            check_instance_name(self.instance_id)
        times_ms = (self.session_timeout_ms, self.max_poll_interval_ms, self.auto_commit_interval_ms or 1)
        if min(times_ms) < 1 or self.auto_commit_interval_ms == 0:
            raise InvalidRequest(
                "session_timeout_ms, max_poll_interval_ms and auto_commit_interval_ms must be at least 1"
            )
