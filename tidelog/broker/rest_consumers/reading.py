"""Reading for an instance: from which of its partitions there is something, the records, and the wait for more.

Partitions are led anywhere. One message to each leader says which have records; only those are read, and only if there
are none at all one message to each leader waits for any of them to get some. Partitions take turns in being the first,
so that one that is always full does not starve the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from tidelog.broker.partitions.partition_handle import PartitionHandle
from tidelog.broker.rest_consumers.instance import Instance
from tidelog.broker.rest_consumers.requests import Partition
from tidelog.broker.routing.bulk_calls import first_of, offsets_of, wait_for_change
from tidelog.broker.routing.json_reads import Wanted, read_records
from tidelog.broker.runtime.budget import ByteBudget
from tidelog.broker.runtime.heavy_work import HeavyWork
from tidelog.broker.runtime.purgatory import Purgatory
from tidelog.model.errors import (
    DamagedBatch,
    FormatMismatch,
    OffsetOutOfRange,
    Overloaded,
    RecordsLost,
    TidelogError,
)
from tidelog.model.groups import InstanceSettings
from tidelog.model.lost_ranges import LostRange

READ_BYTES_MAX: Final = 8 << 20
"""Bounds one answer, whatever the settings say: JSON is built in memory."""
DECODED_BYTES_MAX: Final = 64 << 20
"""The bytes at most that a stored batch may decompress to."""
BUDGET_BYTES: Final = 64 << 20
"""Record data that reads of all instances of a broker have in hand."""
LOSSES_TOLD_MAX: Final = 16
"""Accepted losses that one read skips at most: they are told in a header, with topic and partition."""
LOOK_AGAIN_S: Final = 0.25
"""When a partition that could not be asked is asked again."""


Ready: TypeAlias = tuple[Partition, PartitionHandle, int]
"""A partition, and where to read on."""


class Partitions(Protocol):
    """All partitions of the cluster."""

    def partition(self, topic: str, partition: int) -> PartitionHandle:
        """Raises `UnknownTopic`, `UnknownPartition`, `LeaderNotAvailable`."""
        ...


@dataclass(slots=True)
class Look:
    """The records that there are to read at one moment."""

    ready: list[Ready] = field(default_factory=list)
    """Partitions that have records from here on."""
    ends: list[tuple[PartitionHandle, int]] = field(default_factory=list)
    """The ends of all partitions that could be asked."""
    lost: list[Partition] = field(default_factory=list)
    """The partitions whose position is not in the log any more, or never was, or was in that of a topic that was
    deleted.
    """
    is_whole: bool = True
    """False if one could not be asked."""
    changes: int = 0
    """`Instance.changes` at that moment."""


@dataclass(slots=True)
class Collected:
    """Records, and where that leaves each partition that they, or what was stepped over, are from."""

    pieces: list[bytes] = field(default_factory=list)
    """The records: the inside of a JSON array."""
    advanced: dict[Partition, int] = field(default_factory=dict)
    size: int = 0
    lost: list[tuple[str, int, int, int]] = field(default_factory=list)
    """Accepted losses that were skipped: topic and partition, and offsets [start, end)."""
    taken_bytes: int = 0
    """The bytes taken of the budget; the caller gives them back when it has let go of the records."""


class Reader:
    """For all instances of a broker."""

    def __init__(self, partitions: Partitions, purgatory: Purgatory, work: HeavyWork, record_bytes_max: int) -> None:
        """`record_bytes_max` is the longest record that is shown."""
        self._partitions = partitions
        self._purgatory = purgatory
        self._work = work
        self._record_bytes_max = record_bytes_max
        self.budget = ByteBudget(BUDGET_BYTES, "reads of REST consumers")

    async def look(self, instance: Instance) -> Look:
        """Finds the partitions of an instance that have something to read; each time another one is the first."""
        look = Look(changes=instance.changes)
        asked: list[Ready] = []
        for partition, offset in _in_turn(instance):
            try:
                asked.append((partition, self._partitions.partition(*partition), offset))
            except TidelogError:
                look.is_whole = False
        answers = await offsets_of([(handle, None) for _, handle, _ in asked])
        for (partition, handle, offset), found in zip(asked, answers, strict=True):
            if isinstance(found, TidelogError):
                look.is_whole = False
                continue
            extent = found.extent
            look.ends.append((handle, extent.high_watermark))
            is_there = extent.log_start_offset <= offset <= max(extent.log_end_offset, extent.high_watermark)
            if not is_there or instance.lives.get(handle.topic, handle.topic_id) != handle.topic_id:
                look.lost.append(partition)
            elif offset < extent.high_watermark:
                look.ready.append((partition, handle, offset))
        instance.lives.update({handle.topic: handle.topic_id for _, handle, _ in asked})
        return look

    async def collect(self, ready: Sequence[Ready], bytes_max: int, settings: InstanceSettings) -> Collected:
        """Records of these partitions, up to `bytes_max` but at least one if there is one. On `Overloaded`, on records
        that cannot be shown, on damage, and on losses that are not to be skipped it ends with what it has; raises that
        if it has nothing."""
        found = Collected()
        for partition, handle, offset in ready:
            try:
                await self._collect_one(found, partition, handle, offset, bytes_max, settings)
            except (FormatMismatch, DamagedBatch, RecordsLost, Overloaded):
                if not (found.pieces or found.lost):
                    self.budget.give_back(found.taken_bytes)
                    raise
                break
            except OffsetOutOfRange:
                continue  # the next look says so
            except TidelogError:
                continue  # its leader is not there now, or it was deleted
            except BaseException:
                self.budget.give_back(found.taken_bytes)
                raise
            if found.size >= bytes_max or len(found.lost) >= LOSSES_TOLD_MAX:
                break
        return found

    async def _collect_one(
        self,
        found: Collected,
        partition: Partition,
        handle: PartitionHandle,
        offset: int,
        bytes_max: int,
        settings: InstanceSettings,
    ) -> None:
        lost_max = LOSSES_TOLD_MAX - len(found.lost)
        room = bytes_max - found.size
        wanted = Wanted(*partition, settings.format, room, DECODED_BYTES_MAX, self._record_bytes_max)
        fetched, shown = await read_records(handle, offset, wanted, self._work, lost_max=lost_max)
        if fetched.lost and settings.on_loss == "fail":
            raise _records_lost(partition, LostRange(*fetched.lost[0]))
        self.budget.take(len(fetched.data))
        found.taken_bytes += len(fetched.data)
        found.lost += [(*partition, *lost) for lost in fetched.lost]
        if fetched.lost:
            found.advanced[partition] = max(end for _, end in fetched.lost)
        if shown and not (found.pieces and shown.size > room):
            found.pieces += [b","] if found.pieces else []
            found.pieces += shown.pieces
            found.size += shown.size
            found.advanced[partition] = shown.next_offset
        elif not shown and not shown.mismatch:
            found.advanced[partition] = fetched.next_offset
        if shown.mismatch:
            raise FormatMismatch(shown.mismatch)

    async def wait(self, instance: Instance, look: Look, until_s: float) -> None:
        """Returns when any partition may have got more, when the instance has other partitions, or at `until_s` (loop
        time). Raises `Overloaded` if too many wait already."""
        if not look.is_whole:
            until_s = min(until_s, asyncio.get_running_loop().time() + LOOK_AGAIN_S)
        waits = [instance.changed(look.changes)]
        if look.ends:
            waits.append(wait_for_change(look.ends, self._purgatory, until_s))
        try:
            async with asyncio.timeout_at(until_s):
                await first_of(waits)
        except TimeoutError:
            return


def _in_turn(instance: Instance) -> list[tuple[Partition, int]]:
    positions = instance.positions.known
    if not positions:
        return []
    first = instance.turn % len(positions)
    instance.turn += 1
    return positions[first:] + positions[:first]


def _records_lost(partition: Partition, lost: LostRange) -> RecordsLost:
    return RecordsLost(
        f"{partition[0]}-{partition[1]}: the records at offsets {lost} are lost, and that was accepted; go on behind "
        f"them with POST .../positions and offset {lost.end}, or create the instance with on.loss=skip",
        *partition,
        (lost,),
    )
