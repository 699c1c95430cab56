"""What the cores of primary-backup replication are told, from metadata, settings and logs."""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.config.schema import BrokerConfig, TopicConfig
from tidelog.model.cluster import PartitionInfo
from tidelog.replication.isr.events import IsrChanged, IsrSettings, LogState, MinIsrChanged
from tidelog.storage.partition_log import PartitionLog


def isr_settings(broker: BrokerConfig, topic: TopicConfig, info: PartitionInfo) -> IsrSettings:
    """What a leader goes by."""
    return IsrSettings(
        min_isr=_min_isr(topic, info),
        lag_ms_max=broker.replica_lag_time_max_ms,
        is_fsynced=topic.ack_durability == "fsynced",
    )


def news_of(config: TopicConfig, info: PartitionInfo, epochs: Mapping[int, int]) -> tuple[MinIsrChanged, IsrChanged]:
    """What a leader is told of an image within its epoch. The minimum of in-sync replicas first, and always: without
    any change of settings, a move that is complete raises it with the number of replicas."""
    return MinIsrChanged(_min_isr(config, info)), isr_changed(info, epochs)


def isr_changed(info: PartitionInfo, epochs: Mapping[int, int]) -> IsrChanged:
    """The partition's entry, with the epochs of the live brokers."""
    return IsrChanged(info.replicas, info.isr, info.partition_epoch, epochs)


def log_state(log: PartitionLog) -> LogState:
    """What a core begins with."""
    return LogState(log.log_start_offset, log.durable_offset, log.log_end_offset, tuple(log.lineage))


def _min_isr(config: TopicConfig, info: PartitionInfo) -> int:
    """Never more than there are replicas to wait for."""
    return min(config.min_insync_replicas_for(info.replication_factor), info.replication_factor)
