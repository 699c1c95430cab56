"""Bytes of committed batches turn over on the disks of running brokers: nobody is ever shown them, and they are put
right again with another broker's copy, whoever finds them first: a reader, a follower, or the scrubber.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.asking import JSON_RECORDS, Answer, Asked, ask, until
from tests.e2e.clusters import ISR, running
from tidelog.admin import AdminClient
from tidelog.consumer import Consumer
from tidelog.model.ids import PartitionId, TopicId
from tidelog.storage.rows import Kind, RowCodec
from tidelog.testing import LocalCluster

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]

RECORDS = 40
"""Each a batch of its own."""
LEADER, FOLLOWER = 1, 2
SETTINGS = {"log.scrub.period.ms": "3600000"}
"""The scrubber is somebody else's test: here, who reads finds it."""
SCRUBBED = {"log.scrub.period.ms": "2000"}
_numbers = count()


@pytest.fixture(scope="module")
def cluster(protocol: str) -> Iterator[LocalCluster]:
    """Each test leaves it whole, and has a topic of its own."""
    with running(protocol, settings=SETTINGS, kafka=True) as cluster:
        yield cluster


def filled(cluster: LocalCluster) -> str:
    """A topic of one partition led by `LEADER`, whose records all replicas know to be committed."""
    topic = f"t-{next(_numbers)}"

    async def create() -> None:
        async with AdminClient(cluster.bootstrap) as admin:
            await admin.create_topic(topic, replicas_assignments={0: [1, 2, 3]})

    asyncio.run(create())
    for i in range(RECORDS):
        Asked(cluster, LEADER).append(topic, 0, f"value-{i:04}")
    until(lambda: all(len(read(cluster, node_id, topic, 0).body) == RECORDS for node_id in cluster.node_ids))
    return topic


def read(cluster: LocalCluster, node_id: int, topic: str, offset: int) -> Answer:
    """A broker's own copy."""
    url = f"{cluster.broker(node_id).url}/topics/{topic}/partitions/0/records?offset={offset}&replica=local"
    return ask(url, media=JSON_RECORDS)


def log_file(cluster: LocalCluster, node_id: int, topic: str) -> Path:
    url = f"{cluster.broker(node_id).url}/metadata?topics={topic}"
    (described,) = ask(url).body["topics"]
    topic_id: str = described["topic_id"]
    return cluster.broker(node_id).data_dir / "topics" / topic_id / "0" / f"{0:020}.log"


def rot(path: Path, value: str) -> None:
    """Changes a byte of a record's value, in place, under the broker's feet."""
    at = path.read_bytes().index(value.encode())
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"X")


def rot_everywhere(cluster: LocalCluster, topic: str, value: str) -> None:
    """The same in every copy that there is, in logs and in journals."""
    for node_id in cluster.node_ids:
        log = log_file(cluster, node_id, topic)
        for path in (log, *(log.parent / "journal").glob("*.log")):
            rot(path, value)


def metric(cluster: LocalCluster, node_id: int, name: str) -> float:
    with urllib.request.urlopen(f"{cluster.broker(node_id).url}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(f"{name} "))


def is_repaired(cluster: LocalCluster, node_id: int) -> bool:
    return metric(cluster, node_id, "tidelog_repaired_batches_total") == 1


VALUES = [f"value-{i:04}" for i in range(RECORDS)]


@pytest.mark.parametrize("node_id", [FOLLOWER, LEADER], ids=["follower", "leader"])
def test_a_reader_of_a_damaged_batch_waits_for_its_repair(cluster: LocalCluster, node_id: int) -> None:
    topic = filled(cluster)
    path = log_file(cluster, node_id, topic)
    whole = path.read_bytes()
    repaired = metric(cluster, node_id, "tidelog_repaired_batches_total")
    rot(path, VALUES[17])
    assert path.read_bytes() != whole
    found = [record["value"] for record in read(cluster, node_id, topic, 0).body]
    assert found == VALUES[: len(found)]
    answer = read(cluster, node_id, topic, 17)
    assert [record["value"] for record in answer.body] == VALUES[17:]
    assert path.read_bytes() == whole
    assert metric(cluster, node_id, "tidelog_damaged_batches_total") >= 1
    until(lambda: metric(cluster, node_id, "tidelog_repaired_batches_total") == repaired + 1)
    assert metric(cluster, node_id, "tidelog_damaged_ranges") == 0


@pytest.mark.parametrize("transport", ["http", "kafka"])
async def test_a_consumer_reads_on_when_a_batch_is_repaired(cluster: LocalCluster, transport: str) -> None:
    topic = await asyncio.to_thread(filled, cluster)
    await asyncio.to_thread(rot, log_file(cluster, LEADER, topic), VALUES[17])
    options: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap, "transport": transport}
    async with Consumer(topic, auto_offset_reset="earliest", **options) as consumer, asyncio.timeout(60):
        records = aiter(consumer)
        assert [(await anext(records)).value for _ in VALUES] == [f'"{value}"'.encode() for value in VALUES]


def verify(cluster: LocalCluster, topic: str) -> tuple[int, dict[int, dict[str, Any]]]:
    """Exit status, and what was found of each broker's replica."""
    command = [sys.executable, "-m", "tidelog", "log", "verify", "--cluster", "--topic", topic, "--json"]
    ended = subprocess.run([*command, "--bootstrap", cluster.bootstrap], capture_output=True, check=False)
    assert ended.stderr == b"", ended
    (partition,) = json.loads(ended.stdout)
    assert (partition["start_offset"], partition["end_offset"]) == (0, RECORDS)
    return ended.returncode, {replica["broker_id"]: replica for replica in partition["replicas"]}


@pytest.mark.slow
def test_replicas_are_compared_by_command(cluster: LocalCluster) -> None:
    topic = filled(cluster)
    status, found = verify(cluster, topic)
    assert status == 0
    assert all(replica["is_whole"] and not replica["repaired"] for replica in found.values())
    rot(log_file(cluster, FOLLOWER, topic), VALUES[9])
    status, found = verify(cluster, topic)
    assert status == 0
    assert [one["start_offset"] for one in found[FOLLOWER]["repaired"]] == [9]


@pytest.mark.slow
def test_a_batch_that_is_damaged_everywhere_is_told_by_command(cluster: LocalCluster) -> None:
    """After it was waited for somebody to repair it."""
    topic = filled(cluster)
    paths = {node_id: log_file(cluster, node_id, topic) for node_id in cluster.node_ids}
    whole = paths[LEADER].read_bytes()
    rot_everywhere(cluster, topic, VALUES[9])
    status, found = verify(cluster, topic)
    assert status == 1
    assert [replica["damaged"][0]["start_offset"] for replica in found.values()] == [9, 9, 9]
    assert all(replica["differs_at"] is None for replica in found.values()), "rows still say what belongs there"
    with paths[LEADER].open("r+b") as file:
        file.write(whole)
    until(lambda: verify(cluster, topic)[0] == 0)


@pytest.mark.slow
def test_the_scrubber_finds_what_nobody_reads(protocol: str) -> None:
    with running(protocol, settings=SCRUBBED) as cluster:
        topic = filled(cluster)
        for node_id in (FOLLOWER, LEADER):
            path = log_file(cluster, node_id, topic)
            whole = path.read_bytes()
            rot(path, VALUES[5])
            until(partial(is_repaired, cluster, node_id))
            assert path.read_bytes() == whole
            assert metric(cluster, node_id, "tidelog_damaged_ranges") == 0
            assert metric(cluster, node_id, "tidelog_scrubbed_bytes_total") > len(whole)
        assert Asked(cluster, LEADER).values(topic, 0) == VALUES


@pytest.mark.slow
def test_a_leader_settles_the_damaged_end_of_its_log_before_it_leads(cluster: LocalCluster, protocol: str) -> None:
    """All are killed before anybody has noted what is committed. Of the last batches, whoever leads has lost some."""
    topic = filled(cluster)
    files = [log_file(cluster, node_id, topic) for node_id in cluster.node_ids]
    until(lambda: all(is_marked(file) for file in files))
    cluster.kill(*cluster.node_ids)
    for number, file in enumerate(files):
        rot(file, VALUES[-1 - number])
        rot(file, VALUES[-2 - number])
    cluster.restart(*cluster.node_ids)
    until(lambda: Asked(cluster, LEADER).produce(topic, 0, "after").status == 200)
    assert Asked(cluster, LEADER).values(topic, 0) == [*VALUES, "after"]
    asked = [metric(cluster, node_id, "tidelog_repaired_batches_total") for node_id in cluster.node_ids]
    if protocol == ISR:  # else it is applied again from the journals
        assert sum(asked) >= 2


def is_marked(path: Path) -> bool:
    """The catalog says that all batches are durable: none of them can be taken for torn."""
    codec = RowCodec(PartitionId(TopicId(path.parent.parent.name), int(path.parent.name)))
    rows = [row for row in codec.bodies(path.with_suffix(".catalog").read_bytes()) if row is not None]
    batches = [row.sequence for row in rows if row.kind == Kind.BATCH]
    return len(batches) >= RECORDS and max(row.durable for row in rows) > batches[-1]


@pytest.mark.slow
def test_a_batch_that_is_damaged_everywhere_is_answered_by_name_until_one_good_copy_is_back(
    cluster: LocalCluster,
) -> None:
    topic = filled(cluster)
    paths = {node_id: log_file(cluster, node_id, topic) for node_id in cluster.node_ids}
    whole = paths[LEADER].read_bytes()
    rot_everywhere(cluster, topic, VALUES[20])
    for node_id in cluster.node_ids:
        answer = read(cluster, node_id, topic, 20)
        assert (answer.status, answer.code) == (503, 50303), answer
    assert [record["value"] for record in read(cluster, LEADER, topic, 0).body] == VALUES[:20]
    assert [record["value"] for record in read(cluster, LEADER, topic, 21).body] == VALUES[21:]
    assert Asked(cluster, LEADER).produce(topic, 0, "after").status == 200, "what follows goes on"
    labels = f'{{partition="0",topic="{topic}"}}'
    for node_id in cluster.node_ids:
        until(
            partial(lambda node: metric(cluster, node, f"tidelog_partition_ranges_without_copy{labels}") == 1, node_id)
        )
        assert metric(cluster, node_id, f"tidelog_partition_damaged_seconds{labels}") > 0
    good = paths[3]
    with good.open("r+b") as file:
        file.write(whole)
    until(lambda: read(cluster, LEADER, topic, 20).status == 200)
    assert Asked(cluster, LEADER).values(topic, 0) == [*VALUES, "after"]
    until(lambda: all(path.read_bytes()[: len(whole)] == whole for path in paths.values()))
