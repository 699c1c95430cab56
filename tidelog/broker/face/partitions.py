"""Partitions, as a listener sees them: a handle each, whichever broker leads, and questions about many at once.

The values that handles take and give are named here too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from tidelog.broker.partitions.led_partition import LedPartition
from tidelog.broker.partitions.local_copy import LocalCopy
from tidelog.broker.partitions.partition_handle import Extent, FetchedBatches, Offsets, PartitionHandle, ReadHandle
from tidelog.broker.partitions.proposals import Asker, ProduceReceipt, Proposal
from tidelog.broker.repair.loss_finding import LossFinder
from tidelog.broker.repair.loss_report import LossReport
from tidelog.broker.repair.remains_finding import RemainsFinder
from tidelog.broker.repair.remains_report import RemainsReport
from tidelog.broker.repair.repair_messages import VerifyFilesQuery, VerifyFilesReply, VerifyQuery, VerifyReply
from tidelog.broker.repair.verifying import Verifier
from tidelog.broker.repair.verifying_files import FilesVerifier
from tidelog.broker.routing import bulk_calls
from tidelog.broker.routing.routing import Routing
from tidelog.broker.runtime.purgatory import Purgatory, Watchers
from tidelog.model.cluster import PartitionInfo, Topic
from tidelog.model.errors import BrokerNotRegistered, LeaderNotAvailable, TidelogError
from tidelog.model.ids import PartitionId, ProducerId
from tidelog.transport.peer import PeerLost, PeerUnreachable

__all__ = [
    "Asker",
    "Extent",
    "FetchedBatches",
    "LedPartition",
    "LocalCopy",
    "LossReport",
    "Offsets",
    "PartitionHandle",
    "Partitions",
    "ProduceReceipt",
    "Proposal",
    "ReadHandle",
    "RemainsReport",
    "VerifyFilesQuery",
    "VerifyFilesReply",
    "VerifyQuery",
    "VerifyReply",
]


class Replicas(Protocol):
    """The replicas that this broker holds."""

    @property
    def verifier(self) -> Verifier:
        """Verifies a replica of any broker."""
        ...

    @property
    def files_verifier(self) -> FilesVerifier:
        """Verifies what any broker keeps besides logs."""
        ...

    @property
    def loss_finder(self) -> LossFinder:
        """Finds what a partition has lost."""
        ...

    @property
    def remains_finder(self) -> RemainsFinder:
        """Finds what is left of a partition that nobody leads."""
        ...

    def local_copy(self, partition_id: PartitionId) -> LocalCopy | None:
        """This broker's own copy of a partition; None if it holds none, or cannot open it."""
        ...

    def any_copy(self, partition_id: PartitionId) -> ReadHandle | None:
        """Returns the copy for who would take any; None if the leader is to be asked."""
        ...


class Partitions:
    """The partitions of the cluster, as one broker reaches them."""

    def __init__(self, routing: Routing, purgatory: Purgatory, replicas: Replicas) -> None:
        self._routing = routing
        self._purgatory = purgatory
        self._replicas = replicas

    def handle(self, topic: str, partition: int) -> PartitionHandle:
        """Returns a partition at its leader, for one request. Raises `UnknownTopic`, `UnknownPartition`,
        `LeaderNotAvailable`."""
        return self._routing.partition(topic, partition)

    def led_here(self, topic: str, partition: int) -> LedPartition:
        """Returns a partition that this broker leads, for clients that find the leaders themselves. Raises
        `UnknownTopic`, `UnknownPartition`, `NotLeader`, `LeaderNotAvailable`."""
        return self._routing.led_here(topic, partition)

    async def wait_until(self, is_ready: Callable[[], bool], watched: Iterable[Watchers], deadline_s: float) -> None:
        """Returns when `is_ready()`, looked at whenever one of these partitions changes, or at the deadline (loop
        time). Raises `Overloaded`."""
        await self._purgatory.wait(watched, is_ready, deadline_s)

    def local_copy(self, partition_id: PartitionId) -> LocalCopy | None:
        """This broker's own copy of a partition; None if it holds none, or cannot open it."""
        return self._replicas.local_copy(partition_id)

    def any_copy(self, partition_id: PartitionId) -> ReadHandle | None:
        """Returns the copy for who would take any; None if the leader is to be asked."""
        return self._replicas.any_copy(partition_id)

    @staticmethod
    async def offsets_of(
        asked: Sequence[tuple[PartitionHandle | TidelogError, int | None]],
    ) -> list[Offsets | TidelogError]:
        """Returns the extent of each partition and, for one with a timestamp (ms), the first record of that time or
        later; or the error of that partition, also one that stands in its stead."""
        return await bulk_calls.offsets_of(asked)

    @staticmethod
    async def fingerprints_of(
        partitions: Sequence[PartitionHandle], producer_id: ProducerId
    ) -> list[int | TidelogError | None]:
        """Returns the fingerprint that came to each partition under an idempotency key, by the producer id made from
        the key; None if nothing did."""
        return await bulk_calls.fingerprints_of(partitions, producer_id)

    async def wait_for_change(self, known: Sequence[tuple[PartitionHandle, int]], deadline_s: float) -> None:
        """Returns when a high watermark differs from the one given with its partition, when a partition has an error
        to tell, or at the deadline (loop time). Raises `Overloaded`."""
        await bulk_calls.wait_for_change(known, self._purgatory, deadline_s)

    async def verify(self, node_id: int, query: VerifyQuery) -> VerifyReply:
        """Reads and checks a part of the replica at one broker. Raises `NotFound`, `LeaderNotAvailable`."""
        try:
            return await self._replicas.verifier.verify(node_id, query)
        except (PeerUnreachable, BrokerNotRegistered, PeerLost, TimeoutError):
            raise LeaderNotAvailable(f"broker {node_id} cannot be asked now") from None

    async def verify_files(self, node_id: int, query: VerifyFilesQuery) -> VerifyFilesReply:
        """Reads and checks some of what one broker keeps besides logs. Raises `LeaderNotAvailable`, `Overloaded`."""
        try:
            return await self._replicas.files_verifier.verify(node_id, query)
        except (PeerUnreachable, BrokerNotRegistered, PeerLost, TimeoutError):
            raise LeaderNotAvailable(f"broker {node_id} cannot be asked now") from None

    async def find_losses(
        self, topic: Topic, info: PartitionInfo, asked: tuple[int, int] | None, even_though: Sequence[int]
    ) -> LossReport:
        """Asks all replicas what they have of the damaged batches in the offsets [start, end), or of all, and judges
        what is lost. `even_though` are brokers that need not be asked. Raises `LeaderNotAvailable`,
        `OffsetOutOfRange`."""
        return await self._replicas.loss_finder.find(topic, info, asked, even_though)

    async def find_remains(self, topic: Topic, info: PartitionInfo, even_though: Sequence[int]) -> RemainsReport:
        """Asks all replicas what is left of a partition whose votes, or in-sync replicas, are lost, and judges whether
        it may go on from that. `even_though` are brokers that need not be asked. Raises `LeaderNotAvailable`."""
        return await self._replicas.remains_finder.find(topic, info, even_though)
