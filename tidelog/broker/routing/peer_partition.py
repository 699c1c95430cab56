"""Single requests to one leader: sent as messages, and answered with what the leader returned.

Nothing here repeats anything. What the leader raised is raised here as it was; what happened on the way is a
`PeerUnreachable` or a `NotLeader` (definite: nothing was done), a `PeerLost` or a `TimeoutError` (unknown).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

import msgspec

from tidelog.broker.partitions.partition_handle import Extent, FetchedBatches, Offsets
from tidelog.broker.partitions.proposals import ProduceReceipt
from tidelog.broker.routing.forwarding_messages import (
    Addressed,
    BatchesRead,
    Fingerprints,
    ForwardChangeWait,
    ForwardDataWait,
    ForwardDeletion,
    ForwardFingerprints,
    ForwardOffsets,
    ForwardProduce,
    ForwardRead,
    OffsetsFound,
    Produced,
    Refusal,
)
from tidelog.model.batch_header import RecordBatch
from tidelog.model.errors import Overloaded, TidelogError
from tidelog.model.ids import ProducerId
from tidelog.model.ports import Buffer
from tidelog.transport.peer import Answer, Lane

M = TypeVar("M", bound=msgspec.Struct)

WAITS_MAX: Final = 512
"""Waits of this broker's clients at other brokers: half of what one peer connection carries, so that long polls leave
room for what is in a hurry."""
GRACE_S: Final = 0.5
"""How much longer than the leader the caller waits, so that the leader's verdict on the deadline still arrives."""


class Peers(Protocol):
    """The way to other brokers; `transport.peer.PeerNode` is one."""

    async def request(
        self,
        node_id: int,
        message: msgspec.Struct,
        payload: Sequence[Buffer] = (),
        *,
        deadline_s: float,
        lane: Lane = Lane.CONTROL,
    ) -> Answer:
        """Returns the peer's answer, within `deadline_s` seconds, or the `TidelogError` that it answered with.

        Raises `PeerUnreachable` or `Overloaded` (not sent: definite), `PeerLost` or `TimeoutError` (unknown).
        """
        ...


class Waits:
    """Counts the waits at other brokers; a context manager around each."""

    def __init__(self, waits_max: int = WAITS_MAX) -> None:
        self._waits_max = waits_max
        self.under_way = 0

    def __enter__(self) -> None:
        if self.under_way >= self._waits_max:
            raise Overloaded(
                f"{self.under_way} reads wait for data of other brokers already; try again, or ask the leader itself"
            )
        self.under_way += 1

    def __exit__(self, *_: object) -> None:
        self.under_way -= 1


@dataclass(frozen=True, slots=True)
class PeerLeader:
    """Another broker, as the leader of partitions."""

    peers: Peers
    node_id: int
    waits: Waits

    async def wait_for_change(self, known: Sequence[tuple[Addressed, int]], deadline_s: float) -> None:
        """Returns when a high watermark is not the one given, when there is an error to tell, or at the deadline."""
        with self.waits:
            await self.ask(ForwardChangeWait(list(known), _timeout_ms(deadline_s)), deadline_s)

    async def offsets(
        self, asked: Sequence[tuple[Addressed, int | None]], deadline_s: float
    ) -> list[Offsets | TidelogError]:
        """Returns the extents of many partitions, and the records that were looked for by timestamp."""
        answer = await self.ask(ForwardOffsets(list(asked), _timeout_ms(deadline_s)), deadline_s)
        offsets: list[Offsets | TidelogError] = []
        for entry in _expect(OffsetsFound, answer).entries:
            if entry.refusal is not None:
                offsets.append(entry.refusal.to_error())
                continue
            extent = Extent(
                entry.log_start_offset, entry.high_watermark, entry.log_end_offset, entry.leader_epoch, entry.leader
            )
            offsets.append(Offsets(extent, entry.record))
        return offsets

    async def fingerprints(
        self, partitions: Sequence[Addressed], producer_id: ProducerId, deadline_s: float
    ) -> list[int | TidelogError | None]:
        """Returns the fingerprints of many partitions under an idempotency key, or a refusal of each."""
        message = ForwardFingerprints(list(partitions), producer_id, _timeout_ms(deadline_s))
        fingerprints = _expect(Fingerprints, await self.ask(message, deadline_s)).found
        return [
            fingerprint.to_error() if isinstance(fingerprint, Refusal) else fingerprint for fingerprint in fingerprints
        ]

    async def ask(self, message: msgspec.Struct, deadline_s: float, payload: Sequence[Buffer] = ()) -> Answer:
        """Sends a request of `forwarding_messages`, to be done by `deadline_s` (loop time), and returns the answer."""
        left_s = max(0.0, deadline_s - asyncio.get_running_loop().time())
        return await self.peers.request(self.node_id, message, payload, deadline_s=left_s + GRACE_S, lane=Lane.DATA)


@dataclass(frozen=True, slots=True)
class PeerPartition:
    """A partition at another broker; `deadline_s` (loop time) is for calls that have no deadline of their own."""

    peer: PeerLeader
    addressed: Addressed
    deadline_s: float

    async def produce(
        self,
        batches: list[RecordBatch],
        *,
        acks: int,
        deadline_s: float,
        idempotency: tuple[ProducerId, int] | None = None,
        expected_end: int | None = None,
        is_own: bool = False,
    ) -> ProduceReceipt:
        """Forwards a produce request (see `LedPartition.produce`). The batches' bytes go out as they are, and are not
        copied.
        """
        message = ForwardProduce(self.addressed, acks, _timeout_ms(deadline_s), idempotency, expected_end, is_own)
        answer = await self.peer.ask(message, deadline_s, [batch.data for batch in batches])
        produced = _expect(Produced, answer)
        return ProduceReceipt(
            list(produced.batches),
            produced.leader_epoch,
            produced.acked_by,
            produced.durability,
            produced.log_append_time_ms,
        )

    async def delete_records(self, offset: int, *, deadline_s: float) -> None:
        """Forwards a deletion of records (see `LedPartition.delete_records`)."""
        await self.peer.ask(ForwardDeletion(self.addressed, offset, _timeout_ms(deadline_s)), deadline_s)

    async def read(self, offset: int, *, bytes_max: int) -> FetchedBatches:
        """Forwards a read (see `LedPartition.read`)."""
        message = ForwardRead(self.addressed, offset, bytes_max, _timeout_ms(self.deadline_s))
        answer = await self.peer.ask(message, self.deadline_s)
        read = _expect(BatchesRead, answer)
        return FetchedBatches(
            answer.body,
            read.next_offset,
            read.log_start_offset,
            read.high_watermark,
            read.log_end_offset,
            read.leader_epoch,
            read.replica,
            read.lost,
        )

    async def wait_for_data(self, offset: int, *, bytes_min: int, deadline_s: float) -> None:
        """Forwards a wait for data (see `LedPartition.wait_for_data`)."""
        with self.peer.waits:
            message = ForwardDataWait(self.addressed, offset, bytes_min, _timeout_ms(deadline_s))
            await self.peer.ask(message, deadline_s)


def _timeout_ms(deadline_s: float) -> int:
    return max(0, math.ceil((deadline_s - asyncio.get_running_loop().time()) * 1000))


def _expect(kind: type[M], answer: Answer) -> M:
    assert isinstance(answer.message, kind)
    return answer.message
