"""A batch is destroyed on every disk, and given up: what consumers, commands and REST consumers do at these offsets."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from functools import partial

import pytest

from tests.e2e.asking import ask, until
from tests.e2e.clusters import running
from tests.e2e.test_accept_loss import LOST, accept, destroy, is_damaged
from tests.e2e.test_repair import RECORDS, SETTINGS, VALUES, filled
from tidelog.consumer import Consumer, LostRange, RecordsLost, TopicPartition
from tidelog.model.errors import DamagedBatch
from tidelog.testing import LocalCluster

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(240)]

BEFORE, BEHIND = VALUES[:LOST], VALUES[LOST + 1 :]
CONTROL = "application/vnd.kafka.v2+json"
AS_JSON = "application/vnd.kafka.json.v2+json"


@pytest.fixture(scope="module")
def cluster(protocol: str) -> Iterator[LocalCluster]:
    with running(protocol, settings=SETTINGS) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def topic(cluster: LocalCluster) -> str:
    """It has lost one record for good. Before that was accepted, its readers were told of damage."""
    topic = filled(cluster)
    destroy(cluster, topic, VALUES[LOST], *cluster.node_ids)
    cluster.restart(*cluster.node_ids)
    until(partial(is_damaged, cluster, topic))
    asyncio.run(meet_damage(cluster, topic))
    assert accept(cluster, topic, "--execute").found["accepted"]
    return topic


def reading(cluster: LocalCluster, topic: str, on_loss: str, group: str | None = None) -> Consumer:
    return Consumer(
        topic, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", on_loss=on_loss, group_id=group
    )


async def take(consumer: Consumer, count: int) -> list[str]:
    async with asyncio.timeout(60):
        return [json.loads((await consumer.getone()).value or b"") for _ in range(count)]


async def meet_damage(cluster: LocalCluster, topic: str) -> None:
    async with reading(cluster, topic, "skip") as consumer:
        assert await take(consumer, LOST) == BEFORE
        with pytest.raises(DamagedBatch, match=f"offsets {LOST} to {LOST} "):
            await take(consumer, 1)


async def meet_loss(consumer: Consumer, topic: str) -> None:
    """It comes out of each call, until somebody seeks."""
    for _ in range(2):
        with pytest.raises(RecordsLost, match=f"seek to {LOST + 1}") as caught:
            await take(consumer, 1)
        assert (caught.value.topic, caught.value.partition, caught.value.ranges) == (topic, 0, ((LOST, LOST + 1),))


async def test_a_consumer_fails_at_the_loss_until_it_seeks(cluster: LocalCluster, topic: str) -> None:
    async with reading(cluster, topic, "fail") as consumer:
        assert await take(consumer, LOST) == BEFORE
        await meet_loss(consumer, topic)
        consumer.seek(TopicPartition(topic, 0), LOST + 1)
        assert await take(consumer, len(BEHIND)) == BEHIND


async def test_a_consumer_that_skips_reads_all_that_is_left(cluster: LocalCluster, topic: str) -> None:
    async with reading(cluster, topic, "skip") as consumer:
        assert await take(consumer, RECORDS - 1) == BEFORE + BEHIND
        assert consumer.lost() == {TopicPartition(topic, 0): [LostRange(LOST, LOST + 1)]}


async def test_a_group_stops_before_the_loss_and_goes_on_when_it_may_skip(cluster: LocalCluster, topic: str) -> None:
    async with reading(cluster, topic, "fail", "g") as consumer:
        assert await take(consumer, LOST) == BEFORE
        await meet_loss(consumer, topic)
        await consumer.commit()
        assert await consumer.committed(TopicPartition(topic, 0)) == LOST
    async with reading(cluster, topic, "skip", "g") as consumer:
        assert await take(consumer, len(BEHIND)) == BEHIND
        await consumer.commit()
        assert await consumer.committed(TopicPartition(topic, 0)) == RECORDS


def consume(cluster: LocalCluster, topic: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tidelog", "consume", topic, "--from-beginning", "--until-end", *words]
    return subprocess.run(
        [*command, "--bootstrap", cluster.bootstrap], capture_output=True, text=True, check=False, timeout=60
    )


def shown(ended: subprocess.CompletedProcess[str]) -> list[str]:
    return [json.loads(line) for line in ended.stdout.splitlines()]


def test_the_command_stops_or_skips(cluster: LocalCluster, topic: str) -> None:
    stopped = consume(cluster, topic)
    assert (stopped.returncode, shown(stopped)) == (1, BEFORE)
    assert f"the records at offsets {LOST}-{LOST} are lost" in stopped.stderr
    assert "(41001)" in stopped.stderr
    assert "--on-loss skip" in stopped.stderr
    skipped = consume(cluster, topic, "--on-loss", "skip")
    assert (skipped.returncode, shown(skipped)) == (0, BEFORE + BEHIND)
    assert f"skipping the records at offsets {LOST}-{LOST}" in skipped.stderr


def rest_consumer(cluster: LocalCluster, topic: str, on_loss: str) -> str:
    """Returns the URL of an instance that reads the partition from its beginning."""
    url = f"{cluster.broker(1).url}/consumers/rest-{on_loss}"
    settings = {"name": "i", "format": "json", "auto.offset.reset": "earliest", "on.loss": on_loss}
    assert ask(url, settings, media=CONTROL).status == 200
    partitions = {"partitions": [{"topic": topic, "partition": 0}]}
    assert ask(f"{url}/instances/i/assignments", partitions, media=CONTROL).status == 204
    return f"{url}/instances/i"


def test_a_rest_consumer_fails_at_the_loss(cluster: LocalCluster, topic: str) -> None:
    url = rest_consumer(cluster, topic, "fail")
    page = ask(f"{url}/records", media=AS_JSON)
    assert [record["value"] for record in page.body] == BEFORE
    refused = ask(f"{url}/records", media=AS_JSON)
    assert (refused.status, refused.code) == (410, 41001)
    assert f"offsets {LOST}-{LOST} are lost" in refused.body["message"]


def test_a_rest_consumer_that_skips_says_so(cluster: LocalCluster, topic: str) -> None:
    url = rest_consumer(cluster, topic, "skip")
    assert len(ask(f"{url}/records", media=AS_JSON).body) == LOST
    with urllib.request.urlopen(urllib.request.Request(f"{url}/records", headers={"Accept": AS_JSON})) as answer:
        assert answer.headers["Tidelog-Lost"] == f"{topic}-0:{LOST}-{LOST}"
        assert answer.read().count(b'"offset"') == len(BEHIND)
