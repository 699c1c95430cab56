"""What the cores of primary-backup replication are told, from metadata, settings and logs."""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.config.schema import BrokerConfig, TopicConfig
from tidelog.model.cluster import PartitionInfo
from tidelog.replication.isr.events import IsrChanged, IsrSettings, LogState
from tidelog.storage.partition_log import PartitionLog


def isr_settings(broker: BrokerConfig) -> IsrSettings:
    """What a leader goes by."""
    return IsrSettings(lag_ms_max=broker.replica_lag_time_max_ms)


def isr_changed(config: TopicConfig, info: PartitionInfo, epochs: Mapping[int, int]) -> IsrChanged:
    """The partition as an image has it, with the epochs of the live brokers. Its minimum of in-sync replicas is never
    more than it has replicas to wait for: without any change of settings, a move may raise or lower it."""
    least = min(config.min_insync_replicas_for(info.replication_factor), info.replication_factor)
    is_fsynced = config.ack_durability == "fsynced"
    return IsrChanged(info.replicas, info.isr, info.partition_epoch, epochs, least, is_fsynced)


def log_state(log: PartitionLog) -> LogState:
    """What a core begins with."""
    return LogState(log.log_start_offset, log.durable_offset, log.log_end_offset, tuple(log.lineage))
