"""Three whole brokers, and a partition that nobody leads: what is left of it is read where it is.

Broker 2 has acknowledged alone, and is gone; broker 3 has all but that, and may not lead.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.integration.replication.test_lost_logs import FAST, lose, write
from tests.integration.replication.test_regrouping import give_up
from tests.integration.replication.three_brokers import ThreeBrokers, three_brokers, until
from tidelog.broker.broker import NewTopic
from tidelog.broker.http.call import Call
from tidelog.broker.http.reading import readable_partition
from tidelog.broker.isr.follower import Follower
from tidelog.model.batch_codec import decode_batch
from tidelog.model.batch_header import iter_batches
from tidelog.model.cluster import NO_LEADER
from tidelog.model.errors import LeaderNotAvailable, NotAReplica
from tidelog.model.ids import PartitionId
from tidelog.sim.kit.loop import run
from tidelog.sim.kit.patching import patched

SETTINGS = {"min_insync_replicas": 1, **FAST}


async def read(cluster: ThreeBrokers, node: int, replica: str, offset: int = 0) -> list[bytes]:
    """Returns what one read from there on is answered by this broker, with `replica=`."""
    context = cast("Any", SimpleNamespace(face=cluster.brokers[node].face))
    call = Call(cast("Any", None), "", {"topic": "t", "partition": "0"}, 0.0, _query={"replica": replica})
    fetched = await readable_partition(context, call).read(offset, bytes_max=1 << 20)
    return [record.value or b"" for one in iter_batches(fetched.data) for record in decode_batch(one)]


async def begin(cluster: ThreeBrokers) -> tuple[PartitionId, list[bytes]]:
    placed = await cluster.brokers[1].admin.create_topic(NewTopic("t", assignments={0: (2, 3)}))
    values = await write(cluster, 3)
    await cluster.until_shown(3, values)
    return PartitionId(placed.topic_id, 0), values


async def leave_behind(cluster: ThreeBrokers, partition_id: PartitionId, value: bytes) -> None:
    """Broker 3 hears no answer any more in this leader epoch, nor of this value; then nobody leads."""
    follower = cluster.brokers[3].data.replicas.holders[partition_id]
    assert isinstance(follower, Follower)
    follower.answered = lambda *_: None  # type: ignore[method-assign] # it is deaf
    await cluster.produce(2, value)
    assert cluster.info().isr == (2,)
    await cluster.stop(2)
    await until(
        lambda: all(one.image.topics["t"].partitions[0].leader == NO_LEADER for one in cluster.brokers.values())
    )
    await cluster.settle()


async def bring_back(cluster: ThreeBrokers) -> None:
    await cluster.start(2)
    await until(lambda: cluster.info().leader == 2)


def test_what_is_left_is_read_scrubbed_and_compared_though_nobody_leads() -> None:
    async def story() -> None:
        async with three_brokers(**SETTINGS) as cluster:
            partition_id, values = await begin(cluster)
            await leave_behind(cluster, partition_id, b"more")
            for _ in range(2):
                for replica in ("any", "local"):
                    assert await read(cluster, 3, replica) == values
                    assert await read(cluster, 3, replica, len(values)) == []
                assert "log t-0" in cluster.brokers[3].data.targets()
                report = await cluster.brokers[1].data.loss_finder.find(
                    cluster.brokers[1].topic("t"), cluster.info(), (0, len(values)), [2]
                )
                assert report.refusals == ("nothing is known to be damaged in offsets 0-2",)
                refused = pytest.raises(LeaderNotAvailable, match="broker 3's copy of t-0 is not open now")
                with patched(cluster.brokers[3].face.partitions, "local_copy", lambda *_: None), refused:
                    await read(cluster, 3, "local")
                with pytest.raises(NotAReplica, match="broker 1 holds no copy"):
                    await read(cluster, 1, "local")
                with pytest.raises(LeaderNotAvailable):
                    await read(cluster, 1, "any")
                await cluster.stop(3)
                await cluster.start(3)
                await cluster.settle()
            await bring_back(cluster)
            await cluster.until_shown(3, [*values, b"more"])

    run(story)


def test_an_empty_log_in_place_of_a_lost_one_is_no_copy_before_it_is_filled() -> None:
    async def story() -> None:
        async with three_brokers(**SETTINGS) as cluster:
            partition_id, values = await begin(cluster)
            await leave_behind(cluster, partition_id, b"more")
            await cluster.stop(3)
            lose(cluster, 3, partition_id)
            await cluster.start(3)
            await cluster.settle()
            for offset in (0, 2):
                with pytest.raises(LeaderNotAvailable, match="was lost"):
                    await read(cluster, 3, "any", offset)
            await bring_back(cluster)
            values.append(b"more")
            await until(lambda: cluster.brokers[3].image.topics["t"].partitions[0].leader == 2)
            assert await read(cluster, 3, "any") == values, "if it has them not itself yet, the leader has"
            await until(lambda: cluster.info().isr == (2, 3))
            await leave_behind(cluster, partition_id, b"again more")
            for _ in range(2):
                assert await read(cluster, 3, "any") == values
                assert await read(cluster, 3, "any", len(values)) == []
                await cluster.stop(3)
                await cluster.start(3)
                await cluster.settle()

    run(story)


def test_what_was_given_up_is_not_shown_by_the_one_that_had_it() -> None:
    async def story() -> None:
        async with three_brokers(**SETTINGS) as cluster:
            partition_id, values = await begin(cluster)
            await leave_behind(cluster, partition_id, b"given up")
            assert (await give_up(cluster, 2)).kept == (3,)
            await cluster.produce(3, b"instead")
            await cluster.stop(3)
            await cluster.start(2)
            await cluster.settle()
            assert cluster.info().leader == NO_LEADER
            for replica in ("any", "local"):
                assert await read(cluster, 2, replica) == values

    run(story)
