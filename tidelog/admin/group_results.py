"""The admin client's results about consumer groups, with the field names of REST v3."""

from __future__ import annotations

import msgspec


class GroupListing(msgspec.Struct, frozen=True):
    """A group, without its members. Its `type` is `CONSUMER`, with a `state` of `EMPTY`, `ASSIGNING`, `RECONCILING` or
    `STABLE`; or `CLASSIC`, whose members compute the assignment, with `EMPTY`, `PREPARING_REBALANCE`,
    `COMPLETING_REBALANCE` or `STABLE`, a generation in place of the epoch, and a protocol in place of the assignor. A
    simple group has committed offsets and never had a member. `coordinator_id` is the coordinator's node id."""

    consumer_group_id: str
    is_simple: bool
    partition_assignor: str
    state: str
    type: str
    members_count: int
    group_epoch: int
    coordinator_id: int
    protocol_type: str = ""
    """The protocol type of a classic group: `consumer` if its members are consumers."""


class TopicOwned(msgspec.Struct, frozen=True):
    """Partitions of one topic that a member owns or is assigned."""

    topic_name: str
    partition_ids: tuple[int, ...]


class ConsumerDescription(msgspec.Struct, frozen=True):
    """A member of a group. `owned` are the partitions that it may read and those that it has not given up yet; `target`
    those that it will have after the rebalance."""

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
    """The lag of a group in a partition with a committed offset.

    `log_end_offset` is the high watermark, the end for consumers. It and `lag` are None if no broker could be asked.
    `consumer_id` is the member that owns the partition, or empty.
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
    """A group's committed offset in a partition before a reset (None if there was none) and after."""

    topic_name: str
    partition_id: int
    current_offset: int | None
    new_offset: int
