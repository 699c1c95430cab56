"""Single requests to one leader on another broker: sent as peer messages, and answered with the leader's result.

Nothing here retries. The leader's error is raised unchanged; transport failures are `PeerUnreachable` or `NotLeader`
(definite: nothing was done), `PeerLost` or `TimeoutError` (outcome unknown).
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
from tidelog.broker.routing import forwarding_messages as messages
from tidelog.model.batch_header import RecordBatch
from tidelog.model.errors import Overloaded, TidelogError
from tidelog.model.ids import ProducerId
from tidelog.model.ports import Buffer
from tidelog.transport.peer import Answer, Lane

M = TypeVar("M", bound=msgspec.Struct)

WAITS_MAX: Final = 512
"""Maximum number of waits (long polls) of this broker's clients at other brokers: half of the requests that one peer
connection carries, so that long polls leave room for short requests.
"""
GRACE_S: Final = 0.5
"""Seconds that the sender waits beyond the leader's deadline, so that the leader's timeout error still arrives."""


class Peers(Protocol):
    """The connections to other brokers; `transport.peer.PeerNode` implements this."""

    async def request(
        self,
        node_id: int,
        message: msgspec.Struct,
        payload: Sequence[Buffer] = (),
        *,
        deadline_s: float,
        lane: Lane = Lane.CONTROL,
    ) -> Answer:
        """Returns the peer's answer, within `deadline_s` seconds. Raises the `TidelogError` that the peer answered
        with.

        Raises `PeerUnreachable` or `Overloaded` if the request was not sent (definite), `PeerLost` or `TimeoutError` if
        the outcome is unknown.
        """


class Waits:
    """The number of waits (long polls) at other brokers, bounded; a context manager around each wait."""

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
    """Another broker as the leader of partitions: sends it requests and returns its answers."""

    peers: Peers
    node_id: int
    waits: Waits

    async def wait_for_change(self, ends: Sequence[tuple[messages.Addressed, int]], deadline_s: float) -> None:
        """Waits until a high watermark differs from the one given, a partition has an error, or the deadline (loop
        time).
        """
        with self.waits:
            await self.ask(messages.ForwardChangeWait(list(ends), _timeout_ms(deadline_s)), deadline_s)

    async def offsets(
        self, questions: Sequence[tuple[messages.Addressed, int | None]], deadline_s: float
    ) -> list[Offsets | TidelogError]:
        """Returns for each partition its extent (log start, high watermark, log end) and, with a timestamp (ms), the
        first record of that time or later; or its error.
        """
        answer = await self.ask(messages.ForwardOffsets(list(questions), _timeout_ms(deadline_s)), deadline_s)
        offsets: list[Offsets | TidelogError] = []
        for entry in _expect(messages.OffsetsFound, answer).entries:
            if entry.refusal is not None:
                offsets.append(entry.refusal.to_error())
                continue
            extent = Extent(
                entry.log_start_offset, entry.high_watermark, entry.log_end_offset, entry.leader_epoch, entry.leader
            )
            offsets.append(Offsets(extent, entry.record))
        return offsets

    async def fingerprints(
        self, partitions: Sequence[messages.Addressed], producer_id: ProducerId, deadline_s: float
    ) -> list[int | TidelogError | None]:
        """Returns for each partition the content fingerprint of the request that was appended there under an
        idempotency key, given as the producer id made from it; None if no request was; or the partition's error.
        """
        message = messages.ForwardFingerprints(list(partitions), producer_id, _timeout_ms(deadline_s))
        fingerprints = _expect(messages.Fingerprints, await self.ask(message, deadline_s)).found
        return [
            fingerprint.to_error() if isinstance(fingerprint, messages.Refusal) else fingerprint
            for fingerprint in fingerprints
        ]

    async def ask(self, message: msgspec.Struct, deadline_s: float, payload: Sequence[Buffer] = ()) -> Answer:
        """Sends a message of `forwarding_messages`, to be executed by `deadline_s` (loop time), and returns the
        answer.
        """
        left_s = max(0.0, deadline_s - asyncio.get_running_loop().time())
        return await self.peers.request(self.node_id, message, payload, deadline_s=left_s + GRACE_S, lane=Lane.DATA)


@dataclass(frozen=True, slots=True)
class PeerPartition:
    """A partition whose leader is another broker. `deadline_s` (loop time) bounds calls without a deadline of their
    own.
    """

    peer: PeerLeader
    addressed: messages.Addressed
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
        """Forwards a produce request to the leader, without copying the batches. `idempotency` is the producer id made
        from an idempotency key and the content's fingerprint; with `expected_end`, nothing is appended unless the log
        ends there; `is_own` marks a record that a broker itself writes to the audit topic.
        """
        message = messages.ForwardProduce(
            self.addressed, acks, _timeout_ms(deadline_s), idempotency, expected_end, is_own
        )
        answer = await self.peer.ask(message, deadline_s, [batch.data for batch in batches])
        produced = _expect(messages.Produced, answer)
        return ProduceReceipt(
            list(produced.batches),
            produced.leader_epoch,
            produced.acked_by,
            produced.durability,
            produced.log_append_time_ms,
        )

    async def delete_records(self, offset: int, *, deadline_s: float) -> None:
        """Forwards a deletion of the committed records below `offset` to the leader."""
        await self.peer.ask(messages.ForwardDeletion(self.addressed, offset, _timeout_ms(deadline_s)), deadline_s)

    async def read(self, offset: int, *, bytes_max: int) -> FetchedBatches:
        """Forwards a read to the leader and returns committed batches from the one with `offset` on."""
        message = messages.ForwardRead(self.addressed, offset, bytes_max, _timeout_ms(self.deadline_s))
        answer = await self.peer.ask(message, self.deadline_s)
        read = _expect(messages.BatchesRead, answer)
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
        """Forwards a wait to the leader: until `bytes_min` committed bytes can be read from `offset` on, or until the
        deadline (loop time).
        """
        with self.peer.waits:
            message = messages.ForwardDataWait(self.addressed, offset, bytes_min, _timeout_ms(deadline_s))
            await self.peer.ask(message, deadline_s)


def _timeout_ms(deadline_s: float) -> int:
    return max(0, math.ceil((deadline_s - asyncio.get_running_loop().time()) * 1000))


def _expect(kind: type[M], answer: Answer) -> M:
    assert isinstance(answer.message, kind)
    return answer.message
