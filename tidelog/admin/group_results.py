"""The admin client's results about consumer groups. Field names are those of REST v3."""

from __future__ import annotations

import msgspec


class GroupListing(msgspec.Struct, frozen=True):
    """A group, without its members. Its `type` is `CONSUMER`, with a `state` of `EMPTY`, `ASSIGNING`, `RECONCILING` or
    `STABLE`; or `CLASSIC`, whose members assign, with `EMPTY`, `PREPARING_REBALANCE`, `COMPLETING_REBALANCE` or
    `STABLE`, a generation in place of the epoch, and a protocol in place of the assignor. A simple group has offsets,
    and never had a member. `coordinator_id` is the broker that decides for it."""

    consumer_group_id: str
    is_simple: bool
    partition_assignor: str
    state: str
    type: str
    members_count: int
    group_epoch: int
    coordinator_id: int
    protocol_type: str = ""
    """The type of a classic group: `consumer` if its members are consumers."""


class TopicOwned(msgspec.Struct, frozen=True):
    """Partitions of one topic."""

    topic_name: str
    partition_ids: tuple[int, ...]


class ConsumerDescription(msgspec.Struct, frozen=True):
    """A member of a group. `owned` is what it may read now and what it has not given away yet; `target` what it will
    have when all is settled."""

    consumer_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rack: str | None
    member_epoch: int
    topics: tuple[str, ...]
    pattern: str
    owned: tuple[TopicOwned, ...]
    target: tuple[TopicOwned, ...]


class GroupDescription(GroupListing, frozen=True, kw_only=True):
    """A group and its members."""

    consumers: tuple[ConsumerDescription, ...]


class LagDescription(msgspec.Struct, frozen=True):
    """How far a group is behind in a partition of which it has an offset.

    `log_end_offset` is the high watermark: consumers read no further. It and `lag` are None where nobody could be
    asked. `consumer_id` is who has the partition now, empty if nobody has.
    """

    topic_name: str
    partition_id: int
    current_offset: int
    log_end_offset: int | None
    lag: int | None
    consumer_id: str
    instance_id: str | None
    client_id: str


class OffsetReset(msgspec.Struct, frozen=True):
    """A group's offset in a partition before a reset (None if it had none) and after."""

    topic_name: str
    partition_id: int
    current_offset: int | None
    new_offset: int
