"""The leader's side of forwarding: serves requests that other brokers forward for partitions that this broker leads.

A request is never forwarded twice: a partition that this broker does not lead is refused with `NotLeader`, whatever the
local metadata say. So two brokers that disagree cannot send a request in circles, and the sender decides what to do
next.

The sender's metadata may be newer than what this broker has applied to its replicas: the sender already knows that this
broker leads. Then the request waits for the replicas, `CATCH_UP_S` at most, instead of being refused. It waits as long
for a log that is being opened; after that the sender gets `NotLeader` and tries again.

Bounds: the batches of requests under way count against a budget (`Overloaded`), one answer holds at most
`READ_BYTES_MAX`, waits count with those of local clients, and every request ends at the sender's deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from tidelog.broker.partitions.led_partition import LedPartition
from tidelog.broker.routing import forwarding_messages as messages
from tidelog.broker.routing.bulk_calls import wait_for_local_change
from tidelog.broker.routing.fan_out import offsets_at
from tidelog.broker.routing.leader_lookup import LeaderLookup
from tidelog.broker.runtime.budget import ByteBudget
from tidelog.broker.runtime.purgatory import Purgatory
from tidelog.model.batch_header import split_batches
from tidelog.model.errors import InvalidRequest, NotLeader, TidelogError, UnknownPartition, UnknownTopic
from tidelog.model.ids import PartitionId, ProducerId, TopicId
from tidelog.transport.peer import Answer

PRODUCE_BYTES_MAX: Final = 128 << 20
"""Bytes of batches that other brokers have forwarded here and that are not answered yet. A single request always
fits.
"""
READ_BYTES_MAX: Final = 32 << 20
"""Maximum bytes of a forwarded read; a single larger batch is returned all the same."""
CATCH_UP_S: Final = 2.0


class ForwardedRequests:
    """Answers the requests of `forwarding_messages`, which other brokers send to this one as the leader."""

    def __init__(self, lookup: LeaderLookup, purgatory: Purgatory) -> None:
        self._lookup = lookup
        self._purgatory = purgatory
        self._budget = ByteBudget(PRODUCE_BYTES_MAX, "requests forwarded by other brokers")

    async def handle(self, message: msgspec.Struct, payload: memoryview) -> Answer:
        """Answers one forwarded request. Raises the `TidelogError` that the forwarding broker returns to its client."""
        match message:
            case messages.ForwardProduce():
                return await self._produce(message, payload)
            case messages.ForwardDeletion():
                return await self._delete(message)
            case messages.ForwardRead():
                return await self._read(message)
            case messages.ForwardDataWait():
                return await self._wait_for_data(message)
            case messages.ForwardChangeWait():
                return await self._wait_for_change(message)
            case messages.ForwardOffsets():
                return await self._find_offsets(message)
            case messages.ForwardFingerprints():
                return await self._find_fingerprints(message)
            case _:
                raise InvalidRequest(f"{type(message).__name__} is not a request about a partition")

    # -- one partition -----------------------------------------------------------------------------------------------

    async def _produce(self, message: messages.ForwardProduce, payload: memoryview) -> Answer:
        deadline_s = _deadline_s(message.timeout_ms)
        partition = await self.led(message.partition, deadline_s)
        size = len(payload)
        self._budget.take(size)
        try:
            keyed = None
            if message.idempotency is not None:
                keyed = ProducerId(message.idempotency[0]), message.idempotency[1]
            receipt = await partition.produce(
                split_batches(payload, batch_bytes_max=partition.config.max_message_bytes),
                acks=message.acks,
                deadline_s=deadline_s,
                idempotency=keyed,
                expected_end=message.expected_end,
                is_own=message.is_own,
            )
        finally:
            self._budget.give_back(size)
        return Answer(
            messages.Produced(
                receipt.batches,
                receipt.leader_epoch,
                receipt.acked_by,
                receipt.durability,
                receipt.log_append_time_ms,
            )
        )

    async def _delete(self, message: messages.ForwardDeletion) -> Answer:
        deadline_s = _deadline_s(message.timeout_ms)
        partition = await self.led(message.partition, deadline_s)
        await partition.delete_records(message.offset, deadline_s=deadline_s)
        return Answer()

    async def _read(self, request: messages.ForwardRead) -> Answer:
        partition = await self.led(request.partition, _deadline_s(request.timeout_ms))
        fetched = await partition.read(request.offset, bytes_max=min(request.bytes_max, READ_BYTES_MAX))
        message = messages.BatchesRead(
            fetched.next_offset,
            fetched.log_start_offset,
            fetched.high_watermark,
            fetched.log_end_offset,
            fetched.leader_epoch,
            fetched.replica,
            fetched.lost,
        )
        return Answer(message, (fetched.data,) if fetched.data else ())

    async def _wait_for_data(self, message: messages.ForwardDataWait) -> Answer:
        deadline_s = _deadline_s(message.timeout_ms)
        partition = await self.led(message.partition, deadline_s)
        await partition.wait_for_data(message.offset, bytes_min=message.bytes_min, deadline_s=deadline_s)
        return Answer()

    # -- many partitions ---------------------------------------------------------------------------------------------

    async def _wait_for_change(self, message: messages.ForwardChangeWait) -> Answer:
        deadline_s = _deadline_s(message.timeout_ms)
        partitions = await self._led_of_many([addressed for addressed, _ in message.known], deadline_s)
        ends: list[tuple[LedPartition, int]] = []
        for partition, (_, end) in zip(partitions, message.known, strict=True):
            if isinstance(partition, TidelogError):
                return Answer()  # something to tell: whoever asks for the offsets next is told
            ends.append((partition, end))
        await wait_for_local_change(ends, self._purgatory, deadline_s)
        return Answer()

    async def _find_offsets(self, message: messages.ForwardOffsets) -> Answer:
        deadline_s = _deadline_s(message.timeout_ms)
        partitions = await self._led_of_many([addressed for addressed, _ in message.asked], deadline_s)
        entries = []
        for partition, (_, timestamp_ms) in zip(partitions, message.asked, strict=True):
            entries.append(await _offsets_entry(partition, timestamp_ms, deadline_s))
            if timestamp_ms is not None:
                await asyncio.sleep(0)  # a look-up opens batches; others get their turn between two
        return Answer(messages.OffsetsFound(entries))

    async def _find_fingerprints(self, message: messages.ForwardFingerprints) -> Answer:
        partitions = await self._led_of_many(message.partitions, _deadline_s(message.timeout_ms))
        producer_id = ProducerId(message.producer_id)
        return Answer(
            messages.Fingerprints(
                [
                    messages.Refusal.of(partition)
                    if isinstance(partition, TidelogError)
                    else await partition.fingerprint_of(producer_id)
                    for partition in partitions
                ]
            )
        )

    # -- which partitions --------------------------------------------------------------------------------------------

    async def led(self, addressed: messages.Addressed, deadline_s: float) -> LedPartition:
        """Returns a partition that this broker leads, in the epoch that the sender names or a later one. Raises
        `NotLeader`; `LeaderNotAvailable` if the log is not open; `UnknownTopic` or `UnknownPartition`.
        """
        (partition,) = await self._led_of_many([addressed], deadline_s)
        if isinstance(partition, TidelogError):
            raise partition
        return partition

    async def _led_of_many(
        self, addresses: Sequence[messages.Addressed], deadline_s: float
    ) -> list[LedPartition | TidelogError]:
        """Returns each addressed partition, or the error why this broker does not serve it. Waits for this broker's
        metadata if the sender's are newer, and for logs that are being opened.
        """
        partitions = [self._find(addressed) for addressed in addresses]
        newest = max((addressed.position for addressed in addresses), default=0)
        if newest > self._lookup.position_in_force and any(
            isinstance(partition, TidelogError) for partition in partitions
        ):
            patience_s = min(deadline_s, asyncio.get_running_loop().time() + CATCH_UP_S)
            await self._lookup.wait_until(lambda: self._lookup.position_in_force >= newest, patience_s)
            partitions = [self._find(addressed) for addressed in addresses]
        names = [
            (TopicId(addressed.topic_id), addressed.partition)
            for addressed, partition in zip(addresses, partitions, strict=True)
            if isinstance(partition, TidelogError)
        ]
        if names:
            await self._lookup.until_opened(names, min(deadline_s, asyncio.get_running_loop().time() + CATCH_UP_S))
            partitions = [self._find(addressed) for addressed in addresses]
        return partitions

    def _find(self, addressed: messages.Addressed) -> LedPartition | TidelogError:
        topic_id = TopicId(addressed.topic_id)
        try:
            info = self._lookup.find_again(addressed.topic, topic_id, addressed.partition)
            if info.leader != self._lookup.node_id or info.leader_epoch < addressed.leader_epoch:
                return NotLeader(
                    f"broker {self._lookup.node_id} does not lead {addressed.topic}-{addressed.partition} "
                    f"in epoch {addressed.leader_epoch}",
                    info.leader_epoch,
                )
            if self._lookup.is_opening(topic_id, addressed.partition):
                return NotLeader(f"broker {self._lookup.node_id} is still opening its log", info.leader_epoch)
            return self._lookup.opened(addressed.topic, PartitionId(topic_id, addressed.partition))
        except (UnknownTopic, UnknownPartition) as error:
            if addressed.position <= self._lookup.position:
                return error
            return NotLeader(f"broker {self._lookup.node_id} has not heard of {addressed.topic} yet")
        except TidelogError as error:
            return error


async def _offsets_entry(
    partition: LedPartition | TidelogError, timestamp_ms: int | None, deadline_s: float
) -> messages.OffsetsEntry:
    if isinstance(partition, TidelogError):
        return messages.OffsetsEntry(refusal=messages.Refusal.of(partition))
    try:
        await partition.wait_for_end(deadline_s)
        offsets = await offsets_at(partition, timestamp_ms)
    except TidelogError as error:
        return messages.OffsetsEntry(refusal=messages.Refusal.of(error))
    extent = offsets.extent
    return messages.OffsetsEntry(
        extent.log_start_offset,
        extent.high_watermark,
        extent.log_end_offset,
        extent.leader_epoch,
        extent.leader,
        offsets.record,
    )


def _deadline_s(timeout_ms: int) -> float:
    return asyncio.get_running_loop().time() + max(0, timeout_ms) / 1000
