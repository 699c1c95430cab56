"""The settings, ports, disk and connections that every room of a broker uses. `Broker` creates them, once."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.broker.runtime.cluster_time import ClusterTime
from tidelog.broker.runtime.lease import Lease
from tidelog.broker.runtime.log_writer import LogWriter
from tidelog.broker.runtime.purgatory import Purgatory
from tidelog.broker.runtime.stats import Stats
from tidelog.config.schema import BrokerConfig
from tidelog.model.ids import NodeId
from tidelog.model.ports import Entropy
from tidelog.storage.log_manager import LogManager
from tidelog.transport.peer import PeerNode


@dataclass(frozen=True, slots=True)
class Resources:
    """Holds the settings, ports, disk and connections of one broker."""

    node_id: NodeId
    config: BrokerConfig
    clock: ClusterTime
    entropy: Entropy
    stats: Stats
    purgatory: Purgatory
    manager: LogManager
    log_writer: LogWriter
    lease: Lease
    peers: PeerNode
