"""Partitions as a listener sees them: a handle for each, whichever broker leads, and requests about many at once.

The types of the handles' parameters and results can be imported from here, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from tidelog.broker.partitions.early_reads import EarlyBatch, EarlyReader
from tidelog.broker.partitions.led_partition import LedPartition
from tidelog.broker.partitions.local_copy import LocalCopy
from tidelog.broker.partitions.partition_handle import FetchedBatches, Offsets, PartitionHandle, ReadHandle
from tidelog.broker.partitions.proposals import ProduceReceipt, Proposal
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
from tidelog.model.errors import BrokerNotRegistered, LeaderNotAvailable
from tidelog.model.ids import PartitionId
from tidelog.transport.peer import PeerLost, PeerUnreachable

__all__ = [
    "EarlyBatch",
    "EarlyReader",
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
    "VerifyFilesQuery",
    "VerifyQuery",
    "VerifyReply",
    "Watchers",
]


class Replicas(Protocol):
    """The partition replicas of this broker, and the checks that ask replicas at all brokers."""

    @property
    def verifier(self) -> Verifier:
        """Verifies the log of a replica at any broker."""

    @property
    def files_verifier(self) -> FilesVerifier:
        """Verifies the files besides logs (journal, snapshots, metadata copies) at any broker."""

    @property
    def loss_finder(self) -> LossFinder:
        """Finds the offset ranges of a partition that all replicas have lost."""

    @property
    def remains_finder(self) -> RemainsFinder:
        """Finds which log ends the replicas of a partition that cannot elect a leader still have."""

    def local_copy(self, partition_id: PartitionId) -> LocalCopy | None:
        """Returns this broker's replica of a partition; None if there is none or its log cannot be opened."""

    def any_copy(self, partition_id: PartitionId) -> ReadHandle | None:
        """Returns this broker's replica for a reader that accepts any replica; None if the leader should be asked."""


class Partitions:
    """The partitions of the cluster, as one broker accesses them."""

    def __init__(self, routing: Routing, purgatory: Purgatory, replicas: Replicas) -> None:
        self._purgatory = purgatory
        self._replicas = replicas
        self.handle = routing.partition
        """Returns a handle of a partition, for one request, that asks its leader wherever that is. Raises
        `UnknownTopic`, `UnknownPartition`, `LeaderNotAvailable`.
        """
        self.led_here = routing.led_here
        """Returns a partition that this broker leads, for clients that find leaders themselves (Kafka's protocol).
        Raises `UnknownTopic`, `UnknownPartition`, `NotLeader`, `LeaderNotAvailable`.
        """
        self.wait_for_metadata = routing.wait_for_metadata
        """Waits until a condition on the metadata holds, checked after each change, or until a deadline (loop time)."""
        self.local_copy = replicas.local_copy
        """Returns this broker's replica of a partition; None if there is none or its log cannot be opened."""
        self.any_copy = replicas.any_copy
        """Returns this broker's replica for a reader that accepts any replica; None if the leader should be asked."""
        self.watch = purgatory.watch
        """Has a function called at each change of some partitions (`Purgatory.watch`). Raises `Overloaded`."""
        self.unwatch = purgatory.unwatch
        """Ends a wait that `watch` began."""
        self.offsets_of = bulk_calls.offsets_of
        """Returns the extent (log start, high watermark, log end) of each partition and, with a timestamp (ms), the
        first record of that time or later; or the error of that partition. An error in place of a partition is returned
        as it is.
        """
        self.fingerprints_of = bulk_calls.fingerprints_of
        """Asks each of these partitions which request was appended under an idempotency key, given as the producer id
        that was made from the key. Returns for each partition the fingerprint of the request's content, None if no
        request was appended under the key, or the error of that partition. The list is not in the partitions' order.
        """

    async def wait_until(self, is_ready: Callable[[], bool], watched: Iterable[Watchers]) -> None:
        """Waits until `is_ready()` is true, checked whenever one of the watched partitions changes. The caller ends the
        wait at its deadline. Raises `Overloaded` if too many requests wait already.
        """
        await self._purgatory.wait(watched, is_ready, None)

    async def wait_for_change(self, ends: Sequence[tuple[PartitionHandle, int]], deadline_s: float) -> None:
        """Waits until the high watermark of any partition differs from the one given with it, a partition has an error,
        or the deadline (loop time). Raises `Overloaded`.
        """
        await bulk_calls.wait_for_change(ends, self._purgatory, deadline_s)

    async def verify(self, node_id: int, query: VerifyQuery) -> VerifyReply:
        """Reads and verifies a part of one broker's replica. Raises `NotFound`, `LeaderNotAvailable`."""
        try:
            return await self._replicas.verifier.verify(node_id, query)
        except (PeerUnreachable, BrokerNotRegistered, PeerLost, TimeoutError):
            raise LeaderNotAvailable(f"broker {node_id} cannot be asked now") from None

    async def verify_files(self, node_id: int, query: VerifyFilesQuery) -> VerifyFilesReply:
        """Reads and verifies some of one broker's files besides logs. Raises `LeaderNotAvailable`, `Overloaded`."""
        try:
            return await self._replicas.files_verifier.verify(node_id, query)
        except (PeerUnreachable, BrokerNotRegistered, PeerLost, TimeoutError):
            raise LeaderNotAvailable(f"broker {node_id} cannot be asked now") from None

    async def find_losses(
        self, topic: Topic, info: PartitionInfo, offsets: tuple[int, int] | None, even_though: Sequence[int]
    ) -> LossReport:
        """Asks all replicas for the damaged batches in the offsets [start, end), or in all, and returns which offsets
        are lost on every replica. Brokers in `even_though` may be unreachable. Raises `LeaderNotAvailable`,
        `OffsetOutOfRange`.
        """
        return await self._replicas.loss_finder.find(topic, info, offsets, even_though)

    async def find_remains(self, topic: Topic, info: PartitionInfo, even_though: Sequence[int]) -> RemainsReport:
        """Asks all replicas of a partition that lost its quorum or its in-sync replicas where their logs end, and
        returns whether the partition may continue from one of these logs. Brokers in `even_though` may be unreachable.
        Raises `LeaderNotAvailable`.
        """
        return await self._replicas.remains_finder.find(topic, info, even_though)
