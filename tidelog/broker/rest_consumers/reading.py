"""Reading for a consumer instance: finds the partitions that have records, reads them, and waits for more.

The partitions may have many leaders. One message to each leader asks for the high watermarks; only partitions with new
records are read. If there are none, one message to each leader waits until a high watermark advances. The first
partition to be read rotates, so that one that always has records does not starve the others.
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
from tidelog.broker.routing.json_reads import ReadTerms, read_records
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
"""Maximum bytes of records in one answer, whatever the client asks for, because the JSON is built in memory."""
DECODED_BYTES_MAX: Final = 64 << 20
"""Maximum bytes that a stored batch may decompress to when it is read as JSON."""
BUDGET_BYTES: Final = 64 << 20
"""Memory for record data of all instances' reads on a broker, in bytes."""
LOSSES_REPORTED_MAX: Final = 16
"""Maximum number of accepted losses (offset ranges that an operator declared lost) that one read skips: a response
header names each.
"""
LOOK_AGAIN_S: Final = 0.25
"""Seconds until a read asks again about a partition whose leader could not be asked."""


Ready: TypeAlias = tuple[Partition, PartitionHandle, int]
"""A partition, its handle, and the next offset to read."""


class Partitions(Protocol):
    """Look-up of partition handles by topic name and partition number."""

    def partition(self, topic: str, partition: int) -> PartitionHandle:
        """Returns a handle that reads at the partition's leader. Raises `UnknownTopic`, `UnknownPartition`,
        `LeaderNotAvailable`.
        """


@dataclass(slots=True)
class Look:
    """The state of an instance's partitions at one moment: which have records to read, and where each ends."""

    ready: list[Ready] = field(default_factory=list)
    """Partitions with records to read, each with the next offset to read."""
    ends: list[tuple[PartitionHandle, int]] = field(default_factory=list)
    """High watermarks of all partitions whose leader answered."""
    lost: list[Partition] = field(default_factory=list)
    """Partitions whose position is void: outside the log, or in a topic that was deleted and created again."""
    is_whole: bool = True
    """False if the leader of a partition could not be asked."""
    changes: int = 0
    """Value of `Instance.changes`, the count of wake-ups of the waiting read, before the leaders were asked. If it has
    changed since, the read asks again instead of waiting."""


@dataclass(slots=True)
class Collected:
    """Records collected from several partitions, and the position after them in each partition."""

    pieces: list[bytes] = field(default_factory=list)
    """The records as JSON text in pieces: the items of an array and their commas, without the brackets."""
    advanced: dict[Partition, int] = field(default_factory=dict)
    size: int = 0
    lost: list[tuple[str, int, int, int]] = field(default_factory=list)
    """Accepted losses that were skipped: topic, partition, and offsets [start, end)."""
    taken_bytes: int = 0
    """Bytes taken from the reader's budget, which the caller gives back when the records are encoded."""


class Reader:
    """Reads records for all consumer instances of a broker."""

    def __init__(self, partitions: Partitions, purgatory: Purgatory, work: HeavyWork, record_bytes_max: int) -> None:
        """`record_bytes_max` bounds the size in bytes of a record that is returned as JSON."""
        self._partitions = partitions
        self._purgatory = purgatory
        self._work = work
        self._record_bytes_max = record_bytes_max
        self.budget = ByteBudget(BUDGET_BYTES, "reads of REST consumers")

    async def look(self, instance: Instance) -> Look:
        """Asks the leaders of the instance's partitions for their high watermarks, and returns which partitions have
        records to read. Each call puts another partition first.
        """
        look = Look(changes=instance.changes)
        candidates: list[Ready] = []
        for partition, offset in _in_turn(instance):
            try:
                candidates.append((partition, self._partitions.partition(*partition), offset))
            except TidelogError:
                look.is_whole = False
        answers = await offsets_of([(handle, None) for _, handle, _ in candidates])
        for (partition, handle, offset), answer in zip(candidates, answers, strict=True):
            if isinstance(answer, TidelogError):
                look.is_whole = False
                continue
            extent = answer.extent
            look.ends.append((handle, extent.high_watermark))
            is_there = extent.log_start_offset <= offset <= max(extent.log_end_offset, extent.high_watermark)
            if not is_there or instance.lives.get(handle.topic, handle.topic_id) != handle.topic_id:
                look.lost.append(partition)
            elif offset < extent.high_watermark:
                look.ready.append((partition, handle, offset))
        instance.lives.update({handle.topic: handle.topic_id for _, handle, _ in candidates})
        return look

    async def collect(self, ready: Sequence[Ready], bytes_max: int, settings: InstanceSettings) -> Collected:
        """Returns records of these partitions, up to `bytes_max`, but at least one record if there is one. The read
        ends at a record that cannot be shown in the instance's format, a damaged batch, an accepted loss that the
        instance does not skip, or when the memory budget is used up. If nothing was collected before, raises
        `FormatMismatch`, `DamagedBatch`, `RecordsLost` or `Overloaded`.
        """
        collected = Collected()
        for partition, handle, offset in ready:
            try:
                await self._collect_one(collected, partition, handle, offset, bytes_max, settings)
            except (FormatMismatch, DamagedBatch, RecordsLost, Overloaded):
                if not (collected.pieces or collected.lost):
                    self.budget.give_back(collected.taken_bytes)
                    raise
                break
            except OffsetOutOfRange:
                continue  # the next look says so
            except TidelogError:
                continue  # its leader is not there now, or it was deleted
            except BaseException:
                self.budget.give_back(collected.taken_bytes)
                raise
            if collected.size >= bytes_max or len(collected.lost) >= LOSSES_REPORTED_MAX:
                break
        return collected

    async def _collect_one(
        self,
        collected: Collected,
        partition: Partition,
        handle: PartitionHandle,
        offset: int,
        bytes_max: int,
        settings: InstanceSettings,
    ) -> None:
        lost_max = LOSSES_REPORTED_MAX - len(collected.lost)
        room = bytes_max - collected.size
        terms = ReadTerms(*partition, settings.format, room, DECODED_BYTES_MAX, self._record_bytes_max)
        fetched, shown = await read_records(handle, offset, terms, self._work, lost_max=lost_max)
        if fetched.lost and settings.on_loss == "fail":
            raise _records_lost(partition, LostRange(*fetched.lost[0]))
        self.budget.take(len(fetched.data))
        collected.taken_bytes += len(fetched.data)
        collected.lost += [(*partition, *lost) for lost in fetched.lost]
        if fetched.lost:
            collected.advanced[partition] = max(end for _, end in fetched.lost)
        if shown and not (collected.pieces and shown.size > room):
            collected.pieces += [b","] if collected.pieces else []
            collected.pieces += shown.pieces
            collected.size += shown.size
            collected.advanced[partition] = shown.next_offset
        elif not shown and not shown.mismatch:
            collected.advanced[partition] = fetched.next_offset
        if shown.mismatch:
            raise FormatMismatch(shown.mismatch)

    async def wait(self, instance: Instance, look: Look, until_s: float) -> None:
        """Waits until a high watermark differs from the one in `look`, the instance was woken since, or `until_s` (loop
        time); at most `LOOK_AGAIN_S` if a leader could not be asked. Raises `Overloaded` if too many reads wait
        already.
        """
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
    positions = instance.positions.next_offsets
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
