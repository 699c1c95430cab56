"""A process that consumes by key and is killed again and again: all is processed, and what is committed only once."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tidelog.admin import AdminClient
from tidelog.consumer import Consumer, OffsetAndMetadata, TopicPartition
from tidelog.consumer.intervals import ProcessedOffsets, decode_processed
from tidelog.producer import Producer
from tidelog.testing import LocalCluster

pytestmark = [pytest.mark.process, pytest.mark.e2e]

ROOT = Path(__file__).parents[4]
KEYS = 20
PARTITIONS = 2
WAIT_S = 60.0
Place = tuple[int, int]
"""A partition and an offset."""


class Story:
    """The records that the processes have handled, and the offsets that are committed between two of them."""

    def __init__(self, bootstrap: str, topic: str, way: str) -> None:
        self.bootstrap, self.topic, self.way = bootstrap, topic, way
        self.keys: dict[Place, bytes] = {}
        self.finished = set[Place]()
        self.committed: dict[int, ProcessedOffsets] = {}
        self.lines = 0
        self.with_intervals = 0

    async def produce(self, count: int) -> None:
        async with Producer(self.bootstrap) as producer:
            for number in range(count):
                key = b"%d" % (len(self.keys) % KEYS)
                sent = await producer.send_and_wait(self.topic, b"", key=key, partition=number % PARTITIONS)
                assert sent.offset is not None
                self.keys[sent.partition, sent.offset] = key

    @asynccontextmanager
    async def life(self) -> AsyncIterator[None]:
        """A process from its start to its kill."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.integration.clients.by_key.keyed_process",
            self.bootstrap,
            self.topic,
            self.way,
            stdout=asyncio.subprocess.PIPE,
            cwd=ROOT,
        )
        assert process.stdout is not None
        reading = asyncio.create_task(self._read(process.stdout))
        try:
            yield
        finally:
            process.kill()
            await process.wait()
            await reading
        await self._look()

    async def _read(self, output: asyncio.StreamReader) -> None:
        started, last = set[Place](), dict[tuple[int, bytes], int]()
        while line := await output.readline():
            what, partition, offset = line.split()
            place = int(partition), int(offset)
            self.lines += 1
            if what == b"finished":
                self.finished.add(place)
                continue
            if what == b"assigned":  # perhaps anew, if this process could not be heard in time
                started = {other for other in started if other[0] != place[0]}
                last = {other: offset for other, offset in last.items() if other[0] != place[0]}
                continue
            assert place not in started, "twice in one life"
            started.add(place)
            known = self.committed.get(place[0])
            assert known is None or place[1] not in known, "what was committed came again"
            key = place[0], self.keys[place]
            assert last.get(key, -1) < place[1], "out of the order of its key"
            last[key] = place[1]

    async def _look(self) -> None:
        """Asserts that all committed records were processed."""
        async with Consumer(bootstrap_servers=self.bootstrap, group_id=self.topic) as reader:
            for partition in range(PARTITIONS):
                found = await reader.committed(TopicPartition(self.topic, partition), metadata=True)
                if isinstance(found, OffsetAndMetadata):
                    self.committed[partition] = decode_processed(*found)
                    self.with_intervals += bool(found.metadata)
        for place in self.keys:
            if place[0] in self.committed and place[1] in self.committed[place[0]]:
                assert place in self.finished, "committed, and not processed"

    async def until(self, lines: int) -> None:
        async with asyncio.timeout(WAIT_S):
            while self.lines < lines:
                await asyncio.sleep(0.002)

    async def until_all_is_processed(self) -> None:
        async with asyncio.timeout(WAIT_S):
            while self.finished != set(self.keys):
                await asyncio.sleep(0.002)


async def killed(bootstrap: str, topic: str, way: str, kills: int) -> Story:
    """Kills a process after it has done a little, so many times; the last one does the rest."""
    dice = random.Random(kills)
    async with AdminClient(bootstrap) as admin:
        await admin.create_topic(topic, partitions=PARTITIONS)
    story = Story(bootstrap, topic, way)
    for _ in range(kills):
        await story.produce(60)
        async with story.life():
            await story.until(story.lines + dice.randint(1, 100))
    async with story.life():
        await story.until_all_is_processed()
    return story


async def test_a_process_that_is_killed_twice(cluster: LocalCluster, topic_names: Iterator[str]) -> None:
    await killed(cluster.bootstrap, next(topic_names), "assigned", kills=2)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("way", ["assigned", "member"])
async def test_a_process_that_is_killed_a_hundred_times(way: str) -> None:
    with LocalCluster(settings={"group.min.session.timeout.ms": "100"}) as cluster:
        story = await killed(cluster.bootstrap, "t", way, kills=100)
    assert story.with_intervals > 10, "or the test shows nothing"
