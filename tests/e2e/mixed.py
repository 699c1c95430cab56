"""Topics with every way to commit beside each other, written, read and judged while their brokers are broken."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
import urllib.request
from collections.abc import Callable, Coroutine, Mapping
from itertools import count
from typing import Any, Final, NamedTuple

from tests.e2e.clusters import ISR, PAXOS
from tests.e2e.loading import DELIVERY_MS, REQUEST_MS, create, whole
from tidelog.checker import Verdict
from tidelog.checker.operations import View
from tidelog.model.batch_codec import decode_batch
from tidelog.model.batch_header import iter_batches
from tidelog.model.early_reads import ABOVE_HEADER, AboveOffsets
from tidelog.model.errors import TidelogError
from tidelog.model.ids import TopicPartition
from tidelog.producer import Producer
from tidelog.sim.cluster.early_reads import out_of_order
from tidelog.testing import LocalCluster
from tidelog.testing.recording import Recording

BY_KEY: Final = "by-key"
TOPICS: Final[Mapping[str, Mapping[str, str]]] = {
    "in-sync": {"commit.protocol": ISR},
    "total": {"commit.protocol": PAXOS},
    BY_KEY: {"commit.protocol": PAXOS, "commit.order": "key"},
    "by-none": {"commit.protocol": PAXOS, "commit.order": "none", "commit.hole.span": "16"},
}
"""The settings of each topic."""
WITH_HOLES: Final = (BY_KEY, "by-none")
WRITERS = 2
KEYS = 6
EVERY_S = 0.02
READ_EVERY_S = 0.1
EARLY_EVERY_S = 0.01
POLLS_MIN = 100


class ReadByKey(NamedTuple):
    """The answer to a read by key: the offsets in it, and where the next read begins."""

    offsets: list[int]
    next_offset: int
    high_watermark: int


def _get_by_key(url: str, offset: int, above: AboveOffsets) -> ReadByKey:
    """Reads the topic by key once. Raises `OSError`."""
    address = f"{url}/topics/{BY_KEY}/partitions/0/batches?offset={offset}&order=key&above={above}"
    with urllib.request.urlopen(address, timeout=REQUEST_MS / 1000) as answer:
        body, headers = answer.read(), answer.headers
    high_watermark = int(headers["Tidelog-High-Watermark"])
    offsets, next_offset = list[int](), offset
    for batch in iter_batches(body):
        offsets += [record.offset for record in decode_batch(batch)]
        if batch.header.base_offset < high_watermark:
            next_offset = batch.header.next_offset
    # Early records come behind all that is committed, which may end with offsets that no record has.
    return ReadByKey(offsets, high_watermark if ABOVE_HEADER in headers else next_offset, high_watermark)


class Mixed:
    """The clients of all topics, from their first records to the verdict on all that they were told."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.recording = Recording()
        self.gaps_s = dict.fromkeys(TOPICS, 0.0)
        """The longest time without an acknowledgement, by topic, since `measure`."""
        self.shown: list[int] = []
        """Offsets of the topic by key, in the order in which a reader by key was shown them."""
        self.shown_early = 0
        """The number of records that it was shown before the high watermark reached them."""
        self._cluster = cluster
        self._acknowledged_s = dict.fromkeys(TOPICS, time.monotonic())
        self._is_over = False
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        """Creates the topics, and starts to write and read."""
        for topic, configs in TOPICS.items():
            await create(self._cluster, topic, configs)
            await whole(self._cluster, topic)
        self.recording.recorder.tell("holes", [str(TopicPartition(topic, 0)) for topic in WITH_HOLES])
        for topic in TOPICS:
            self._start(self._write(topic, number) for number in range(WRITERS))
            self._start([self._read(topic)])
        self._start([self._read_early()])
        self.measure()

    def _start(self, work: Any) -> None:
        self._tasks += [asyncio.create_task(each) for each in work]

    def measure(self) -> None:
        """Measures the time without an acknowledgement from now on."""
        self.gaps_s = dict.fromkeys(TOPICS, 0.0)
        self._acknowledged_s = dict.fromkeys(TOPICS, time.monotonic())

    def gaps(self) -> dict[str, float]:
        """Returns the longest time without an acknowledgement, by topic, including the time since the last one."""
        now_s = time.monotonic()
        return {topic: round(max(gap, now_s - self._acknowledged_s[topic]), 2) for topic, gap in self.gaps_s.items()}

    async def _write(self, topic: str, number: int) -> None:
        name, rng = f"{topic} writer {number}", random.Random(number)
        under_way: set[asyncio.Task[None]] = set()
        async with Producer(
            self._cluster.bootstrap, request_timeout_ms=REQUEST_MS, delivery_timeout_ms=DELIVERY_MS, linger_ms=0
        ) as producer:
            for each in count():
                if self._is_over:
                    break
                key = b"key %d" % rng.randrange(KEYS)
                value = b"%s:%d:%s" % (name.encode(), each, key)
                sent = await self.recording.send(name, producer, topic, 0, [value], [key])
                task = asyncio.create_task(self._settle(topic, sent))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
                await asyncio.sleep(EVERY_S)
            await asyncio.gather(*under_way)

    async def _settle(self, topic: str, sent: asyncio.Task[bool]) -> None:
        if await sent:
            now_s = time.monotonic()
            self.gaps_s[topic] = max(self.gaps_s[topic], now_s - self._acknowledged_s[topic])
            self._acknowledged_s[topic] = now_s

    async def _read(self, topic: str) -> None:
        offset, where = 0, TopicPartition(topic, 0)
        rng = random.Random(topic)
        while not self._is_over:
            url = self._cluster.broker(rng.choice(self._cluster.node_ids)).url
            with contextlib.suppress(OSError, TidelogError):
                offset = await self.recording.fetch(f"{topic} reader", url, where, offset)
            await asyncio.sleep(READ_EVERY_S)

    async def _read_early(self) -> None:
        offset, above, taken = 0, set[int](), 0
        while not self._is_over:
            url = self._cluster.broker(self._cluster.node_ids[taken % len(self._cluster.node_ids)]).url
            taken += 1
            with contextlib.suppress(OSError):
                read = await asyncio.to_thread(
                    _get_by_key, url, offset, AboveOffsets((at, at + 1) for at in sorted(above))
                )
                fresh = [at for at in read.offsets if at >= offset and at not in above]
                self.shown += fresh
                self.shown_early += sum(at >= read.high_watermark for at in fresh)
                offset = read.next_offset
                above = {at for at in (*above, *fresh) if at >= offset}
            await asyncio.sleep(EARLY_EVERY_S)

    def _check_early(self) -> None:
        """Checks that the reader by key was shown the records of each key, and of each writer, in order and once."""
        views = (part for op in self.recording.recorder.operations if op.f == "view" for part in op.value)
        view = next(part for part in views if isinstance(part, View) and part.key == f"{BY_KEY}-0")
        marks = dict[int, frozenset[int | bytes]]()
        for offset, value in view.records:
            writer, _, key = value.split(":")
            marks[offset] = frozenset((writer.encode(), key.encode()))
        assert len(self.shown) > POLLS_MIN
        assert [*out_of_order(self.shown, marks)] == []
        assert set(self.shown) <= set(marks)

    async def end(self) -> Verdict:
        """Stops writing, waits for all outcomes, reads every replica, checks what the reader by key was shown, and
        returns the verdict on all else."""
        self._is_over = True
        await asyncio.gather(*self._tasks)
        for topic in TOPICS:
            await whole(self._cluster, topic)
            await self.recording.view(self._cluster, topic)
        self._check_early()
        return self.recording.judge()

    async def cancel(self) -> None:
        """Cancels what still runs."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def attack(cluster: LocalCluster, faults: Callable[[Mixed], Coroutine[Any, Any, None]]) -> Verdict:
    """Writes and reads all topics while `faults` are inflicted; returns the verdict."""
    mixed = Mixed(cluster)
    try:
        await mixed.begin()
        await faults(mixed)
        return await mixed.end()
    finally:
        await mixed.cancel()
