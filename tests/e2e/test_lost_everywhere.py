"""The last acknowledged batch is destroyed in journals and logs right after all brokers were killed: on two of three
disks it costs nothing, on all of them that batch alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from tests.e2e.asking import JSON_RECORDS, Answer, Asked, ask, until
from tests.e2e.clusters import only, running
from tidelog.admin import AdminClient
from tidelog.model.batch_header import iter_batches
from tidelog.testing import LocalCluster

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(240), only("paxos")]

LEADER = 1
VALUES = [f"value-{number:04}" for number in range(10)]
LAST = len(VALUES) - 1
_numbers = count()


@pytest.fixture(scope="module")
def cluster(protocol: str) -> Iterator[LocalCluster]:
    with running(protocol, settings={}) as cluster:
        yield cluster


def killed(cluster: LocalCluster) -> tuple[str, dict[int, Path]]:
    """Writes the values to a new topic, and kills all brokers at the last acknowledgement; returns where it lies."""
    topic = f"t-{next(_numbers)}"

    async def create() -> None:
        async with AdminClient(cluster.bootstrap) as admin:
            await admin.create_topic(topic, replicas_assignments={0: [1, 2, 3]})

    asyncio.run(create())
    (described,) = ask(f"{cluster.broker(LEADER).url}/metadata?topics={topic}").body["topics"]
    topic_id: str = described["topic_id"]
    for value in VALUES:
        Asked(cluster, LEADER).append(topic, 0, value)
    cluster.kill(*cluster.node_ids)
    return topic, {node: cluster.broker(node).data_dir / "topics" / topic_id / "0" for node in cluster.node_ids}


def destroy(directory: Path, value: str) -> int:
    """Overwrites each batch with this value by zeros, in the journal and in the log; returns how many there were."""
    found = 0
    for path in (*directory.glob("journal/*.log"), *directory.glob("*.log")):
        at, content = 0, path.read_bytes()
        for batch in iter_batches(content):
            size = len(batch.data)
            if value.encode() in bytes(batch.data):
                found += 1
                with path.open("r+b") as file:
                    file.seek(at)
                    file.write(bytes(size))
            at += size
    return found


def read(cluster: LocalCluster, node_id: int, topic: str, offset: int) -> Answer:
    url = f"{cluster.broker(node_id).url}/topics/{topic}/partitions/0/records?offset={offset}&replica=local"
    return ask(url, media=JSON_RECORDS)


def shows(cluster: LocalCluster, node_id: int, topic: str, offset: int, values: list[str]) -> bool:
    """Tells if a broker's own copy has these values from an offset on, and then ends, or is damaged."""
    answer = read(cluster, node_id, topic, offset)
    return answer.status == 200 and [record["value"] for record in answer.body] == values


@pytest.mark.parametrize("missed", [1, 2, 3])
def test_one_good_copy_is_enough(cluster: LocalCluster, missed: int) -> None:
    topic, directories = killed(cluster)
    assert all(destroy(directory, VALUES[LAST]) for node, directory in directories.items() if node != missed)
    cluster.restart(*cluster.node_ids)
    until(lambda: Asked(cluster, LEADER).produce(topic, 0, "after").status == 200)
    for node in cluster.node_ids:
        until(partial(shows, cluster, node, topic, 0, [*VALUES, "after"]))


def test_one_that_is_lost_everywhere_is_answered_by_name_and_the_partition_goes_on(cluster: LocalCluster) -> None:
    topic, directories = killed(cluster)
    assert all(destroy(directory, VALUES[LAST]) for directory in directories.values())
    cluster.restart(*cluster.node_ids)
    until(lambda: Asked(cluster, LEADER).produce(topic, 0, "after").status == 200)
    for node in cluster.node_ids:
        until(partial(shows, cluster, node, topic, LAST + 1, ["after"]))
        answer = read(cluster, node, topic, LAST)
        assert (answer.status, answer.code) == (503, 50303), answer
        assert shows(cluster, node, topic, 0, VALUES[:LAST])
