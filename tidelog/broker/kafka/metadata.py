"""Metadata: the leaders of partitions, and the brokers' addresses for Kafka clients.

After a broker fails, all clients ask at once. So the encoding of a topic is cached until the topic changes, and that of
the brokers until the metadata changes. Brokers without a Kafka listener are left out: a partition led by one of them
has no leader for these clients, as has one whose leader has ended and is not replaced yet (`MissedLeaders`). Metadata
requests never create topics.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from tidelog.broker.face.admission import Admission
from tidelog.broker.face.face import BrokerFace
from tidelog.broker.kafka.call import Answer, Call
from tidelog.broker.kafka.codes import unknown_topic_code
from tidelog.broker.kafka.listed_brokers import ListedBrokers
from tidelog.broker.kafka.missed_leaders import MissedLeaders
from tidelog.broker.kafka.slices import Slices, finished
from tidelog.broker.kafka.topic_ids import TopicIds
from tidelog.model.access import Caller, Operation, Resource
from tidelog.model.cluster import KAFKA, NO_LEADER, BrokerInfo, ClusterImage, PartitionInfo, Topic
from tidelog.model.kafka_codes import KafkaCode
from tidelog.model.kafka_wire import INT16, INT32, NO_TAGS, array, int32s, string
from tidelog.model.steps import Steps

FLEXIBLE_FROM: Final = 9
OPERATIONS_NOT_REPORTED: Final = INT32.pack(-(1 << 31))
NO_ID: Final = "0" * 32
UUID_AND_NAME: Final = 18
"""Minimum bytes of a topic in a request that names topics by id and name."""
TOPICS_CACHED_MAX: Final = 20_000
"""Maximum number of encoded topics in the cache; each request version counts separately."""


class NamedTopic(NamedTuple):
    """A topic named in a Metadata request, by name or id."""

    name: str | None
    topic_id: str = NO_ID


def read_topics(call: Call) -> Steps[list[NamedTopic] | None]:
    """Returns the topics that a request names; None for all. Raises `Malformed`.

    The rest of the request (whether to create topics, whether to report authorized operations) is not read, since it
    would change nothing. librdkafka 2.16 sends more bytes there than the version has.
    """
    reader, version, is_flexible = call.reader, call.version, call.is_flexible
    has_ids = version >= 10
    count = reader.array(UUID_AND_NAME if has_ids else 1, is_flexible=is_flexible)
    topics: list[NamedTopic] = []
    slices = Slices()
    for _ in range(count):
        topic_id = reader.uuid() if has_ids else NO_ID
        topics.append(NamedTopic(reader.nullable_string(is_flexible=is_flexible), topic_id))
        reader.tags(is_flexible=is_flexible)
        if slices.end_with(1):
            yield None
    return None if count < 0 or (version == 0 and count == 0) else topics


class MetadataRequest:
    """A Metadata request in progress."""

    def __init__(self, calls: MetadataCalls, call: Call, caller: Caller) -> None:
        self._calls = calls
        self._call = call
        self._caller = caller
        self._topics: list[NamedTopic] | None = None

    def try_to_answer(self) -> Steps[Answer | None]:
        """Returns the answer; None if it may have to wait for new leaders. Raises `Malformed`."""
        self._topics = yield from read_topics(self._call)
        return None if self._calls.missed.can_exist else (yield from self._answer())

    async def answer_later(self, steps: Steps[Answer | None]) -> tuple[Answer, bool]:
        """Finishes `try_to_answer` in slices, between which the event loop serves other connections; then waits for new
        leaders if necessary. Returns the answer, and False since it is never an error."""
        answer = await finished(self._calls.work, steps)  # None from steps that have ended, too
        if answer is None:
            await self._calls.missed.wait_for_successors()
            answer = await finished(self._calls.work, self._answer())
        return answer, False

    def _answer(self) -> Steps[Answer]:
        return self._calls.answer(self._call, self._caller, self._topics)


class MetadataCalls:
    """Answers Metadata requests, and caches the encoded topics and brokers of its answers."""

    def __init__(self, face: BrokerFace, admission: Admission, ids: TopicIds, missed: MissedLeaders) -> None:
        self.work = face.work
        self.missed = missed
        self._cluster = face.cluster
        self._admission = admission
        self._ids = ids
        session_s = face.cluster.config.broker_session_timeout_ms / 1000
        self._listed = ListedBrokers(face.clock.monotonic_s, lambda: face.cluster.ended_brokers, session_s)
        self._topics: dict[tuple[str, int], tuple[Topic, tuple[int, ...], bytes]] = {}
        self._brokers: dict[int, tuple[list[BrokerInfo], bytes]] = {}

    def answer(self, call: Call, caller: Caller, topics: list[NamedTopic] | None) -> Steps[Answer]:
        """Returns the answer to a request for these topics (None: all), all of it from one cluster image."""
        image = self._cluster.image
        version, is_flexible = call.version, call.is_flexible
        if topics is None:
            topics = [NamedTopic(name) for name in image.topics if self._may_see(caller, name)]
        bodies = yield from self._bodies(image, version, caller, dict.fromkeys(topics))
        end = OPERATIONS_NOT_REPORTED if 8 <= version <= 10 else b""
        end += INT16.pack(0) if version >= 13 else b""
        return [
            call.head(),
            INT32.pack(0) if version >= 3 else b"",
            self._brokers_of(image, version),
            array(len(bodies), is_flexible=is_flexible),
            *bodies,
            end + (NO_TAGS if is_flexible else b""),
        ]

    def _may_see(self, caller: Caller, name: str) -> bool:
        return self._admission.may(caller, Operation.DESCRIBE, Resource("Topic", name))

    def _bodies(
        self, image: ClusterImage, version: int, caller: Caller, topics: Iterable[NamedTopic]
    ) -> Steps[list[bytes]]:
        ended = self._cluster.ended_brokers
        live = tuple(node_id for node_id in _reachable(image) if node_id not in ended)
        bodies = []
        slices = Slices()
        for name, topic_id in topics:
            topic = self._ids.find(image, topic_id) if name is None else image.topics.get(name)
            shown = topic.name if topic is not None else name
            if shown is not None and not self._may_see(caller, shown):
                unknown = KafkaCode.TOPIC_AUTHORIZATION_FAILED if name is not None else KafkaCode.UNKNOWN_TOPIC_ID
                bodies.append(_without_partitions(name, topic_id, unknown, version))
            elif topic is None:
                bodies.append(_without_partitions(name, topic_id, unknown_topic_code(name), version))
            else:
                bodies.append(self._topic(topic, live, version))
            if slices.end_with(1 if topic is None else len(topic.partitions)):
                yield None
        return bodies

    def _brokers_of(self, image: ClusterImage, version: int) -> bytes:
        """Returns the encoded brokers, cluster id and controller id. This broker names itself as the controller, since
        every broker takes admin requests."""
        brokers = self._listed.of(image)
        cached = self._brokers.get(version)
        if cached is not None and cached[0] == brokers:
            return cached[1]
        is_flexible = version >= FLEXIBLE_FROM
        out = array(len(brokers), is_flexible=is_flexible)
        for broker in brokers:
            out += _broker(broker, version)
        if version >= 2:
            out += string(self._cluster.cluster_id, is_flexible=is_flexible)
        if version >= 1:
            out += INT32.pack(self._cluster.node_id)
        self._brokers[version] = (brokers, out)
        return out

    def _topic(self, topic: Topic, live: tuple[int, ...], version: int) -> bytes:
        cached = self._topics.get((topic.name, version))
        if cached is not None and cached[0] is topic and cached[1] == live:
            return cached[2]
        is_flexible = version >= FLEXIBLE_FROM
        out = bytearray(_topic_head(topic.name, topic.topic_id, 0, version, is_internal=topic.is_internal))
        out += array(len(topic.partitions), is_flexible=is_flexible)
        for info in topic.partitions:
            out += _partition(info, live, version)
        out += _topic_end(version)
        if len(self._topics) >= TOPICS_CACHED_MAX:
            self._topics.clear()
        self._topics[topic.name, version] = (topic, live, bytes(out))
        return bytes(out)


def _reachable(image: ClusterImage) -> tuple[int, ...]:
    return tuple(broker.node_id for broker in image.live_brokers if KAFKA in broker.listeners)


def _broker(broker: BrokerInfo, version: int) -> bytes:
    is_flexible, at = version >= FLEXIBLE_FROM, broker.listeners[KAFKA]
    out = INT32.pack(broker.node_id) + string(at.host, is_flexible=is_flexible) + INT32.pack(at.port)
    if version >= 1:
        out += string(broker.rack, is_flexible=is_flexible)
    return out + (NO_TAGS if is_flexible else b"")


def _topic_head(name: str | None, topic_id: str, error: int, version: int, *, is_internal: bool) -> bytes:
    out = INT16.pack(error)
    out += string(name if version >= 12 else name or "", is_flexible=version >= FLEXIBLE_FROM)
    if version >= 10:
        out += bytes.fromhex(topic_id)
    return out + (bytes([is_internal]) if version >= 1 else b"")


def _topic_end(version: int) -> bytes:
    out = OPERATIONS_NOT_REPORTED if version >= 8 else b""
    return out + (NO_TAGS if version >= FLEXIBLE_FROM else b"")


def _without_partitions(name: str | None, topic_id: str, error: KafkaCode, version: int) -> bytes:
    empty = array(0, is_flexible=version >= FLEXIBLE_FROM)
    return _topic_head(name, topic_id, error, version, is_internal=False) + empty + _topic_end(version)


def _partition(info: PartitionInfo, live: tuple[int, ...], version: int) -> bytes:
    is_flexible = version >= FLEXIBLE_FROM
    leader = info.leader if info.leader in live else NO_LEADER
    out = INT16.pack(KafkaCode.LEADER_NOT_AVAILABLE if leader == NO_LEADER else 0)
    out += INT32.pack(info.partition) + INT32.pack(leader)
    if version >= 7:
        out += INT32.pack(info.leader_epoch)
    out += int32s(info.replicas, is_flexible=is_flexible) + int32s(info.isr, is_flexible=is_flexible)
    if version >= 5:
        out += int32s(tuple(node for node in info.replicas if node not in live), is_flexible=is_flexible)
    return out + (NO_TAGS if is_flexible else b"")
