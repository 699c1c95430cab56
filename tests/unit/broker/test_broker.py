"""A broker's life: topics made and unmade, restarts, what a damaged metadata log may and may not do."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
from pathlib import Path

import pytest
from msgspec import structs

from tests.unit.broker.conftest import Bench, batch, produce, values
from tidelog.broker.broker import NewTopic
from tidelog.broker.metadata.bootstrap import MetadataDamaged
from tidelog.config.errors import ConfigError
from tidelog.model.errors import (
    InvalidRequest,
    LeaderNotAvailable,
    NotController,
    UnknownPartition,
    UnknownTopic,
    WrongDirectory,
)
from tidelog.model.ids import KEYED_PRODUCER_BIT, PartitionId
from tidelog.storage.directory_identity import IDENTITY_NAMES, DirectoryIdentityStore
from tidelog.storage.disk_files import DiskFiles


async def test_topics_records_and_configs_survive_a_restart(bench: Bench) -> None:
    partition = await bench.topic("t", 3, retention_ms="5000")
    await produce(partition, batch(b"a"))
    cluster_id, epoch = bench.broker.cluster_id, partition.leader_epoch
    broker = await bench.restart()
    assert broker.cluster_id == cluster_id
    assert [info.partition for info in broker.topic("t").partitions] == [0, 1, 2]
    assert broker.topic_config("t").retention_ms == 5000
    assert values(bench.partition()) == [b"a"]
    assert bench.partition().leader_epoch > epoch


async def test_a_directory_is_named_by_the_topics_id(bench: Bench, tmp_path: Path) -> None:
    partition = await bench.topic("orders")
    assert os.listdir(tmp_path / "data" / "topics") == [partition.topic_id]


async def test_validate_only_says_what_would_be_and_changes_nothing(bench: Bench) -> None:
    topic = await bench.broker.admin.create_topic(NewTopic("t", 2), validate_only=True)
    assert [info.replicas for info in topic.partitions] == [(1,), (1,)]
    with pytest.raises(UnknownTopic):
        bench.broker.topic("t")
    with pytest.raises(InvalidRequest):
        await bench.broker.admin.create_topic(NewTopic("t", 0), validate_only=True)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (NewTopic("../etc"), "no topic name"),
        (NewTopic("a\x00b"), "no topic name"),
        (NewTopic("n" * 250), "no topic name"),
        (NewTopic(".."), "no topic name"),
        (NewTopic("__consumer_offsets"), "underscores"),
        (NewTopic("t", 0), "1 to 10000"),
        (NewTopic("t", 10_001), "1 to 10000"),
        (NewTopic("t", 1, 2), "the cluster has 1"),
        (NewTopic("t", 1, 0), "the cluster has 1"),
        (NewTopic("t", assignments={0: [1], 2: [1]}), "without a gap"),
        (NewTopic("t", assignments={0: [9]}), "known brokers"),
        (NewTopic("t", assignments={0: [1, 1]}), "distinct"),
        (NewTopic("t", assignments={0: []}), "distinct"),
        (NewTopic("t", configs={"retention.mss": "1"}), r"retention\.ms"),
        (NewTopic("t", configs={"retention.ms": "soon"}), r"retention\.ms"),
    ],
)
async def test_bad_topics_are_refused_with_a_reason(bench: Bench, request_: NewTopic, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        await bench.broker.admin.create_topic(request_)
    assert not bench.broker.image.topics


async def test_two_requests_for_one_name_make_one_topic(bench: Bench) -> None:
    results = await asyncio.gather(
        *(bench.broker.admin.create_topic(NewTopic("t")) for _ in range(2)), return_exceptions=True
    )
    assert sorted(type(result).__name__ for result in results) == ["Topic", "TopicExists"]


async def test_a_deleted_topic_leaves_no_record_to_its_successor(bench: Bench, tmp_path: Path) -> None:
    partition = await bench.topic()
    await produce(partition, batch(b"old"))
    await bench.broker.admin.delete_topic("t")
    with pytest.raises(UnknownTopic):
        bench.broker.partition("t", 0)
    async with asyncio.timeout(10):
        while os.listdir(tmp_path / "data" / "topics"):
            await asyncio.sleep(0.01)
    again = await bench.topic()
    assert again.topic_id != partition.topic_id
    assert values(again) == []
    await bench.restart()
    assert bench.broker.image.deleted_topics == {}


@pytest.mark.parametrize("protocol", ["isr", "paxos"])
async def test_a_deleted_topic_leaves_nothing_in_memory(bench: Bench, protocol: str) -> None:
    topic_id = (await bench.broker.admin.create_topic(NewTopic("t", 2, configs={"commit.protocol": protocol}))).topic_id
    await bench.broker.admin.delete_topic("t")

    def remembered() -> list[PartitionId]:
        gc.collect()
        return [thing for thing in gc.get_objects() if isinstance(thing, PartitionId) and thing.topic_id == topic_id]

    async with asyncio.timeout(20):
        while bench.broker.image.deleted_topics or remembered():
            await asyncio.sleep(0.01)


async def test_deletion_that_was_cut_short_is_finished_at_the_next_start(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = await bench.topic()
    topics = tmp_path / "data" / "topics"

    def refuse(_: str) -> None:
        raise OSError(errno.EIO, "the disk does not let go")

    monkeypatch.setattr(bench.files, "remove_tree", refuse)
    await bench.broker.admin.delete_topic("t")
    assert os.listdir(topics) == [f"{partition.topic_id}-removed"], "nothing is taken for a log"
    monkeypatch.undo()
    await bench.restart()
    assert os.listdir(topics) == []


async def test_an_unknown_directory_is_never_removed(bench: Bench, tmp_path: Path) -> None:
    stray = tmp_path / "data" / "topics" / ("ab" * 16) / "0"
    stray.mkdir(parents=True)
    (stray / "00000000000000000000.log").write_bytes(b"somebody's data")
    await bench.restart()
    assert (stray / "00000000000000000000.log").read_bytes() == b"somebody's data"


async def test_deletion_can_be_turned_off(bench: Bench) -> None:
    await bench.topic()
    await bench.restart({"delete.topic.enable": False})
    with pytest.raises(InvalidRequest, match=r"delete\.topic\.enable"):
        await bench.broker.admin.delete_topic("t")


async def test_partitions_only_grow(bench: Bench) -> None:
    await bench.topic("t", 2)
    topic = await bench.broker.admin.add_partitions("t", 4)
    assert len(topic.partitions) == 4
    assert bench.partition("t", 3).high_watermark == 0
    for total in (4, 1, 10_001):
        with pytest.raises(InvalidRequest):
            await bench.broker.admin.add_partitions("t", total)
    with pytest.raises(UnknownTopic):
        await bench.broker.admin.add_partitions("none", 2)


async def test_configs_are_altered_in_force_at_once_and_taken_back(bench: Bench) -> None:
    partition = await bench.topic()
    await bench.broker.admin.alter_topic_configs("t", {"max.message.bytes": "500", "segment.bytes": "2048"})
    assert partition.config.max_message_bytes == 500
    assert partition.log.settings.segment_bytes == 2048
    await bench.broker.admin.alter_topic_configs("t", {"max.message.bytes": None})
    assert bench.broker.topic("t").configs == {"segment.bytes": "2048"}
    with pytest.raises(InvalidRequest, match="fixed"):
        await bench.broker.admin.alter_topic_configs("t", {"commit.protocol": "isr"})
    with pytest.raises(InvalidRequest):
        await bench.broker.admin.alter_topic_configs("t", {"segment.bytes": "x"}, validate_only=True)
    await bench.broker.admin.alter_topic_configs("t", {"segment.bytes": "4096"}, validate_only=True)
    assert bench.broker.topic("t").configs == {"segment.bytes": "2048"}


async def test_unknown_partitions_name_the_known_ones(bench: Bench) -> None:
    await bench.topic("t", 2)
    with pytest.raises(UnknownPartition, match="0 to 1"):
        bench.broker.partition("t", 2)


async def test_producer_ids_are_never_given_twice(bench: Bench) -> None:
    first = [await bench.broker.admin.allocate_producer_id() for _ in range(1_500)]
    await bench.restart()
    more = [await bench.broker.admin.allocate_producer_id() for _ in range(10)]
    assert len(set(first + more)) == 1_510
    assert max(first + more) < KEYED_PRODUCER_BIT


async def test_a_second_process_is_refused_and_named(bench: Bench, tmp_path: Path) -> None:
    second = Bench(DiskFiles(str(tmp_path / "data")))
    with pytest.raises(ConfigError, match=str(os.getpid())):
        await second.start()


async def test_a_broker_does_not_say_what_it_is_before_it_knows(bench: Bench) -> None:
    known = bench.broker._metadata.described()
    assert (known.cluster_id, known.voter_id) == (bench.broker.cluster_id, 1)
    await bench.broker.stop()
    with pytest.raises(NotController, match="reading its disk"):
        bench.make()._metadata.described()


async def test_a_directory_is_identified_when_its_cluster_is_founded(bench: Bench) -> None:
    identity = DirectoryIdentityStore(bench.files).current
    assert identity is not None
    member = bench.broker._metadata
    assert (identity.cluster_id, identity.node_id, identity.storage) == (member.cluster_id, 1, member.incarnation)


async def test_a_directory_without_identity_gets_one_at_its_next_start(bench: Bench) -> None:
    before = DirectoryIdentityStore(bench.files).current
    await bench.broker.stop()
    for name in IDENTITY_NAMES:
        bench.files.remove(name)
    await bench.start()
    after = DirectoryIdentityStore(bench.files).current
    assert before is not None and after == structs.replace(before, founds=False)


async def test_another_nodes_directory_is_refused(bench: Bench) -> None:
    await bench.broker.stop()
    with pytest.raises(WrongDirectory, match="belongs to node 1"):
        await bench.start({"node.id": 2})


async def test_a_damaged_metadata_log_stops_the_broker_and_touches_nothing(bench: Bench, tmp_path: Path) -> None:
    partition = await bench.topic()
    await produce(partition, batch(b"a"))
    await bench.broker.stop()
    path = tmp_path / "data" / "metadata" / f"{0:020}.log"
    sound = path.read_bytes()
    at = sound.index(b"TopicCreated")
    path.write_bytes(sound[:at] + b"t" + sound[at + 1 :])
    with pytest.raises(MetadataDamaged, match="restore"):
        await bench.start()
    await bench.broker.stop()
    path.write_bytes(sound)
    await bench.start()
    assert values(bench.partition()) == [b"a"]


async def test_a_partition_that_cannot_be_opened_costs_only_itself(bench: Bench, tmp_path: Path) -> None:
    partition = await bench.topic("t", 2)
    await bench.broker.stop()
    bad = tmp_path / "data" / "topics" / partition.topic_id / "0"
    for file in bad.iterdir():
        file.unlink()
    bad.rmdir()
    bad.write_bytes(b"a file where a directory should be")
    await bench.start()
    with pytest.raises(LeaderNotAvailable):
        bench.broker.partition("t", 0)
    assert (await produce(bench.partition("t", 1), batch(b"a"))).base_offset == 0
