"""The position at which a consumer instance begins to read a partition: the group's committed offset, else the offset
by `auto.offset.reset`. Seeks by the client are here, too.

A partition whose leader cannot be asked now is asked again by the next read. `latest` is the high watermark when the
instance gets the partition, not when it first reads, so records written in between are read.
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
    """Sets the start positions of all consumer instances on a broker. The caller of a method holds the instance's
    lock.
    """

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

    async def find(self, instance: Instance) -> None:
        """Sets the position of each partition of the instance that has none yet, except where the leader cannot be
        asked.

        Raises `IllegalState` if the group has no committed offset in a partition and `auto.offset.reset` is `none`;
        `UnknownMember` or `FencedMember` if the group has expelled the instance's member; `NotLeader`, `Overloaded` or
        `CoordinatorNotAvailable` if the group coordinator cannot answer.
        """
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
        """Sets the positions of `partitions` by `auto.offset.reset`: partitions without a committed offset, or whose
        position is not in the log any more. Skips partitions whose leader cannot be asked. Raises `IllegalState`
        if `auto.offset.reset` is `none`.
        """
        if not partitions:
            return
        reset = instance.what.settings.reset
        if reset == "none":
            raise IllegalState(
                f"group {instance.group} has no committed offset in {names(partitions)}, or none that is there any "
                "more, and auto.offset.reset is none: post positions to begin at"
            )
        for partition, answer in await self._extents([(partition, None) for partition in partitions]):
            if not isinstance(answer, TidelogError):
                extent = answer.extent
                offset = extent.log_start_offset if reset == "earliest" else extent.high_watermark
                instance.positions.begin(partition, offset)

    async def seek(self, instance: Instance, request: Seek) -> None:
        """Sets positions to the given offsets, or to the first records of the given timestamps (ms) or later, or to
        the high watermark if there is no such record. Raises `IllegalState` if a partition is not assigned to the
        instance, or the error of a partition whose leader cannot be asked; then no position changes.
        """
        sought = [*request.offsets, *request.timestamps]
        _require_own(instance, [(topic, number) for topic, number, _ in sought])
        times = [((topic, number), timestamp_ms) for topic, number, timestamp_ms in request.timestamps]
        offsets = [((topic, number), offset) for topic, number, offset in request.offsets]
        for partition, answer in await self._extents(times):
            if isinstance(answer, TidelogError):
                raise answer
            offsets.append((partition, answer.extent.high_watermark if answer.record is None else answer.record[0]))
        for partition, offset in offsets:
            instance.positions.begin(partition, offset)

    async def seek_to_edge(self, instance: Instance, request: SeekToEdge) -> None:
        """Sets the position to the beginning or the end of the named partitions, or of all assigned partitions if none
        are named. Raises `IllegalState` if a partition is not assigned to the instance, or the error of a
        partition whose leader cannot be asked; then no position changes.
        """
        partitions = pairs(request.partitions) or list(instance.positions.partitions)
        _require_own(instance, partitions)
        edges: list[tuple[Partition, int]] = []
        for partition, answer in await self._extents([(partition, None) for partition in partitions]):
            if isinstance(answer, TidelogError):
                raise answer
            edges.append(
                (partition, answer.extent.high_watermark if request.is_end else answer.extent.log_start_offset)
            )
        for partition, offset in edges:
            instance.positions.begin(partition, offset)

    async def _extents(
        self, questions: Sequence[tuple[Partition, int | None]]
    ) -> list[tuple[Partition, Offsets | TidelogError]]:
        """Returns for each partition its log start and high watermark and, with a timestamp (ms), the first record of
        that time or later; or the error of that partition.
        """
        handles = [(self._handle(partition), timestamp_ms) for partition, timestamp_ms in questions]
        answers = await offsets_of(handles)
        return [(partition, answer) for (partition, _), answer in zip(questions, answers, strict=True)]

    def _handle(self, partition: Partition) -> PartitionHandle | TidelogError:
        try:
            return self._partitions.partition(*partition)
        except TidelogError as error:
            return error


def _require_own(instance: Instance, partitions: Sequence[Partition]) -> None:
    owned = dict.fromkeys(instance.positions.partitions)
    foreign = [partition for partition in partitions if partition not in owned]
    if foreign:
        raise IllegalState(
            f"consumer instance {instance.name} does not have {names(foreign)} (now); no position changed"
        )
