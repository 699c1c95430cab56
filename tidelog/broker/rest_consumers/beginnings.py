"""The position where an instance begins: the group's committed offset, else by `auto.offset.reset`; and seeks by its
client.

A partition that cannot be asked now is asked with the next read. `latest` is the end at the moment at which the
instance gets the partition, not at that of its first read: what is written in between is not passed over.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.broker.partitions.partition_handle import Offsets, PartitionHandle
from tidelog.broker.rest_consumers.groups import names
from tidelog.broker.rest_consumers.instance import Instance
from tidelog.broker.rest_consumers.reading import Partitions
from tidelog.broker.rest_consumers.requests import Partition, Seek, SeekToEdge
from tidelog.broker.routing.bulk_calls import offsets_of
from tidelog.model.errors import IllegalState, TidelogError
from tidelog.model.groups import NO_EPOCH, NO_OFFSET, FetchOffsets, OffsetsAnswer, grouped, pairs


class Beginnings:
    """For all instances of a broker; each call has its turn of the instance."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

    async def find(self, instance: Instance) -> None:
        """Finds where to begin in the partitions that it has got, as far as they can be asked.

        Raises as `FetchOffsets`; `IllegalState` if the group has no committed offset in one, and the instance is not to
        choose."""
        unknown = instance.positions.unknown
        if not unknown:
            return
        is_member = instance.what.is_subscribed
        request = FetchOffsets(
            group=instance.group,
            member_id=instance.name if is_member else "",
            member_epoch=instance.member_epoch if is_member else NO_EPOCH,
            partitions=grouped(unknown),
        )
        answer = await instance.ask(OffsetsAnswer, request)
        for kept in answer.offsets:
            if kept.offset != NO_OFFSET:
                instance.positions.begin((kept.topic, kept.partition), kept.offset, is_committed=True)
        await self.reset(instance, instance.positions.unknown)

    async def reset(self, instance: Instance, partitions: Sequence[Partition]) -> None:
        """Begins where `auto.offset.reset` says, in partitions that the group has no committed offset in, or none that
        is there any more; as far as they can be asked. Raises as `find`."""
        if not partitions:
            return
        reset = instance.what.settings.reset
        if reset == "none":
            raise IllegalState(
                f"group {instance.group} has no committed offset in {names(partitions)}, or none that is there any "
                "more, and auto.offset.reset is none: post positions to begin at"
            )
        for partition, found in await self._extents([(partition, None) for partition in partitions]):
            if not isinstance(found, TidelogError):
                extent = found.extent
                offset = extent.log_start_offset if reset == "earliest" else extent.high_watermark
                instance.positions.begin(partition, offset)

    async def seek(self, instance: Instance, asked: Seek) -> None:
        """Raises `IllegalState` for partitions that it does not have: then no position changes."""
        sought = [*asked.offsets, *asked.timestamps]
        _require_own(instance, [(topic, number) for topic, number, _ in sought])
        times = [((topic, number), timestamp_ms) for topic, number, timestamp_ms in asked.timestamps]
        offsets = [((topic, number), offset) for topic, number, offset in asked.offsets]
        for partition, found in await self._extents(times):
            if isinstance(found, TidelogError):
                raise found
            offsets.append((partition, found.extent.high_watermark if found.record is None else found.record[0]))
        for partition, offset in offsets:
            instance.positions.begin(partition, offset)

    async def seek_to_edge(self, instance: Instance, asked: SeekToEdge) -> None:
        """Moves the instance to the beginning or the end of the partitions that are named, or of all its partitions if
        none are. Raises as `seek`.
        """
        partitions = pairs(asked.partitions) or list(instance.positions.partitions)
        _require_own(instance, partitions)
        edges: list[tuple[Partition, int]] = []
        for partition, found in await self._extents([(partition, None) for partition in partitions]):
            if isinstance(found, TidelogError):
                raise found
            edges.append((partition, found.extent.high_watermark if asked.is_end else found.extent.log_start_offset))
        for partition, offset in edges:
            instance.positions.begin(partition, offset)

    async def _extents(
        self, asked: Sequence[tuple[Partition, int | None]]
    ) -> list[tuple[Partition, Offsets | TidelogError]]:
        """Returns each partition's extent, and the first record of a time if one is given; or the error why not."""
        handles = [(self._handle(partition), timestamp_ms) for partition, timestamp_ms in asked]
        answers = await offsets_of(handles)
        return [(partition, answer) for (partition, _), answer in zip(asked, answers, strict=True)]

    def _handle(self, partition: Partition) -> PartitionHandle | TidelogError:
        try:
            return self._partitions.partition(*partition)
        except TidelogError as error:
            return error


def _require_own(instance: Instance, partitions: Sequence[Partition]) -> None:
    owned = dict.fromkeys(instance.positions.partitions)
    others = [partition for partition in partitions if partition not in owned]
    if others:
        raise IllegalState(
            f"consumer instance {instance.name} does not have {names(others)} (now); no position changed"
        )
