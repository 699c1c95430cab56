"""Requests for any partition at any broker: each is executed by the partition's leader.

`Routing` is made once per broker and is all that the broker needs to know of forwarding:

- `Routing.partition` returns a handle that reads and writes locally if this broker leads, and else forwards;
- the peer transport registers `FORWARDING_MESSAGES` and passes messages of these types to `Routing.handle`;
- the broker calls `Routing.on_metadata_applied` after every metadata change and when it opened or closed a partition.

Clients that know the metadata ask leaders directly, without forwarding.
"""

from __future__ import annotations

from typing import Final

from tidelog.broker.partitions.led_partition import LedPartition
from tidelog.broker.partitions.partition_handle import PartitionHandle
from tidelog.broker.routing.forwarding import ForwardedRequests
from tidelog.broker.routing.leader_calls import LeaderCalls, Target, no_leader
from tidelog.broker.routing.leader_lookup import Host, LeaderLookup
from tidelog.broker.routing.led_here import LedHere
from tidelog.broker.routing.peer_partition import Peers
from tidelog.broker.routing.remote_partition import RemotePartition
from tidelog.config.schema import TopicConfig
from tidelog.model.cluster import NO_LEADER, ClusterImage, Topic
from tidelog.model.errors import NotLeader
from tidelog.model.ids import PartitionId, TopicId

CONFIGS_MAX: Final = 10_000
"""Maximum number of topics whose computed settings are cached."""


class Routing:
    """Routes requests about partitions to their leaders. `peers` is the broker's `PeerNode` (its connections to other
    brokers).

    `host` is the broker itself; it may still be starting, since the constructor does not use it.
    """

    def __init__(self, host: Host, peers: Peers) -> None:
        self._host = host
        self._lookup = LeaderLookup(host)
        self.calls = LeaderCalls(self._lookup, peers)
        """The calls to partition leaders, with retries."""
        self._requests = ForwardedRequests(self._lookup, host.purgatory)
        self.on_metadata_applied = self._lookup.on_metadata_applied
        """Wakes requests that wait for a change of the metadata image, or for a log to be opened here."""
        self.wait_for_metadata = self._lookup.wait_until
        """Waits until a condition holds, checked after each change of the metadata image, or until a deadline (loop
        time)."""
        self.led = self._requests.led
        """Returns the partition, led by this broker, that a forwarded request names. Raises `NotLeader`;
        `LeaderNotAvailable` if the log is not open; `UnknownTopic` or `UnknownPartition`.
        """
        self.handle = self._requests.handle
        """Answers another broker's request, one of `FORWARDING_MESSAGES`. Raises the error that goes back to that
        broker.
        """
        self._configs: dict[TopicId, tuple[object, TopicConfig]] = {}
        self._led: dict[tuple[str, int], LedPartition] = {}
        """The partitions found by `led_here` in the metadata image `_led_image`."""
        self._led_image: ClusterImage | None = None

    def partition(self, topic: str, partition: int) -> PartitionHandle:
        """Returns a handle for a partition, wherever its leader is. Requests of the handle wait for a log that this
        broker is opening. Raises `UnknownTopic`, `UnknownPartition`; `LeaderNotAvailable` if there is no leader, or
        this broker leads and could not open the log.
        """
        described, info = self._lookup.find(topic, partition)
        target = Target(topic, described.topic_id, partition)
        partition_id = PartitionId(described.topic_id, partition)
        is_led_here = info.leader == self._lookup.node_id and not self._lookup.is_opening(*partition_id)
        if is_led_here and (self._lookup.is_in_force or self._lookup.is_open(partition_id)):
            led = self._lookup.opened(topic, partition_id)
            return LedHere(self.calls, target, led.config, led)
        if info.leader == NO_LEADER:
            raise no_leader(target)
        return RemotePartition(self.calls, target, self._config(described))

    def led_here(self, topic: str, partition: int) -> LedPartition:
        """Returns a partition that this broker leads, for clients that find leaders themselves (Kafka's protocol):
        nothing is forwarded. Raises `UnknownTopic`, `UnknownPartition`, `NotLeader` if another broker leads it, and
        `LeaderNotAvailable` if there is no leader or the log is not open yet.
        """
        image = self._host.image
        if image is not self._led_image:
            self._led.clear()
            self._led_image = image
        led = self._led.get((topic, partition))
        if led is None or not led.is_readable:
            led = self._led[topic, partition] = self._find_led_here(topic, partition)
        return led

    def _find_led_here(self, topic: str, partition: int) -> LedPartition:
        described, info = self._lookup.find(topic, partition)
        partition_id = PartitionId(described.topic_id, partition)
        if info.leader == self._lookup.node_id:
            return self._lookup.opened(topic, partition_id)
        if info.leader == NO_LEADER:
            raise no_leader(Target(topic, described.topic_id, partition))
        raise NotLeader(f"broker {info.leader} leads partition {topic}-{partition}", info.leader_epoch)

    def _config(self, topic: Topic) -> TopicConfig:
        """Returns the settings in force for a topic, computed once for each change of its overrides."""
        cached = self._configs.get(topic.topic_id)
        if cached is None or cached[0] is not topic.configs:
            if len(self._configs) >= CONFIGS_MAX:
                self._configs.clear()
            cached = self._configs[topic.topic_id] = (topic.configs, self._lookup.config(topic.name))
        return cached[1]
