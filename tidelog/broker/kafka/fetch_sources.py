"""The replica that a partition of a Fetch is read from: the leader, if it is this broker, or a follower in the client's
rack (KIP-392)."""

from __future__ import annotations

from tidelog.broker.face.partitions import LedPartition, LocalCopy
from tidelog.broker.kafka.codes import epoch_code
from tidelog.broker.kafka.endpoints import hint_of
from tidelog.broker.kafka.fetch_codec import NO_REPLICA, FetchEntry
from tidelog.broker.kafka.listener_parts import Parts
from tidelog.model.access import Caller, Operation, Resource
from tidelog.model.cluster import PartitionInfo
from tidelog.model.errors import NotLeader
from tidelog.model.ids import PartitionId
from tidelog.model.kafka_codes import KafkaCode


class FetchSources:
    """Finds the replicas for one Fetch. `rack` is the client's; empty if it names none."""

    def __init__(self, parts: Parts, caller: Caller, rack: str) -> None:
        self._parts = parts
        self._caller = caller
        self._rack = rack

    def of(self, entry: FetchEntry) -> LedPartition | LocalCopy | None:
        """Returns the replica to read. Returns None if the entry is answered without reading, and sets its error (a
        wrong leader epoch, an unknown topic id) or its preferred read replica. Raises `NotAuthorized`,
        `UnknownTopic`, `UnknownPartition`, `NotLeader` or `LeaderNotAvailable`."""
        if not entry.topic:
            entry.error = KafkaCode.UNKNOWN_TOPIC_ID
            return None
        if not self._parts.admission.is_open:
            self._parts.refuse_unauthorized(self._caller, Operation.READ, Resource("Topic", entry.topic))
        try:
            led = self._parts.face.partitions.led_here(entry.topic, entry.partition)
        except NotLeader:
            copy = self._copy(entry)
            if copy is None:
                entry.hint = hint_of(self._parts.cluster.image, self._info(entry))
                raise
            entry.error = epoch_code(entry.leader_epoch, copy.replica.leader_epoch)
            return None if entry.error else copy
        entry.error = epoch_code(entry.leader_epoch, led.leader_epoch)
        return None if entry.error or (self._rack and self._is_nearer(entry, led)) else led

    def is_elsewhere(self, entry: FetchEntry) -> bool:
        """Returns True if another broker leads the partition."""
        return self._info(entry).leader != self._parts.cluster.node_id

    def _info(self, entry: FetchEntry) -> PartitionInfo:
        return self._parts.cluster.topic(entry.topic).partitions[entry.partition]

    def _copy(self, entry: FetchEntry) -> LocalCopy | None:
        """Returns this broker's follower replica if the client is in this broker's rack; otherwise None."""
        rack = self._parts.cluster.config.broker_rack
        if rack is None or self._rack != rack:
            return None
        topic = self._parts.cluster.topic(entry.topic)
        return self._parts.partitions.local_copy(PartitionId(topic.topic_id, entry.partition))

    def _is_nearer(self, entry: FetchEntry, led: LedPartition) -> bool:
        """Sets the preferred read replica of an entry: a live in-sync replica in the client's rack, if the leader is in
        another rack. Returns False if there is none."""
        image, leader_rack = self._parts.cluster.image, self._parts.cluster.config.broker_rack
        if leader_rack == self._rack:
            return False
        brokers = [image.brokers[node] for node in self._info(entry).isr if image.is_live(node)]
        entry.preferred = next((broker.node_id for broker in brokers if broker.rack == self._rack), NO_REPLICA)
        entry.high_watermark, entry.log_start_offset = led.high_watermark, led.log_start_offset
        return entry.preferred != NO_REPLICA
