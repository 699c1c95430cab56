"""Consumer groups as a listener sees them: requests to the group coordinators, wherever they are, and group
summaries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidelog.broker.groups.asking import GroupHost, extents_of
from tidelog.broker.partitions.partition_handle import Extent
from tidelog.model.errors import TidelogError
from tidelog.model.groups import (
    CommittedOffset,
    DescribeGroup,
    FetchOffsets,
    GroupDescription,
    MemberDescription,
    pairs,
)

PATIENCE_S: Final = 5.0
"""Seconds that a group summary waits for a coordinator: longer than a failover takes, shorter than clients wait."""


@dataclass(frozen=True, slots=True)
class Lag:
    """The lag of a group in one partition for which it has a committed offset.

    `extent` has the partition's offsets, or an error if no leader could be asked. `member` is the owner of the
    partition, if any.
    """

    committed: CommittedOffset
    extent: Extent | TidelogError
    member: MemberDescription | None

    @property
    def records(self) -> int | None:
        """Number of offsets from the committed offset to the high watermark; None if the high watermark is not known.

        As in Kafka it counts offsets: where compaction or transactions left gaps there are fewer records.
        """
        return (
            None
            if isinstance(self.extent, TidelogError)
            else max(0, self.extent.high_watermark - self.committed.offset)
        )


class ConsumerGroups:
    """The consumer groups of the cluster. Deadlines are in loop time (s)."""

    def __init__(self, host: GroupHost) -> None:
        self._host = host
        self.ask = host.groups.ask
        """Sends a request to a group's coordinator and returns the answer (`broker.groups.facade.Groups.ask`)."""
        self.answer_now = host.groups.answer_now
        """Answers a heartbeat that changes nothing, without waiting (`broker.groups.facade.Groups.answer_now`)."""
        self.list_groups = host.groups.list_groups
        """Lists all groups of the cluster (`broker.groups.facade.Groups.list_groups`)."""
        self.list_here = host.groups.list_here
        """Lists the groups that this broker coordinates (`broker.groups.facade.Groups.list_here`)."""
        self.new_member_id = host.groups.new_member_id
        """Returns a random id for a member that has not chosen one."""
        self.classic = host.groups.classic
        """The classic (pre-KIP-848) groups that this broker coordinates
        (`broker.groups.classic_reach.ClassicGroups`).
        """
        self.coordinator_node = host.groups.coordinator_node
        """Returns the node id of the broker that coordinates a group."""
        self.found = host.groups.found
        """Creates `__consumer_offsets` if it does not exist, so that groups have coordinators."""

    async def describe(self, group: str, deadline_s: float) -> GroupDescription:
        """Returns a group with its members. Raises `UnknownGroup`, `CoordinatorNotAvailable`."""
        return await self.ask(DescribeGroup(group=group), deadline_s=deadline_s)

    async def committed_offsets(self, group: str, deadline_s: float) -> list[CommittedOffset]:
        """Returns all committed offsets of a group, sorted by topic and partition. Raises `CoordinatorNotAvailable`."""
        answer = await self.ask(FetchOffsets(group=group), deadline_s=deadline_s)
        return sorted(answer.offsets, key=lambda committed: (committed.topic, committed.partition))

    async def lags(self, group: str, deadline_s: float) -> list[Lag]:
        """Returns the lag of each partition for which the group has a committed offset, sorted by topic and partition.
        Raises `UnknownGroup`, `CoordinatorNotAvailable`; an error of a single partition is in its `Lag`.
        """
        description = await self.describe(group, deadline_s)
        offsets = await self.committed_offsets(group, deadline_s)
        owners = {partition: member for member in description.members for partition in pairs(member.owned)}
        extents = await extents_of(self._host, [(committed.topic, committed.partition) for committed in offsets])
        return [
            Lag(committed, extent, owners.get((committed.topic, committed.partition)))
            for committed, extent in zip(offsets, extents, strict=True)
        ]
