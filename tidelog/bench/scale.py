"""Benchmark workload `scale`: the controller's work in a large cluster, without the cluster.

The controller's cores (`tidelog.controller`) get the commands of many brokers, on one core of this machine and without
network or disk: brokers register and send heartbeats, topics are created, one broker is fenced and its partitions get
other leaders, a snapshot is written and read, and a new controller starts. Measured are the CPU time of each step, the
bytes of each metadata record that all brokers receive, and the memory that each broker needs for the metadata.
`docs/scale.md` discusses the results.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Final, TypeVar

from tidelog.bench.costs import resident_bytes
from tidelog.bench.result import Progress, Result
from tidelog.config.schema import BrokerConfig
from tidelog.controller.apply import apply, with_voters
from tidelog.controller.commands import (
    BrokerHeartbeat,
    Command,
    CreateTopic,
    FenceBroker,
    LeadCluster,
    NewTopic,
    RegisterBroker,
)
from tidelog.controller.decide import decide
from tidelog.controller.records import encode_record
from tidelog.controller.sessions import Sessions
from tidelog.controller.snapshot import decode_image, encode_image
from tidelog.controller.upkeep import fresh_stamps, next_snapshot, overdue, preferred_election
from tidelog.model.cluster import HTTP, ClusterImage, Endpoint, Voter
from tidelog.model.ids import NodeId
from tidelog.model.levels import LEVEL_MAX, SPOKEN_LEVELS

CONTROLLER: Final = 1
VOTERS: Final = 3
RACKS: Final = 3
TOPIC_PARTITIONS: Final = 100
REPLICAS: Final = 3
HEARTBEAT_ROUNDS: Final = 10
TICKS: Final = 5
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleOptions:
    """Options of the workload `scale`: numbers of brokers and partitions. Topics have 100 partitions each, with three
    replicas."""

    brokers: int = 100
    partitions: int = 100_000


class _Cluster:
    """A metadata image, and the commands that change it."""

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config
        self.image = ClusterImage("")
        voters = tuple(Voter(node, node, f"disk-{node}", f"10.0.0.{node}", 9192) for node in range(1, VOTERS + 1))
        self.image = with_voters(self.image, voters, VOTERS + 1)
        self.do(LeadCluster(CONTROLLER, 1 << 16, "scale", LEVEL_MAX))

    def do(self, command: Command) -> int:
        """Decides a command and applies its records; returns their bytes."""
        size = 0
        for record in decide(self.image, command, self.config).records:
            size += len(encode_record(record))
            self.image = apply(self.image, record, self.image.position)
        return size

    def heartbeat(self, node: int) -> BrokerHeartbeat:
        return BrokerHeartbeat(node, self.image.brokers[NodeId(node)].epoch, self.image.position)


async def measure_scale(options: ScaleOptions, progress: Progress) -> Result:
    """Runs the workload `scale` in a thread, since it only computes."""
    return Result("scale", asdict(options), await asyncio.to_thread(_measured, options, progress))


def _measured(options: ScaleOptions, progress: Progress) -> dict[str, float]:
    cluster = _Cluster(_with_room(options))
    register_s, _ = _timed(lambda: _join_all(cluster, options.brokers))
    before = resident_bytes(os.getpid())
    topics = -(-options.partitions // TOPIC_PARTITIONS)
    create_s, create_bytes = _timed(lambda: _create_topics(cluster, topics, progress))
    figures = {
        "partitions": float(topics * TOPIC_PARTITIONS),
        "register_ms_per_broker": 1_000 * register_s / options.brokers,
        "create_ms_per_topic": 1_000 * create_s / topics,
        "create_bytes_per_topic": create_bytes / topics,
        "image_resident_mb": (resident_bytes(os.getpid()) - before) / 1e6,
    }
    return figures | _steady(cluster, options) | _failing_over(cluster) | _beginning(cluster)


def _with_room(options: ScaleOptions) -> BrokerConfig:
    """Returns the default settings, with a higher limit of partitions per broker if the options need it."""
    usual = BrokerConfig().broker_partitions_max
    return BrokerConfig(broker_partitions_max=max(usual, 2 * REPLICAS * options.partitions // options.brokers))


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    begun_s = time.thread_time()
    result = work()
    return time.thread_time() - begun_s, result


def _join_all(cluster: _Cluster, brokers: int) -> None:
    for node in range(1, brokers + 1):
        host = f"10.0.{node // 256}.{node % 256}"
        listeners = {HTTP: Endpoint(host, 8082)}
        rack = f"rack{node % RACKS}"
        command = RegisterBroker(node, "process", f"disk-{node}", listeners, host, 9192, rack, levels=SPOKEN_LEVELS)
        cluster.do(command)
        cluster.do(cluster.heartbeat(node))


def _create_topics(cluster: _Cluster, topics: int, progress: Progress) -> int:
    size = 0
    for number in range(topics):
        command = CreateTopic(NewTopic(f"topic-{number}", TOPIC_PARTITIONS, REPLICAS), f"{number:032x}")
        size += cluster.do(command)
        progress(number + 1, topics)
    return size


def _steady(cluster: _Cluster, options: ScaleOptions) -> dict[str, float]:
    """Returns the cost of heartbeats and of the controller's ticks while nothing changes."""
    config, sessions = cluster.config, Sessions(cluster.config.broker_session_timeout_ms, cluster.config.lease_ms)
    sessions.begin(cluster.image, 0.0)

    def hear() -> None:
        for node in [*cluster.image.brokers] * HEARTBEAT_ROUNDS:
            heartbeat = cluster.heartbeat(node)
            assert not decide(cluster.image, heartbeat, config).records
            sessions.heard(node, heartbeat.broker_epoch, 0.0, position=heartbeat.position)

    def tick() -> None:
        for _ in range(TICKS):
            sessions.follow(cluster.image, 0.0)
            assert not overdue(cluster.image, sessions, 0.0)
            fresh_stamps(cluster.image, sessions)
            next_snapshot(cluster.image, sessions, every_records=config.metadata_log_snapshot_records)

    heard_s, _ = _timed(hear)
    tick_s, _ = _timed(tick)
    balance_s, _ = _timed(lambda: preferred_election(cluster.image, config))
    rounds_per_s = 1_000 / config.heartbeat_ms
    heartbeat_s, tick_s = heard_s / HEARTBEAT_ROUNDS / options.brokers, tick_s / TICKS
    return {
        "heartbeat_us": 1e6 * heartbeat_s,
        "tick_ms": 1_000 * tick_s,
        "balance_ms": 1_000 * balance_s,
        "steady_cpu_ms_per_s": 1_000 * rounds_per_s * (heartbeat_s * options.brokers + 4 * tick_s),
    }


def _failing_over(cluster: _Cluster) -> dict[str, float]:
    """Returns the cost of fencing a broker: deciding once, and applying the records on every broker."""
    victim = max(cluster.image.brokers)
    broker = cluster.image.brokers[victim]
    led = sum(info.leader == victim for topic in cluster.image.topics.values() for info in topic.partitions)
    held = sum(victim in info.replicas for topic in cluster.image.topics.values() for info in topic.partitions)
    fence = FenceBroker(int(victim), broker.epoch)
    decide_s, decision = _timed(lambda: decide(cluster.image, fence, cluster.config))
    size = sum(len(encode_record(record)) for record in decision.records)

    def take() -> None:
        for record in decision.records:
            cluster.image = apply(cluster.image, record, cluster.image.position)

    apply_s, _ = _timed(take)
    return {
        "fenced_leaderships": led,
        "fenced_replicas": held,
        "fence_decide_ms": 1_000 * decide_s,
        "fence_apply_ms": 1_000 * apply_s,
        "fence_record_bytes": size,
    }


def _beginning(cluster: _Cluster) -> dict[str, float]:
    """Returns the cost of a snapshot, and of what a new controller does before it decides."""
    encode_s, body = _timed(lambda: encode_image(cluster.image))
    decode_s, _ = _timed(lambda: decode_image(body))
    sessions = Sessions(cluster.config.broker_session_timeout_ms, cluster.config.lease_ms)

    def begin() -> None:
        cluster.do(LeadCluster(CONTROLLER + 1, 2 << 16, "scale", LEVEL_MAX))
        sessions.begin(cluster.image, 0.0)

    begin_s, _ = _timed(begin)
    return {
        "snapshot_mb": len(body) / 1e6,
        "snapshot_encode_ms": 1_000 * encode_s,
        "snapshot_decode_ms": 1_000 * decode_s,
        "new_controller_ms": 1_000 * begin_s,
    }
