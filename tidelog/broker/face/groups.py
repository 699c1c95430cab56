"""Consumer groups, as a listener sees them: requests to coordinators, wherever those are, and summaries of groups."""

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
"""How long a look at groups waits for a coordinator: longer than a failover takes, and shorter than clients wait."""


@dataclass(frozen=True, slots=True)
class Lag:
    """The lag of a group in one partition of which it has a committed offset.

    `extent` is an error where nobody could be asked. `member` is who owns the partition, if anybody does.
    """

    committed: CommittedOffset
    extent: Extent | TidelogError
    member: MemberDescription | None

    @property
    def records(self) -> int | None:
        """From the committed offset to the high watermark, which is as far as anybody can read; None if that is not
        known.

        As Kafka counts, in offsets: where offsets are missing there are fewer records.
        """
        return (
            None
            if isinstance(self.extent, TidelogError)
            else max(0, self.extent.high_watermark - self.committed.offset)
        )


class ConsumerGroups:
    """The consumer groups of the cluster. Deadlines are in loop time."""

    def __init__(self, host: GroupHost) -> None:
        self._host = host
        self.ask = host.groups.ask
        """Asks a group's coordinator; see `broker.groups.facade.Groups.ask`."""
        self.list_groups = host.groups.list_groups
        """Lists all groups; see `broker.groups.facade.Groups.list_groups`."""
        self.list_here = host.groups.list_here
        """Lists the groups that this broker coordinates; see `broker.groups.facade.Groups.list_here`."""
        self.new_member_id = host.groups.new_member_id
        """Draws an id for a member that has drawn none itself."""
        self.classic = host.groups.classic
        """Classic groups that this broker coordinates; see `broker.groups.classic_reach.ClassicGroups`."""
        self.coordinator_node = host.groups.coordinator_node
        """Tells which broker coordinates a group, for clients that look for it."""
        self.found = host.groups.found
        """Makes the groups' topic, if it is not there, so that groups have coordinators."""

    async def describe(self, group: str, deadline_s: float) -> GroupDescription:
        """Raises `UnknownGroup`, `CoordinatorNotAvailable`."""
        return await self.ask(DescribeGroup(group=group), deadline_s=deadline_s)

    async def committed_offsets(self, group: str, deadline_s: float) -> list[CommittedOffset]:
        """Returns all committed offsets of a group, by topic and partition. Raises `CoordinatorNotAvailable`."""
        answer = await self.ask(FetchOffsets(group=group), deadline_s=deadline_s)
        return sorted(answer.offsets, key=lambda committed: (committed.topic, committed.partition))

    async def lags(self, group: str, deadline_s: float) -> list[Lag]:
        """Returns the lag of every partition of which the group has a committed offset, by topic and partition. Raises
        `UnknownGroup`, `CoordinatorNotAvailable`; what cannot be told of single partitions is in their lags."""
        description = await self.describe(group, deadline_s)
        offsets = await self.committed_offsets(group, deadline_s)
        owners = {partition: member for member in description.members for partition in pairs(member.owned)}
        extents = await extents_of(self._host, [(committed.topic, committed.partition) for committed in offsets])
        return [
            Lag(committed, extent, owners.get((committed.topic, committed.partition)))
            for committed, extent in zip(offsets, extents, strict=True)
        ]
