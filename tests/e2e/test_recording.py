"""A recording of real clients is judged as one of simulated ones is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog.admin import AdminClient
from tidelog.checker import decode, judge
from tidelog.checker.operations import Send
from tidelog.consumer import Consumer
from tidelog.model.errors import UnknownTopic
from tidelog.model.ids import TopicPartition
from tidelog.producer import Producer
from tidelog.testing import LocalCluster, Recording

pytestmark = [pytest.mark.process]


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
    async with Consumer(bootstrap=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
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
    recording.save(tmp_path / "history.jsonl")
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
