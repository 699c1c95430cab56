"""What this broker holds no more is removed, and nothing else: not on an old image's word, nor because of silence."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection

import pytest

from tests.unit.controller.cluster import IsrCluster, topic_id
from tidelog.broker.replicas.removal import Removal
from tidelog.broker.runtime.log_writer import LogWriter
from tidelog.broker.runtime.stats import Stats
from tidelog.controller.commands import DeleteTopic
from tidelog.model.cluster import ClusterImage
from tidelog.model.ids import NodeId, PartitionId, TopicId
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.environment import SimClock, SimRunner
from tidelog.sim.kit.faults import FaultRates
from tidelog.sim.kit.loop import run
from tidelog.sim.kit.seeds import stream
from tidelog.storage.log_manager import LogManager
from tidelog.storage.partition_log import LogSettings

MINE = PartitionId(TopicId(topic_id("t")), 0)
NODE = NodeId(3)
SETTINGS = LogSettings(segment_bytes=1 << 20, segment_ms=1 << 40)


class Place:
    """Broker 3's disk. It holds a log of partition t-0."""

    def __init__(self) -> None:
        self.disk = SimDisk(1)
        self.reported: list[TopicId] = []
        self.writer = LogWriter(SimRunner(stream(1)), SimClock(asyncio.get_running_loop()), Stats())
        self.writing = asyncio.ensure_future(self.writer.run())
        self.start()
        self.open(MINE)

    def start(self) -> None:
        """A process begins."""
        self.manager = LogManager(self.disk, open_max=64, new_incarnation=lambda: "i")
        self.removal = Removal(NODE, self.manager, self.writer, self.reported.append)
        self.removing = asyncio.ensure_future(self.removal.run())

    def restart(self) -> None:
        self.manager.close({})
        self.removing.cancel()
        self.start()

    def open(self, partition_id: PartitionId) -> None:
        self.manager.open_log(partition_id, SETTINGS, 0)

    async def follow(
        self, image: ClusterImage, held: Collection[PartitionId] = (), *, is_admitted: bool = True
    ) -> list[PartitionId]:
        removed = await self.removal.follow(image, held, is_admitted=is_admitted)
        while self.removal._aside:
            await asyncio.sleep(0.001)
        return removed

    @property
    def stored(self) -> list[PartitionId]:
        return self.manager.partition_ids()


def play(story: Callable[[Place], Awaitable[None]]) -> None:
    async def main() -> None:
        place = Place()
        try:
            await story(place)
        finally:
            tasks = (place.writing, place.removing)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    run(main)


def moved_away() -> IsrCluster:
    """Partition t-0 was on brokers 1 to 3, and is on 4, 2 and 1 now."""
    cluster = IsrCluster(4)
    cluster.reassign(4, 2, 1)
    cluster.ask(1, 2, 3, 4)
    assert NODE not in cluster.partition.replicas
    return cluster


def test_a_replica_stays_until_the_move_is_complete() -> None:
    async def story(place: Place) -> None:
        cluster = IsrCluster(4)
        cluster.reassign(4, 2, 1)
        assert await place.follow(cluster.image, [MINE]) == []
        assert place.stored == [MINE]
        cluster.ask(1, 2, 3, 4)
        assert await place.follow(cluster.image) == [MINE]
        assert (place.stored, list(place.manager.logs)) == ([], [])

    play(story)


def test_a_replica_that_moved_away_while_its_broker_was_down_is_removed_when_it_is_back() -> None:
    async def story(place: Place) -> None:
        place.restart()
        image = moved_away().image
        assert await place.follow(image, is_admitted=False) == []
        assert place.stored == [MINE], "an image from before its registration may be of the past"
        assert await place.follow(image) == [MINE]
        assert place.stored == []

    play(story)


def test_what_the_metadata_does_not_know_is_left_alone() -> None:
    async def story(place: Place) -> None:
        stranger = PartitionId(TopicId("ab" * 16), 0)
        beyond = PartitionId(MINE.topic_id, 7)
        for partition_id in (stranger, beyond):
            place.open(partition_id)
        place.restart()
        await place.follow(ClusterImage("c1"))
        await place.follow(moved_away().image)
        assert sorted(place.stored) == sorted([stranger, beyond])

    play(story)


def test_a_topic_that_was_deleted_after_its_replica_had_moved_away_is_removed_too() -> None:
    async def story(place: Place) -> None:
        place.restart()
        cluster = moved_away()
        cluster.do(DeleteTopic("t", topic_id("t")))
        assert await place.follow(cluster.image) == [MINE]
        assert (place.stored, place.reported) == ([], []), "nobody waits for this broker's report"

    play(story)


@pytest.mark.parametrize("sync_error", [0.0, 1.0])
def test_partitions_of_a_deleted_topic_are_reported_once_whatever_the_disk_does(sync_error: float) -> None:
    async def story(place: Place) -> None:
        cluster = IsrCluster(4)
        cluster.do(DeleteTopic("t", topic_id("t")))
        place.disk.medium.faults = FaultRates(sync_error=sync_error)
        assert await place.follow(cluster.image) == [MINE]
        place.disk.medium.faults = FaultRates()
        assert await place.follow(cluster.image) == []
        assert (place.stored, place.reported) == ([], [TopicId(topic_id("t"))])

    play(story)


def test_a_disk_that_refuses_is_asked_again() -> None:
    async def story(place: Place) -> None:
        image = moved_away().image
        place.disk.medium.faults = FaultRates(sync_error=1.0)
        assert await place.follow(image) == []
        place.disk.medium.faults = FaultRates()
        assert await place.follow(image) == [MINE]
        assert place.stored == []

    play(story)


def test_a_replica_that_comes_back_begins_with_nothing() -> None:
    async def story(place: Place) -> None:
        cluster = moved_away()
        await place.follow(cluster.image)
        cluster.reassign(3, 2, 1)
        place.open(MINE)
        assert await place.follow(cluster.image, [MINE]) == []
        assert place.manager.logs[MINE].log_end_offset == 0

    play(story)
