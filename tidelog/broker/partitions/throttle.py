"""The throttle of replica reassignments on one broker, for the bytes it sends to new replicas and fetches for its own.

A replica is *catching up* while a reassignment is adding it and it is not in sync, or does not vote yet. Only these
replicas are limited, as with Kafka's `leader.replication.throttled.rate` and `follower.replication.throttled.rate`: a
limit on an in-sync replica would slow down producers, and one on a replica that lags would keep a partition
under-replicated. Which replicas are limited follows from the metadata, where Kafka has lists of replicas to be set and
removed again.

The rate is that of the reassignments, if they were started with one, else the broker's own setting. Senders and
receivers are limited separately: both a broker that sends to many and one that receives from many.
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
    """A rate limit for one direction, sending or receiving, in bytes per second of real time."""

    def __init__(self, clock: Clock) -> None:
        self._bucket = TokenBucket()
        self._clock = clock

    @property
    def rate(self) -> float | None:
        """Bytes per second; None if there is no limit."""
        return self._bucket.rate

    def set_rate(self, rate: int | None) -> None:
        """Limits the rate to `rate` bytes per second from now on; None lifts the limit."""
        self._bucket.set_rate(rate, self._clock.monotonic_s())

    def allowance(self) -> int:
        """Returns how many bytes of replicas that catch up may be copied now."""
        return self._bucket.allowance(self._clock.monotonic_s())

    def spend(self, count: int) -> None:
        """Subtracts copied bytes from the allowance."""
        self._bucket.spend(count, self._clock.monotonic_s())

    def ready_in_s(self) -> float:
        """Returns the seconds until there is an allowance again."""
        return self._bucket.ready_in_s(self._clock.monotonic_s())


class Throttle:
    """The throttle of one broker's reassigned replicas. `follow` has to be called with each metadata image."""

    def __init__(self, node_id: int, config: BrokerConfig, clock: Clock, stats: Stats) -> None:
        self.sending = Direction(clock)
        self.receiving = Direction(clock)
        self.changed: Callable[[], None] = lambda: None
        """Listener that is called when the limited replicas or the rates change."""
        self._node_id = NodeId(node_id)
        self._config = config
        self._stats = stats
        self._catching_up: dict[tuple[PartitionId, int], None] = {}

    @property
    def is_active(self) -> bool:
        """True if some replica is catching up on this broker, or from it."""
        return bool(self._catching_up)

    def is_held(self, partition_id: PartitionId, replica: int) -> bool:
        """Returns True if the copying of this replica is limited, on its leader and on its own broker."""
        return bool(self._catching_up) and (partition_id, replica) in self._catching_up

    def sent(self, count: int) -> None:
        """Counts bytes sent to a replica that catches up."""
        self.sending.spend(count)
        self._stats.moves_sent_bytes += count

    def received(self, count: int) -> None:
        """Counts bytes received for a replica that catches up on this broker."""
        self.receiving.spend(count)
        self._stats.moves_received_bytes += count

    def follow(self, image: ClusterImage) -> None:
        """Takes the rates, and the replicas that are limited, from a metadata image."""
        config, throttle = self._config, image.moves_throttle
        sending = _rate(throttle, config.leader_replication_throttled_rate)
        receiving = _rate(throttle, config.follower_replication_throttled_rate)
        catching_up = self._catching_up_in(image)
        if (sending, receiving, catching_up) == (self.sending.rate, self.receiving.rate, self._catching_up):
            return
        self.sending.set_rate(sending)
        self.receiving.set_rate(receiving)
        self._catching_up = catching_up
        self.changed()

    def _catching_up_in(self, image: ClusterImage) -> dict[tuple[PartitionId, int], None]:
        """Returns the replicas, as (partition, node id), that are catching up from this broker or on it."""
        return {
            (PartitionId(topic.topic_id, info.partition), int(node)): None
            for topic in image.topics.values()
            for info in topic.partitions
            if info.adding
            for node in info.adding
            if node not in info.isr and self._node_id in (node, *rules_of(topic).sources(info))
        }


def _rate(throttle: int, configured: int) -> int | None:
    """Returns the rate in force, in bytes per second: that of the reassignments (`throttle`), else the configured one;
    None for no limit."""
    if throttle != NO_THROTTLE:
        return throttle
    return None if configured == INT64_MAX else configured
