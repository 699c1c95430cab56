"""All Paxos partitions of one run: the true state of their logs, and which disks may be lost.

A disk may be lost, or forget something, if a majority of all voters, and of all voter sets that may yet come into
force, still remembers everything: Paxos promises no more than that, and no less. While members change, the log may be a
step ahead of what the controller knows, so no disk is taken away then; and a partition whose members are complete again
after a loss must survive the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator

from tidelog.broker.paxos.context import voters_of
from tidelog.model.cluster import PartitionInfo
from tidelog.model.ids import PartitionId
from tidelog.sim.cluster.book import Book
from tidelog.sim.cluster.paxos_log import PaxosLog


class Majorities:
    """True state of the log of each Paxos partition in one run."""

    def __init__(self) -> None:
        self.logs: dict[PartitionId, PaxosLog] = {}

    def created(
        self, partition_id: PartitionId, book: Book, info: PartitionInfo, durable_of: Callable[[int], int]
    ) -> None:
        """Notes a new partition. `durable_of` returns the durable end offset of its log on a node."""
        self.logs[partition_id] = PaxosLog(book, voters_of(info.members), durable_of)

    def is_born_dead(self, partition_id: PartitionId, info: PartitionInfo, wiped: Container[int]) -> bool:
        """Returns True if a majority of the partition's founding members were on nodes in `wiped`, whose disks were
        replaced before the controller learned of it."""
        log = self.logs[partition_id]
        log.lost.update((member.engine_id, None) for member in info.members if member.node_id in wiped)
        return bool(log.lost) and self._is_beyond_help(log)

    def may_forget(self, partition_id: PartitionId, info: PartitionInfo, node: int) -> bool:
        """Returns True if the partition's journal on this node may be lost; also if the node has none."""
        ids = self._ids_on(partition_id, info, node)
        if not ids:
            return True
        if info.is_moving or info.members != info.wanted:
            return False
        gone = {*ids, *self.logs[partition_id].lost}
        return all(2 * len(gone.intersection(group)) < len(group) for group in self._groups(partition_id, info))

    def forgets(self, partition_id: PartitionId, info: PartitionInfo, node: int) -> None:
        """Notes that the votes in a node's journal are lost."""
        self.logs[partition_id].lost.update(dict.fromkeys(self._ids_on(partition_id, info, node)))

    def loses_memory(self, partition_id: PartitionId, info: PartitionInfo, node: int) -> bool:
        """Notes that a node's engine ids which may have answered from memory never vote again. Returns True if that
        ends the partition: no majority can tell any more what was chosen."""
        log = self.logs[partition_id]
        ids = [engine_id for engine_id in self._ids_on(partition_id, info, node) if log.is_lazy(engine_id)]
        log.lost.update(dict.fromkeys(ids))
        return bool(ids) and self._is_beyond_help(log)

    def _ids_on(self, partition_id: PartitionId, info: PartitionInfo, node: int) -> list[int]:
        owners = {(member.engine_id, member.node_id) for member in (*info.members, *info.wanted)}
        for voters in self.logs[partition_id].possible_voters():
            owners.update((voter.voter_id, voter.node_id) for voter in voters.voters)
        lost = self.logs[partition_id].lost
        return sorted(engine_id for engine_id, owner in owners if owner == node and engine_id not in lost)

    def _groups(self, partition_id: PartitionId, info: PartitionInfo) -> Iterator[tuple[int, ...]]:
        """Yields the engine ids of each voter set that may decide; a majority of each must remember."""
        yield tuple(member.engine_id for member in info.members)
        for voters in self.logs[partition_id].possible_voters():
            yield voters.ids

    @staticmethod
    def _is_beyond_help(log: PaxosLog) -> bool:
        """Returns True if a majority of the voter set in force is not left."""
        voters = next(log.possible_voters()).ids
        return 2 * len([voter for voter in voters if voter in log.lost]) >= len(voters)
