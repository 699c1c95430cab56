"""The roles of a broker's Paxos partitions: one `PaxosReplica` for each, which is kept across metadata updates.

A replica's disk votes whoever leads, so it is opened once, and then updated from the metadata: the leader and its
epoch, the voters, and the engine id of this disk. Only the leader (`PaxosPartition`) is made anew with each epoch.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

import msgspec

from tidelog.broker.partitions.replica_logs import log_settings
from tidelog.broker.partitions.roles import Assignment, ProtocolContext
from tidelog.broker.paxos.context import PartitionContext, ReplicaIdentity, voters_of
from tidelog.broker.paxos.journal_truncation import JournalBounds
from tidelog.broker.paxos.lanes import Lanes
from tidelog.broker.paxos.messages import PartitionFrame, ReadApplied, ReadValue
from tidelog.broker.paxos.move_throttle import MoveThrottle, ThrottledPeers
from tidelog.broker.paxos.opening import founding_metainfo, open_replica
from tidelog.broker.paxos.partition import PaxosPartition
from tidelog.broker.paxos.regrouping import era_of
from tidelog.broker.paxos.replica import PaxosReplica
from tidelog.controller.partition_commands import UnfitReason
from tidelog.controller.quorum_leadership import is_replaced
from tidelog.model.cluster import ClusterImage, PartitionInfo
from tidelog.model.ids import PartitionId
from tidelog.model.ports import Buffer
from tidelog.replication.paxos.events import VotesLost
from tidelog.storage.new_logs import NewLog
from tidelog.transport.peer import Answer, Lane, PeerNode


class PaxosRoles:
    """The `Roles` (replicas and leaders by the metadata) of the Paxos partitions on one broker."""

    def __init__(self, context: ProtocolContext, move_throttle: MoveThrottle, lanes: Lanes | None) -> None:
        self.partitions: dict[PartitionId, PaxosPartition] = {}
        self.holders: dict[PartitionId, PaxosReplica] = {}
        self.readable: Mapping[PartitionId, PaxosReplica] = self.holders
        self.infos: dict[PartitionId, PartitionInfo] = {}
        """Metadata of the partitions, from the image in force."""
        self._node_id = context.node_id
        self._logs = context.logs
        self._tasks = context.tasks
        throttled = ThrottledPeers(_DataLanes(context.peers, context.image, lanes), move_throttle)
        bounds = JournalBounds(context.config.paxos_journal_max_bytes, context.config.paxos_journal_max_entries)
        self._context = PartitionContext(
            context, throttled, context.entropy, context.tasks.spawn, bounds, lambda: context.image().level
        )
        self._failed: dict[PartitionId, None] = {}
        """Partitions whose replica had halted when it was stopped. A failed disk is not used again before the broker
        restarts."""

    async def serve(self, assigned: Assignment, image: ClusterImage) -> bool:
        """Opens an assigned replica if necessary, and updates it from the metadata; returns True if it was opened or
        its role changed."""
        partition_id, _, info, config = assigned
        replica = running = self.holders.get(partition_id)
        # An engine of an earlier era must not speak in this one: the replica is opened anew, and enters it.
        if running is not None and running.era != info.eras[0]:
            await self.stop(partition_id)
            replica = running = None
        if replica is None:
            replica = self._open(assigned, image)
        if replica is None:
            return True
        self.infos[partition_id] = info
        replica.set_members(voters_of(info.members), info.replicas)
        replica.set_engine_id(self._engine_id(info, image))
        # No election waits for a member whose disk has lost its vote.
        lost = tuple(member.engine_id for member in info.members if is_replaced(info, member))
        replica.engine.step(VotesLost(lost))
        replica.log.settings = log_settings(config)
        if replica.leader_epoch != info.leader_epoch:
            await self._change_role(replica, assigned)
        elif replica.leader is not None and replica.leader.config != config:
            replica.reconfigure(replica.leader, config)
        else:
            return running is None
        return True

    def _open(self, assigned: Assignment, image: ClusterImage) -> PaxosReplica | None:
        partition_id, topic, info, config = assigned
        # Opened again it would serve from a disk that has failed an fsync: nobody knows what is on it.
        if partition_id in self._failed:
            return None
        members = voters_of(info.members)
        engine_id = self._engine_id(info, image)
        opener = partial(
            open_replica,
            partition_id=partition_id,
            settings=log_settings(config),
            engine_id=engine_id,
            # Only while the first voters are in force: a new disk that founded later would vote with an empty log.
            founders=members if info.is_founding else None,
            since=info.since_of(self._node_id),
            is_alone=len(info.replicas) == 1,
            era=era_of(info, self._node_id),
        )
        founders = members if info.is_founding else None
        metainfo = partial(founding_metainfo, engine_id, founders, renewals=self._logs.renewals, era=info.eras[0])
        get = partial(
            self._logs.get_opened_by,
            opener,
            topic.name,
            info.since_of(self._node_id),
            NewLog(partition_id, lambda incarnation: msgspec.msgpack.encode(metainfo(incarnation))),
        )
        files = get()
        if files is not None and files.metainfo.era != info.eras[0]:  # they were asked for before that era began
            files = get()
        if files is None:
            return None
        identity = ReplicaIdentity(topic.name, partition_id, self._node_id, engine_id, info.eras[0])
        replica = self.holders[partition_id] = PaxosReplica(identity, members, files, self._context)
        replica.start()
        self._logs.check(partition_id, files.log)
        return replica

    def _engine_id(self, info: PartitionInfo, image: ClusterImage) -> int:
        """Returns the engine id that the metadata give this disk in a partition's Paxos log, as a voter or as one that
        is to become a voter; 0 if there is none."""
        storage = image.brokers[self._node_id].storage
        # Wanted first: a disk that has lost its vote is a member under the dead id, and wanted under the next.
        members = [*info.wanted, *info.members]
        return next(
            (member.engine_id for member in members if (member.node_id, member.storage) == (self._node_id, storage)), 0
        )

    async def _change_role(self, replica: PaxosReplica, assigned: Assignment) -> None:
        partition_id, _, info, config = assigned
        await self._end_leadership(partition_id)
        if info.leader == self._node_id:
            partition = self.partitions[partition_id] = replica.lead(info.leader_epoch, config)
            self._tasks.spawn(partition_id, partition.run())
        else:
            replica.follow(info.leader_epoch, info.leader)

    async def _end_leadership(self, partition_id: PartitionId) -> None:
        partition = self.partitions.pop(partition_id, None)
        if partition is not None:
            partition.close(is_deposed=True)
            await self._tasks.cancel(partition_id)

    def unfit(self) -> dict[PartitionId, UnfitReason]:
        """Returns the halted replicas, with the reason `OFFLINE`."""
        return {
            partition_id: UnfitReason.OFFLINE for partition_id, replica in self.holders.items() if replica.is_halted
        }

    async def stop(self, partition_id: PartitionId) -> None:
        """Stops the replica of a partition on this broker, and waits until nothing writes to its files."""
        await self._end_leadership(partition_id)
        replica = self.holders.pop(partition_id)
        del self.infos[partition_id]
        if replica.is_halted:
            self._failed[partition_id] = None
        await replica.close()
        # The directory may be given to another role, or removed: no write may come after that.
        await replica.at_rest()
        self._logs.high_watermarks[partition_id] = replica.high_watermark

    async def close(self) -> None:
        """Stops all replicas and leaders."""
        for partition_id in list(self.holders):
            partition = self.partitions.pop(partition_id, None)
            if partition is not None:
                partition.close()
                await self._tasks.cancel(partition_id)
            await self.stop(partition_id)


class _DataLanes:
    """The peer connections for replica data (`Peers`), which are not those for heartbeats, so as not to delay them."""

    def __init__(self, peers: PeerNode, image: Callable[[], ClusterImage], lanes: Lanes | None) -> None:
        self._peers = peers
        self._image = image
        self._lanes = lanes

    def notify(self, node_id: int, message: msgspec.Struct, payload: Sequence[Buffer] = ()) -> object:
        lane: int = Lane.DATA
        if self._lanes is not None and isinstance(message, PartitionFrame):
            lane = self._lanes.choose(node_id, message, self._peers.data_lanes(node_id) or [lane])
        return self._peers.notify(node_id, message, payload, lane=lane)

    def ask(self, node_id: int, message: ReadApplied | ReadValue, deadline_s: float) -> Awaitable[Answer]:
        return self._peers.request(node_id, message, deadline_s=deadline_s, lane=Lane.DATA)

    def is_live(self, node_id: int) -> bool:
        return self._image().is_live(node_id)
