"""What is known of groups, whoever coordinates them: descriptions, committed offsets, and how far these are behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from tidelog.broker.groups.coordinators import Host
from tidelog.broker.groups.facade import Groups
from tidelog.broker.partitions.partition_handle import Extent, PartitionHandle
from tidelog.broker.routing.bulk_calls import offsets_of
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
PARTITIONS_MAX: Final = 1_000
"""Of one question; more take several, one after the other."""


class GroupHost(Host, Protocol):
    """The broker, as questions about groups see it."""

    @property
    def groups(self) -> Groups:
        """The consumer groups of the cluster, whichever broker coordinates them."""

    def partition(self, topic: str, partition: int) -> PartitionHandle:
        """A partition, led here or elsewhere. Raises `UnknownTopic` or `UnknownPartition`."""


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a group is behind in one partition of which it has a committed offset.

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


async def described(broker: GroupHost, group: str, deadline_s: float) -> GroupDescription:
    """Raises `UnknownGroup`, `CoordinatorNotAvailable`."""
    return await broker.groups.ask(DescribeGroup(group=group), deadline_s=deadline_s)


async def committed_of(broker: GroupHost, group: str, deadline_s: float) -> list[CommittedOffset]:
    """All committed offsets of a group, by topic and partition. Raises `CoordinatorNotAvailable`."""
    answer = await broker.groups.ask(FetchOffsets(group=group), deadline_s=deadline_s)
    return sorted(answer.offsets, key=lambda committed: (committed.topic, committed.partition))


async def lags_of(broker: GroupHost, group: str, deadline_s: float) -> list[Lag]:
    """Of every partition of which the group has a committed offset, by topic and partition. Raises `UnknownGroup`,
    `CoordinatorNotAvailable`; what it cannot tell of single partitions is in their lags."""
    description = await described(broker, group, deadline_s)
    offsets = await committed_of(broker, group, deadline_s)
    owners = {partition: member for member in description.members for partition in pairs(member.owned)}
    extents = await extents_of(broker, [(committed.topic, committed.partition) for committed in offsets])
    return [
        Lag(committed, extent, owners.get((committed.topic, committed.partition)))
        for committed, extent in zip(offsets, extents, strict=True)
    ]


async def extents_of(broker: GroupHost, partitions: Sequence[tuple[str, int]]) -> list[Extent | TidelogError]:
    """Where these partitions begin and end, or why it cannot be told; of `PARTITIONS_MAX` at a time, one question to
    each of their leaders."""
    found = list[Extent | TidelogError]()
    for start in range(0, len(partitions), PARTITIONS_MAX):
        handles = [_handle(broker, *partition) for partition in partitions[start : start + PARTITIONS_MAX]]
        answers = iter(await offsets_of([(one, None) for one in handles if not isinstance(one, TidelogError)]))
        offsets = [one if isinstance(one, TidelogError) else next(answers) for one in handles]
        found += [one if isinstance(one, TidelogError) else one.extent for one in offsets]
    return found


def _handle(broker: GroupHost, topic: str, partition: int) -> PartitionHandle | TidelogError:
    try:
        return broker.partition(topic, partition)
    except TidelogError as error:
        return error
