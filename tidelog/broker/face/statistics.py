"""Counters and measurements of a broker, for listeners that show them. Read only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.broker.controller.active import ActiveController
from tidelog.broker.groups.facade import Groups
from tidelog.broker.groups.lags import GroupLags
from tidelog.broker.membership.controller_channel import ControllerChannel
from tidelog.broker.partitions.led_partition import LedPartition
from tidelog.broker.replicas.data_plane import DataPlane, WaitingPartition
from tidelog.broker.runtime.cluster_time import ClusterTime
from tidelog.broker.runtime.histogram import BUCKETS_S, Histogram
from tidelog.broker.runtime.stages import Stages
from tidelog.broker.runtime.stats import Stats
from tidelog.broker.runtime.traffic import Traffic
from tidelog.model.ids import PartitionId
from tidelog.transport.peer import PeerNode

__all__ = ["BUCKETS_S", "Histogram", "Stages", "Statistics", "Traffic"]


@dataclass(eq=False)
class Statistics:
    """The counts and measurements of one broker."""

    controller: ActiveController
    """The controller on this broker, active or not."""
    channel: ControllerChannel
    """The channel to the active controller, with the count of its changes."""
    counts: Stats
    _data: DataPlane
    peers: PeerNode
    """The peer transport, with counts of the messages to other brokers."""
    _groups: Groups
    group_lags: GroupLags
    """Lags of the consumer groups that this broker coordinates."""
    time: ClusterTime
    """The broker's clock, with its offset from the other brokers' clocks."""
    fsync_rounds: Histogram

    @property
    def led(self) -> Mapping[PartitionId, LedPartition]:
        """The partitions that this broker leads and whose logs are open."""
        return self._data.replicas.partitions

    @property
    def opening(self) -> int:
        """Number of replicas on this broker whose logs are not open yet, led or not."""
        return self._data.opening

    @property
    def damaged_ranges(self) -> int:
        """Number of damaged offset ranges on this broker's disk that are not repaired yet."""
        return self._data.damaged_ranges

    @property
    def waiting(self) -> Mapping[tuple[str, int], WaitingPartition]:
        """The partitions with damaged ranges on this broker that wait for repair, by topic name and partition number,
        with the number and age of the ranges.
        """
        return self._data.waiting()

    @property
    def scrubbed_ago_s(self) -> float:
        """Seconds since the least recently scrubbed log of this broker was verified."""
        return self._data.scrubber.oldest_s()

    @property
    def group_coordinators(self) -> int:
        """Number of partitions of `__consumer_offsets` that this broker coordinates."""
        return len(self._groups.loaded)
