"""A recording of real clients is judged as one of simulated ones is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest
from flights_faults import SETTINGS, until_in_sync

from tests.e2e.clusters import running
from tidelog.admin import AdminClient
from tidelog.checker import decode, judge
from tidelog.checker.operations import Send
from tidelog.consumer import Consumer
from tidelog.model.errors import UnknownTopic
from tidelog.model.ids import TopicPartition
from tidelog.producer import Producer
from tidelog.testing import LocalCluster, Recording

pytestmark = [pytest.mark.process]

TOPIC = "broken"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as cluster:
        yield cluster


async def recorded(cluster: LocalCluster, topic: str) -> Recording:
    """Two hundred records, sent and read while nothing happens to the broker."""
    recording = Recording()
    async with AdminClient(cluster.bootstrap) as admin:
        await admin.create_topic(topic, partitions=2)
    async with Producer(cluster.bootstrap) as producer:
        for number in range(50):
            values = [b"%d %d" % (number, part) for part in range(4)]
            assert await (await recording.send("producer", producer, topic, number % 2, values))
    async with Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        partitions = [TopicPartition(topic, number) for number in range(2)]
        consumer.assign(partitions)
        recording.assign("consumer", partitions)
        left = 200
        while left:
            left -= sum(map(len, (await recording.poll("consumer", consumer, timeout_ms=1000)).values()))
    await recording.view(cluster, topic)
    return recording


async def test_nothing_is_wrong_where_nothing_happens(cluster: LocalCluster, tmp_path: Path) -> None:
    recording = await recorded(cluster, "quiet")
    verdict = recording.judge(polls_min=1, faults_min=0)
    assert (verdict.word, verdict.acknowledged, verdict.records_read, verdict.views) == ("valid", 200, 200, 2)
    assert recording.judge().word == "void", "no fault"
    await recording.save(tmp_path / "history.jsonl")
    assert decode((tmp_path / "history.jsonl").read_bytes()) == recording.recorder.operations


async def test_what_was_never_written_is_missed_on_the_replica(cluster: LocalCluster) -> None:
    recording = await recorded(cluster, "lying")
    sends = [Send("lying-0", 100, "a lie")]
    recording.recorder.complete(recording.recorder.invoke("liar", "send", sends), "ok", sends)
    assert judge(recording.recorder.operations).kinds == {"unseen": 1, "acknowledged-missing": 1}


async def test_a_refusal_is_recorded_as_one(cluster: LocalCluster) -> None:
    recording = Recording()
    async with Producer(cluster.bootstrap) as producer:
        with pytest.raises(UnknownTopic):
            await recording.send("producer", producer, "nowhere", 0, [b"never"])
    last = recording.recorder.operations[-1]
    assert (last.f, last.type, last.error) == ("send", "fail", str(UnknownTopic.code))


class Clients:
    """Two producers and two readers of one partition each, and one who asks the leader for the newest."""

    def __init__(self, cluster: LocalCluster, recording: Recording) -> None:
        self._cluster, self._recording = cluster, recording
        self.is_over = False

    async def write(self, partition: int) -> None:
        under_way: list[asyncio.Task[bool]] = []
        async with Producer(self._cluster.bootstrap) as producer:
            for number in count():
                if self.is_over:
                    break
                values = [b"%d-%d" % (partition, number)]
                under_way.append(
                    await self._recording.send(f"producer {partition}", producer, TOPIC, partition, values)
                )
                await asyncio.sleep(0.005)
            await asyncio.gather(*under_way)

    async def read(self, partition: int) -> None:
        where = TopicPartition(TOPIC, partition)
        async with Consumer(bootstrap_servers=self._cluster.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([where])
            self._recording.assign(f"reader {partition}", [where])
            while not self.is_over:
                await self._recording.poll(f"reader {partition}", consumer, timeout_ms=50)

    async def ask(self, node_id: int) -> None:
        """Through one broker; one that is down, or does not know who leads, is asked again."""
        offset = 0
        while not self.is_over:
            with suppress(OSError):
                url = self._cluster.broker(node_id).url
                offset = await self._recording.fetch(f"asker {node_id}", url, TopicPartition(TOPIC, 0), offset)
            await asyncio.sleep(0.02)


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_nothing_is_wrong_where_brokers_are_broken_in_turn(tmp_path: Path, protocol: str) -> None:
    recording = Recording()
    with running(protocol, settings=SETTINGS) as cluster:
        async with AdminClient(cluster.bootstrap) as admin:
            await admin.create_topic(TOPIC, partitions=2, replication_factor=3)
        clients = Clients(cluster, recording)
        work = [clients.write(0), clients.write(1), clients.read(0), clients.read(1), clients.ask(1), clients.ask(2)]
        async with asyncio.TaskGroup() as group:
            for client in work:
                group.create_task(client)
            for node_id in cluster.node_ids:
                await asyncio.sleep(0.5)
                recording.fault(f"broker {node_id} killed")
                cluster.kill(node_id)
                await asyncio.sleep(1.0)
                await asyncio.to_thread(cluster.restart, node_id)
                async with AdminClient(cluster.bootstrap) as admin:
                    await until_in_sync(admin, TOPIC)
            clients.is_over = True
        async with AdminClient(cluster.bootstrap) as admin:
            await until_in_sync(admin, TOPIC)
        await recording.view(cluster, TOPIC)
    await recording.save(tmp_path / "history.jsonl")
    verdict = recording.judge()
    assert not verdict.anomalies
    assert (verdict.word, verdict.views, verdict.faults) == ("valid", 6, 3)
