"""The throttle of moving replicas on one broker: what it sends to them, and what it asks for on their behalf.

A replica is *catching up* while its partition's move is adding it and it is not in sync, or does not vote yet. Only
those are held to the rate, as with Kafka's `leader.replication.throttled.rate` and
`follower.replication.throttled.rate`: to slow down a replica that is in sync would slow down producers, and to slow
down one that lags would keep a partition from being whole. Which those are follows from the metadata, where Kafka has
lists of replicas to be set and taken off again.

The rate is that of the moves, where they were begun with one, else the broker's own settings. Both sides count for
themselves: a broker that sends to many and one that receives from many are held to it alike.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.broker.runtime.stats import Stats
from tidelog.config.schema import BrokerConfig
from tidelog.config.values import INT64_MAX
from tidelog.controller.protocols import rules_of
from tidelog.model.cluster import NO_THROTTLE, ClusterImage
from tidelog.model.ids import NodeId, PartitionId
from tidelog.model.ports import Clock
from tidelog.replication.token_bucket import TokenBucket


class Direction:
    """A rate limit in one direction, sending or receiving, in bytes per second of real time."""

    def __init__(self, clock: Clock) -> None:
        self._bucket = TokenBucket()
        self._clock = clock

    @property
    def rate(self) -> float | None:
        """Bytes per second; None if there is no limit."""
        return self._bucket.rate

    def set_rate(self, rate: int | None) -> None:
        """Limits the rate to so many bytes per second from now on; None lifts the limit."""
        self._bucket.set_rate(rate, self._clock.monotonic_s())

    def allowance(self) -> int:
        """How many bytes of replicas that catch up may be copied now."""
        return self._bucket.allowance(self._clock.monotonic_s())

    def spend(self, count: int) -> None:
        """Takes so many bytes, which were copied, from the allowance."""
        self._bucket.spend(count, self._clock.monotonic_s())

    def ready_in_s(self) -> float:
        """Returns in how many seconds there is an allowance again."""
        return self._bucket.ready_in_s(self._clock.monotonic_s())


class Throttle:
    """The throttle of one broker's moving replicas. It is told each image."""

    def __init__(self, node_id: int, config: BrokerConfig, clock: Clock, stats: Stats) -> None:
        self.sending = Direction(clock)
        self.receiving = Direction(clock)
        self.changed: Callable[[], None] = _nobody
        """Called when other replicas are held to the rates than before, or to other rates."""
        self._node_id = NodeId(node_id)
        self._config = config
        self._stats = stats
        self._catching_up: dict[tuple[PartitionId, int], None] = {}

    @property
    def is_active(self) -> bool:
        """True if some replica catches up here, or from here."""
        return bool(self._catching_up)

    def is_held(self, partition_id: PartitionId, replica: int) -> bool:
        """Returns True if this replica's copying is held to the rate, on its leader and on its own broker."""
        return bool(self._catching_up) and (partition_id, replica) in self._catching_up

    def sent(self, count: int) -> None:
        """Counts bytes that went to a replica that catches up."""
        self.sending.spend(count)
        self._stats.moves_sent_bytes += count

    def received(self, count: int) -> None:
        """Counts bytes that came for a replica that catches up here."""
        self.receiving.spend(count)
        self._stats.moves_received_bytes += count

    def follow(self, image: ClusterImage) -> None:
        """Takes rates, and the replicas that are held to them, from the newest image."""
        config, throttle = self._config, image.moves_throttle
        sending = _rate(throttle, config.leader_replication_throttled_rate)
        receiving = _rate(throttle, config.follower_replication_throttled_rate)
        catching_up = self._found(image)
        if (sending, receiving, catching_up) == (self.sending.rate, self.receiving.rate, self._catching_up):
            return
        self.sending.set_rate(sending)
        self.receiving.set_rate(receiving)
        self._catching_up = catching_up
        self.changed()

    def _found(self, image: ClusterImage) -> dict[tuple[PartitionId, int], None]:
        """Returns the replicas that catch up from this broker, or on it."""
        return {
            (PartitionId(topic.topic_id, info.partition), int(node)): None
            for topic in image.topics.values()
            for info in topic.partitions
            if info.adding
            for node in info.adding
            if node not in info.isr and self._node_id in (node, *rules_of(topic).sources(info))
        }


def _rate(throttle: int, configured: int) -> int | None:
    """Returns the rate in force, in bytes per second; None if there is no limit."""
    if throttle != NO_THROTTLE:
        return throttle
    return None if configured == INT64_MAX else configured


def _nobody() -> None:
    """Does nothing: no listener for changes is set yet."""
