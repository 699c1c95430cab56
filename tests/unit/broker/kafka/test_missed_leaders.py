"""Metadata and FindCoordinator name no leader that is dead: they wait for its successor, and then say that there is
none."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.integration.kafka.conftest import read_answer, request_frame
from tests.unit.broker.kafka.images import broker, image
from tidelog.broker.face.admission import Admission
from tidelog.broker.face.face import BrokerFace
from tidelog.broker.kafka import missed_leaders
from tidelog.broker.kafka.apis import APIS, Key
from tidelog.broker.kafka.call import Call, Head, read_call
from tidelog.broker.kafka.groups.find_coordinator import find_coordinator
from tidelog.broker.kafka.listener_parts import Parts
from tidelog.broker.kafka.metadata import MetadataCalls, MetadataRequest
from tidelog.broker.kafka.missed_leaders import MissedLeaders
from tidelog.broker.kafka.topic_ids import TopicIds
from tidelog.broker.routing.leader_lookup import Host, LeaderLookup
from tidelog.model.access import ANONYMOUS, Caller
from tidelog.model.cluster import ClusterImage
from tidelog.model.kafka_codes import KafkaCode
from tidelog.model.steps import drive

VERSION = 9
CALLER = Caller(ANONYMOUS, "host")


class Site:
    """Broker 1 of three, as its Kafka listener sees it. Broker 2 leads the partition."""

    def __init__(self) -> None:
        self.image = image(broker(1), broker(2), broker(3), leader=2)
        self.ended_brokers: Sequence[int] = ()
        self.missed_brokers: Sequence[int] = ()
        self.node_id, self.cluster_id = 1, "c"
        self.config = SimpleNamespace(broker_session_timeout_ms=9_000)
        lookup = LeaderLookup(cast("Host", self))
        self._applied = lookup.on_metadata_applied
        face = SimpleNamespace(
            cluster=self,
            partitions=SimpleNamespace(wait_for_metadata=lookup.wait_until),
            groups=SimpleNamespace(found=self._found, coordinator_node=lambda _: 2),
            clock=SimpleNamespace(monotonic_s=lambda: 1.0),
            work=None,
        )
        admission = cast("Admission", SimpleNamespace(may=lambda *_: True))
        self.missed = MissedLeaders(cast("BrokerFace", face))
        self.calls = MetadataCalls(cast("BrokerFace", face), admission, TopicIds(), self.missed)
        self.parts = cast(
            "Parts", SimpleNamespace(face=face, cluster=self, missed=self.missed, refuse_unauthorized=lambda *_: None)
        )

    async def _found(self, deadline_s: float) -> None:
        pass

    def apply(self, newer: ClusterImage) -> None:
        self.image = newer
        self._applied()

    def begin(self) -> MetadataRequest:
        topics = {"topics": [{"name": "t"}], "allow_auto_topic_creation": False}
        rights = {"include_cluster_authorized_operations": False, "include_topic_authorized_operations": False}
        frame = memoryview(request_frame(Key.METADATA, VERSION, {**topics, **rights}))
        return MetadataRequest(self.calls, call_of(Key.METADATA, frame), CALLER)

    async def answer(self) -> tuple[int, int, list[int]]:
        """Leader, error code and brokers of an answer."""
        request = self.begin()
        buffers, has_failed = await request.answer_later(request.try_to_answer())
        assert not has_failed
        return told(buffers)


def call_of(key: Key, frame: memoryview) -> Call:
    return read_call(APIS[key], Head(frame), frame, 1.0)


def told(buffers: Sequence[Any]) -> tuple[int, int, list[int]]:
    answer = read_answer(Key.METADATA, VERSION, b"".join(buffers))
    (partition,) = answer.topics[0].partitions
    return partition.leader_id, int(partition.error_code), [broker.node_id for broker in answer.brokers]


@pytest.fixture
def site() -> Site:
    return Site()


async def test_a_leader_that_is_there_is_named(site: Site) -> None:
    assert await site.answer() == (2, 0, [1, 2, 3])


async def test_a_broker_that_is_alone_answers_at_once(site: Site) -> None:
    site.apply(image(broker(1), leader=1))
    answer = drive(site.begin().try_to_answer())
    assert answer is not None
    assert told(answer) == (1, 0, [1])


@pytest.mark.parametrize("is_sure", [False, True])
async def test_an_answer_waits_for_the_successor_of_a_leader_that_died(
    site: Site, monkeypatch: pytest.MonkeyPatch, is_sure: bool
) -> None:
    monkeypatch.setattr(missed_leaders, "HOLD_S", 60.0)
    asking = asyncio.create_task(site.answer())
    await asyncio.sleep(0)  # the request is there before the loss is noticed
    site.missed_brokers = [2]
    site.ended_brokers = [2] if is_sure else []
    site.apply(site.image)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(asking), 0.05)
    site.apply(image(broker(1), broker(2, is_fenced=True), broker(3), leader=3))
    async with asyncio.timeout(30):
        assert await asking == (3, 0, [1, 3])  # it had told nobody of broker 2 before


async def test_without_a_successor_a_leader_that_surely_ended_is_not_named(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(missed_leaders, "HOLD_S", 0.01)
    site.missed_brokers = site.ended_brokers = [2]
    assert await site.answer() == (-1, KafkaCode.LEADER_NOT_AVAILABLE, [1, 2, 3])
    site.missed_brokers = site.ended_brokers = []  # it was started again
    assert await site.answer() == (2, 0, [1, 2, 3])


async def test_without_a_successor_a_leader_in_doubt_is_named(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(missed_leaders, "HOLD_S", 0.01)
    site.missed_brokers = [2]
    assert await site.answer() == (2, 0, [1, 2, 3])


async def test_a_dead_leader_is_named_as_a_broker_for_a_while(site: Site) -> None:
    await site.answer()
    site.missed_brokers = site.ended_brokers = [2]
    site.apply(image(broker(1), broker(2, is_fenced=True), broker(3), leader=3))
    assert await site.answer() == (3, 0, [1, 2, 3])


async def test_a_request_for_many_coordinators_waits_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    slept = list[float]()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    request = SimpleNamespace(coordinator_keys=[f"g{number}" for number in range(50)], key_type=0)
    found = await find_coordinator(site.parts, cast("Call", None), request, CALLER)
    assert [coordinator["host"] for coordinator in found["coordinators"]] == ["host2"] * 50
    assert slept == [missed_leaders.NOTICE_S]
    site.apply(image(broker(2), leader=2))  # it is the only broker now, and misses nobody
    await find_coordinator(site.parts, cast("Call", None), request, CALLER)
    assert slept == [missed_leaders.NOTICE_S]


async def test_a_coordinator_that_ended_is_not_named(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(missed_leaders, "HOLD_S", 0.01)
    call = cast("Call", None)
    request = SimpleNamespace(key="g", key_type=0)
    named = await find_coordinator(site.parts, call, request, CALLER)
    assert (named["error_code"], named["host"]) == (0, "host2")
    site.missed_brokers = site.ended_brokers = [2]
    gone = await find_coordinator(site.parts, call, request, CALLER)
    assert (gone["error_code"], gone["node_id"]) == (KafkaCode.COORDINATOR_NOT_AVAILABLE, -1)
