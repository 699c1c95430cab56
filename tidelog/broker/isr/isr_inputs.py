"""The inputs of the in-sync replication state machines, made from metadata, settings and logs."""

from __future__ import annotations

from tidelog.config.schema import BrokerConfig, TopicConfig
from tidelog.model.cluster import ClusterImage, PartitionInfo
from tidelog.replication.isr.events import IsrChanged, IsrSettings, LogState
from tidelog.storage.partition_log import PartitionLog

TICKS_PER_STALL = 5


def isr_settings(broker: BrokerConfig) -> IsrSettings:
    """Returns the settings of a partition leader, from the broker's configuration."""
    stall_ms_max = broker.replica_stall_ms_max
    tick_ms = max(stall_ms_max // TICKS_PER_STALL, 1)
    return IsrSettings(lag_ms_max=broker.replica_lag_time_max_ms, stall_ms_max=stall_ms_max, tick_ms=tick_ms)


def isr_changed(config: TopicConfig, info: PartitionInfo, image: ClusterImage) -> IsrChanged:
    """Returns a partition's state from a metadata image, with the epochs of the live brokers. Its minimum of in-sync
    replicas is at most the number of replicas to wait for, and its minimum of racks at most the number of their racks;
    so a reassignment may change both."""
    # A minimum that is never met would stop every commit.
    least = min(config.min_insync_replicas_for(info.replication_factor), info.replication_factor)
    is_fsynced = config.ack_durability == "fsynced"
    # Only the live ones: a fetch of a fenced broker, or of an earlier process, must not let it into the set.
    epochs = {int(broker.node_id): broker.epoch for broker in image.live_brokers}
    # Brokers that name no rack stand in one together: that they are apart is not known.
    racks = {int(node): image.brokers[node].rack or "" for node in info.replicas if node in image.brokers}
    least_racks = min(config.min_insync_racks, len({*racks.values()}))
    return IsrChanged(info.replicas, info.isr, info.partition_epoch, epochs, least, is_fsynced, least_racks, racks)


def log_state(log: PartitionLog) -> LogState:
    """Returns a log's offsets and leader epochs, with which a replica's state machine begins."""
    return LogState(log.log_start_offset, log.durable_offset, log.log_end_offset, tuple(log.lineage))
