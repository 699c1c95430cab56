"""Reports of a broker to the controller: the metadata position it has applied, which of its replicas not to count on,
and brokers that it cannot reach.

Heartbeats carry the first; the others are sent as commands, or as notifications that may get lost, since the next one
says the same.
"""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Reports:
    """The reports of one broker. Implements `registration.Member`, through which the registration has them sent."""

    node_id: NodeId
    data: DataPlane
    metadata: ClusterMetadata
    identity: DirectoryIdentityStore
    log_writer: LogWriter
    channel: ControllerChannel
    controller: ActiveController
    peers: PeerNode

    def heartbeat_state(self) -> HeartbeatState:
        """Returns what the next heartbeat reports: the applied metadata position, and position and root hash of the
        newest metadata snapshot."""
        return HeartbeatState(self.data.replicas.position, self.metadata.snapshot)

    def unfit(self) -> tuple[UnfitReplica, ...]:
        """Returns this broker's replicas that the cluster should not count on, with reasons."""
        return self.data.replicas.unfit()

    def lost(self) -> tuple[LostReplica, ...]:
        """Returns this broker's replicas whose logs are lost."""
        return self.data.replicas.lost()

    async def mark_time(self) -> int:
        """Raises the stamp (a counter) in this directory's identity, durably, and returns it."""
        await self.log_writer.perform(self.identity.count_stamp)
        return self.identity.given.stamp

    async def mark_old(self) -> None:
        """Stores durably that this directory is an old copy."""
        await self.log_writer.perform(partial(self.identity.change, is_old=True))

    def report_applied(self, report: MetadataApplied) -> None:
        """Notifies the controller how much of the metadata this broker has applied; the message may get lost."""
        self._note(report)

    def report_silence(self, own_epoch: int, node_id: int) -> None:
        """Reports a silent broker to the controller, unless it is fenced already."""
        silent = self.metadata.image.brokers.get(NodeId(node_id))
        if silent is not None and not silent.is_fenced:
            self._note(ReportSilence(self.node_id, own_epoch, node_id, silent.epoch))

    def report_silences(self, own_epoch: int) -> None:
        """Reports all brokers that do not answer this one to the controller. The messages may be lost."""
        for node_id in self.peers.silent:
            self.report_silence(own_epoch, node_id)

    def _note(self, report: MetadataApplied | ReportSilence) -> None:
        """Sends a notification to the controller, if it is known; it may get lost."""
        leader = self.channel.leader
        if leader == self.node_id:
            self.controller.noted(report)
        elif leader is not None:
            self.peers.notify(leader, report)
