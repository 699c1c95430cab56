"""Any broker answers any request: who of the brokers does, for each partition.

`Routing` is what a broker makes once, and all that it has to know of forwarding:

- its `partition(...)` asks `Routing.partition`, and gets a handle that asks here what is led here, and else forwards;
- its peer node is told of `FORWARDING_MESSAGES`, and gives requests of these types to `Routing.handle`;
- whenever its image has changed, or it has opened or closed a partition, it calls `Routing.on_metadata_applied`.

Clients that know the metadata ask leaders directly, and cost no hop.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tidelog.broker.partitions.led_partition import LedPartition
from tidelog.broker.partitions.partition_handle import PartitionHandle
from tidelog.broker.routing.forwarding import ForwardedRequests
from tidelog.broker.routing.forwarding_messages import Addressed
from tidelog.broker.routing.leader_calls import LeaderCalls, Target, no_leader
from tidelog.broker.routing.leader_lookup import Host, LeaderLookup
from tidelog.broker.routing.led_here import LedHere
from tidelog.broker.routing.peer_partition import Peers
from tidelog.broker.routing.remote_partition import RemotePartition
from tidelog.config.schema import TopicConfig
from tidelog.model.cluster import NO_LEADER, Topic
from tidelog.model.errors import NotLeader
from tidelog.model.ids import PartitionId, TopicId
from tidelog.transport.peer import Answer

CONFIGS_MAX: Final = 10_000
"""Topics whose settings are kept worked out."""


class Routing:
    """Leads requests about partitions to whoever leads them. `peers` is the broker's `PeerNode`.

    `host` is the broker itself; it may still be starting, since nothing is asked of it here.
    """

    def __init__(self, host: Host, peers: Peers) -> None:
        self._lookup = LeaderLookup(host)
        self.calls = LeaderCalls(self._lookup, peers)
        """The calls that this broker makes to leaders for its clients."""
        self._requests = ForwardedRequests(self._lookup, host.purgatory)
        self._configs: dict[TopicId, tuple[object, TopicConfig]] = {}

    def partition(self, topic: str, partition: int) -> PartitionHandle:
        """Returns a partition, here or elsewhere; one whose log is on its way open here is waited for, like one
        elsewhere. Raises `UnknownTopic`, `UnknownPartition`; `LeaderNotAvailable` if nobody leads it now, or this
        broker should and could not open it."""
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
        """Returns a partition that this broker leads, for clients that find the leaders themselves: nothing is
        forwarded. Raises `UnknownTopic`, `UnknownPartition`, `NotLeader` if another broker leads it; and
        `LeaderNotAvailable` if nobody does, or this broker has not opened it yet."""
        described, info = self._lookup.find(topic, partition)
        partition_id = PartitionId(described.topic_id, partition)
        if info.leader == self._lookup.node_id:
            return self._lookup.opened(topic, partition_id)
        if info.leader == NO_LEADER:
            raise no_leader(Target(topic, described.topic_id, partition))
        raise NotLeader(f"broker {info.leader} leads partition {topic}-{partition}", info.leader_epoch)

    def on_metadata_applied(self) -> None:
        """Has requests look again that wait for a change of the image, or of what is open here."""
        self._lookup.on_metadata_applied()

    async def led(self, addressed: Addressed, deadline_s: float) -> LedPartition:
        """Returns the partition that a forwarded request names, as `ForwardedRequests.led` does."""
        return await self._requests.led(addressed, deadline_s)

    async def handle(self, message: msgspec.Struct, payload: memoryview) -> Answer:
        """Answers another broker's request, one of `FORWARDING_MESSAGES`. Raises the error to be told."""
        return await self._requests.handle(message, payload)

    def _config(self, topic: Topic) -> TopicConfig:
        """Returns the settings of a topic, worked out once for each change of its overrides."""
        cached = self._configs.get(topic.topic_id)
        if cached is None or cached[0] is not topic.configs:
            if len(self._configs) >= CONFIGS_MAX:
                self._configs.clear()
            cached = self._configs[topic.topic_id] = (topic.configs, self._lookup.config(topic.name))
        return cached[1]
