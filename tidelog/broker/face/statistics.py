"""Counters and measurements of a broker, for listeners that show them. Read only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from tidelog.broker.groups.facade import Groups
from tidelog.broker.groups.lags import GroupLags
from tidelog.broker.partitions.led_partition import LedPartition
from tidelog.broker.replicas.data_plane import DataPlane, WaitingPartition
from tidelog.broker.runtime.cluster_time import ClusterTime
from tidelog.broker.runtime.histogram import BUCKETS_S, Histogram
from tidelog.broker.runtime.stages import Stages
from tidelog.broker.runtime.stats import Stats
from tidelog.broker.runtime.traffic import Traffic
from tidelog.model.ids import NodeId, PartitionId
from tidelog.transport.peer import PeerNode

__all__ = ["BUCKETS_S", "ControllerStatistics", "Histogram", "Stages", "Statistics", "Traffic"]


class ControllerStatistics(Protocol):
    """A broker's knowledge of the cluster's controller."""

    @property
    def is_controller(self) -> bool:
        """True if this broker decides for the cluster."""
        ...

    @property
    def controller_changes(self) -> int:
        """The number of times that this broker has learned of another active controller."""
        ...

    def metadata_lags(self) -> dict[NodeId, int]:
        """Returns by how many records each live broker is behind; empty unless this broker is the active controller."""
        ...


class Statistics:
    """The counts and measurements of one broker."""

    def __init__(
        self,
        controller: ControllerStatistics,
        counts: Stats,
        data: DataPlane,
        peers: PeerNode,
        groups: Groups,
        group_lags: GroupLags,
        time: ClusterTime,
        fsync_rounds: Histogram,
    ) -> None:
        self.controller = controller
        self.counts = counts
        self.peers = peers
        """The other brokers, and what was said to them."""
        self.group_lags = group_lags
        """How far the groups that this broker coordinates are behind."""
        self.time = time
        """Holds this machine's clock against those of the others."""
        self.fsync_rounds = fsync_rounds
        self._data = data
        self._groups = groups

    @property
    def led(self) -> Mapping[PartitionId, LedPartition]:
        """The partitions that this broker leads and could open."""
        return self._data.replicas.partitions

    @property
    def opening(self) -> int:
        """Partitions whose logs this broker is to open, led or not, and has not yet."""
        return self._data.opening

    @property
    def damaged_ranges(self) -> int:
        """Ranges of offsets that are damaged on this broker's disk, and not repaired yet."""
        return self._data.damaged_ranges

    @property
    def waiting(self) -> Mapping[tuple[str, int], WaitingPartition]:
        """The partitions of which something is damaged here, by topic and number."""
        return self._data.waiting()

    @property
    def scrubbed_ago_s(self) -> float:
        """The age of the oldest scrub: for how long one of the logs has not been read through."""
        return self._data.scrubber.oldest_s()

    @property
    def group_coordinators(self) -> int:
        """Partitions of `__consumer_offsets` that this broker coordinates."""
        return len(self._groups.loaded)
