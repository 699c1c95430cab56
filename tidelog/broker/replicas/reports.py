"""Reports of a broker to the controller: the metadata position it has applied, which of its replicas not to count on,
and brokers that it cannot reach.

Heartbeats carry the first; the others are sent as commands, or as notifications that may get lost, since the next one
says the same.
"""

from __future__ import annotations

from functools import partial

from tidelog.broker.controller.active import ActiveController
from tidelog.broker.membership.controller_channel import ControllerChannel
from tidelog.broker.membership.registration import HeartbeatState
from tidelog.broker.metadata.metadata import ClusterMetadata
from tidelog.broker.replicas.data_plane import DataPlane
from tidelog.broker.runtime.log_writer import LogWriter
from tidelog.controller.commands import MetadataApplied, ReportSilence
from tidelog.controller.partition_commands import LostReplica, UnfitReplica
from tidelog.model.ids import NodeId
from tidelog.storage.directory_identity import DirectoryIdentityStore
from tidelog.transport.peer import PeerNode


class Reports:
    """The reports of one broker: the `Member` (see its protocol) of the broker's registration."""

    def __init__(
        self,
        node_id: NodeId,
        data: DataPlane,
        metadata: ClusterMetadata,
        identity: DirectoryIdentityStore,
        log_writer: LogWriter,
        channel: ControllerChannel,
        controller: ActiveController,
        peers: PeerNode,
    ) -> None:
        self._node_id = node_id
        self._data = data
        self._metadata = metadata
        self._identity = identity
        self._log_writer = log_writer
        self._channel = channel
        self._controller = controller
        self._peers = peers

    def heartbeat_state(self) -> HeartbeatState:
        """Returns what the next heartbeat reports: the applied metadata position and the position of the last
        snapshot."""
        return HeartbeatState(self._data.replicas.position, self._metadata.snapshot)

    def unfit(self) -> tuple[UnfitReplica, ...]:
        """Returns this broker's replicas that the cluster should not count on, with reasons."""
        return self._data.unfit()

    def lost(self) -> tuple[LostReplica, ...]:
        """Returns this broker's replicas whose logs are lost."""
        return self._data.lost()

    async def mark_time(self) -> int:
        """Raises the stamp (a counter) in this directory's identity, durably, and returns it."""
        await self._log_writer.perform(self._identity.count_stamp)
        return self._identity.given.stamp

    async def mark_old(self) -> None:
        """Stores durably that this directory is an old copy."""
        await self._log_writer.perform(partial(self._identity.change, is_old=True))

    def report_applied(self, report: MetadataApplied) -> None:
        """Notifies the controller how much of the metadata this broker has applied; the message may get lost."""
        self._note(report)

    def report_silence(self, own_epoch: int, node_id: int) -> None:
        """Reports a silent broker to the controller, unless it is fenced already."""
        silent = self._metadata.image.brokers.get(NodeId(node_id))
        if silent is not None and not silent.is_fenced:
            self._note(ReportSilence(self._node_id, own_epoch, node_id, silent.epoch))

    def report_silences(self, own_epoch: int) -> None:
        """Does as `Member` says."""
        for node_id in self._peers.silent:
            self.report_silence(own_epoch, node_id)

    def _note(self, report: MetadataApplied | ReportSilence) -> None:
        """Sends a notification to the controller, if it is known; it may get lost."""
        leader = self._channel.leader
        if leader == self._node_id:
            self._controller.noted(report)
        elif leader is not None:
            self._peers.notify(leader, report)
