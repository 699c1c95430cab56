"""Lines on their way to the topic wait while it does not take them, in a bounded queue, and nobody waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tidelog.broker.face import audit_topic as module
from tidelog.broker.face.audit_topic import BATCH_BYTES_MAX, BATCH_LINES_MAX, QUEUE_MAX, AuditTopic
from tidelog.broker.partitions.partition_handle import PartitionHandle
from tidelog.model.batch_codec import decode_batch
from tidelog.model.batch_header import RecordBatch
from tidelog.model.errors import CoordinatorNotAvailable, LeaderNotAvailable, TimedOutAfterAppend, UnknownTopic


class Clock:
    def monotonic_s(self) -> float:
        return 0.0

    def wall_ms(self) -> int:
        return 1_000


class Cluster:
    """Has the topic, or not, and may be in `trouble`, which befalls the next appends, one each."""

    def __init__(self) -> None:
        self.has_topic = False
        self.may_make = True
        self.trouble: list[Exception] = []
        self.batches: list[list[bytes | None]] = []
        self.keys: dict[bytes | None, None] = {}
        self.topic = AuditTopic(self, self.make, Clock(), 7)

    def handle(self, topic: str, partition: int) -> PartitionHandle:
        assert (topic, partition) == ("__audit", 0)
        if not self.has_topic:
            raise UnknownTopic("none")
        return self  # type: ignore[return-value]  # as much of one as is asked

    async def make(self) -> None:
        if not self.may_make:
            raise CoordinatorNotAvailable("too few brokers")
        self.has_topic = True

    async def produce(self, batches: list[RecordBatch], *, acks: int, is_own: bool, **_: Any) -> None:
        assert (acks, is_own) == (-1, True)
        if self.trouble:
            raise self.trouble.pop(0)
        records = [record for batch in batches for record in decode_batch(batch)]
        self.batches.append([record.value for record in records])
        self.keys.update((record.key, None) for record in records)

    @property
    def lines(self) -> list[bytes | None]:
        return [line for batch in self.batches for line in batch]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE_S", 0.0)
    monkeypatch.setattr(module, "FLUSH_S_MAX", 0.01)


async def test_lines_come_in_their_order_and_in_batches() -> None:
    cluster = Cluster()
    task = asyncio.create_task(cluster.topic.run())
    small = [b"%d\n" % number for number in range(BATCH_LINES_MAX + 1)]
    cluster.topic.put(small[:100])
    cluster.topic.put(small[100:])
    await cluster.topic.flush()
    assert cluster.lines == [line.rstrip() for line in small]
    assert [len(batch) for batch in cluster.batches] == [BATCH_LINES_MAX, 1]
    assert list(cluster.keys) == [b"7"]
    large = [bytes([65 + number]) * (BATCH_BYTES_MAX // 2) for number in range(3)] + [b"x" * 2 * BATCH_BYTES_MAX]
    cluster.topic.put(large)
    await until(lambda: len(cluster.lines) == len(small) + 4)
    assert [len(batch) for batch in cluster.batches[2:]] == [2, 1, 1]
    assert cluster.topic.counts == {"published": len(small) + 4, "unpublished": 0}
    task.cancel()


async def test_they_wait_for_a_topic_that_cannot_be_made_yet_and_for_a_leader() -> None:
    cluster = Cluster()
    cluster.may_make = False
    task = asyncio.create_task(cluster.topic.run())
    cluster.topic.put([b"a"])
    for _ in range(20):
        await asyncio.sleep(0)
    assert not cluster.lines
    cluster.may_make = True
    cluster.trouble = [LeaderNotAvailable("nobody"), TimeoutError(), TimedOutAfterAppend("who knows")]
    cluster.topic.put([b"b"])
    await until(lambda: cluster.lines == [b"a", b"b"])
    assert cluster.topic.counts == {"published": 2, "unpublished": 0}
    task.cancel()


async def test_there_is_room_for_so_many_and_the_others_are_counted() -> None:
    cluster = Cluster()
    cluster.topic.put([b"x"] * (QUEUE_MAX - 1))
    cluster.topic.put([b"y", b"z"])
    assert cluster.topic.counts == {"published": 0, "unpublished": 1}
    await cluster.topic.flush()
    assert cluster.topic.counts == {"published": 0, "unpublished": QUEUE_MAX + 1}
