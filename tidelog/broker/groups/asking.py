"""Lookup of log start offsets and high watermarks of the partitions that groups read, at whichever broker leads
them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from tidelog.broker.groups.coordinators import Host
from tidelog.broker.groups.facade import Groups
from tidelog.broker.partitions.partition_handle import Extent, PartitionHandle
from tidelog.broker.routing.bulk_calls import offsets_of
from tidelog.model.errors import TidelogError

PARTITIONS_MAX: Final = 1_000
"""Maximum number of partitions per request; for more, several requests are sent one after the other."""


class GroupHost(Host, Protocol):
    """The parts of a broker that group administration and lag monitoring need."""

    @property
    def groups(self) -> Groups:
        """The consumer groups of the cluster, whichever broker coordinates them."""

    def partition(self, topic: str, partition: int) -> PartitionHandle:
        """Returns a handle for a partition, whichever broker leads it. Raises `UnknownTopic` or `UnknownPartition`."""


async def extents_of(broker: GroupHost, partitions: Sequence[tuple[str, int]]) -> list[Extent | TidelogError]:
    """Returns for each partition its log start offset and high watermark, or an error. Sends one request to each leader
    for up to `PARTITIONS_MAX` partitions at a time."""
    extents = list[Extent | TidelogError]()
    for start in range(0, len(partitions), PARTITIONS_MAX):
        handles = [_handle(broker, *partition) for partition in partitions[start : start + PARTITIONS_MAX]]
        offsets = await offsets_of([(handle, None) for handle in handles])
        extents += [answer if isinstance(answer, TidelogError) else answer.extent for answer in offsets]
    return extents


def _handle(broker: GroupHost, topic: str, partition: int) -> PartitionHandle | TidelogError:
    try:
        return broker.partition(topic, partition)
    except TidelogError as error:
        # The error takes the handle's place: a group may have committed offsets of a topic that is deleted by now, and
        # the extents of the other partitions are still wanted.
        return error
