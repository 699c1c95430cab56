"""Logs of replicas on their way open: nobody waits, none serves too early, and one that fails costs its partition."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable

import pytest

from tests.unit.storage.conftest import WatchedFiles
from tidelog.broker.partitions.openings import AT_ONCE
from tidelog.broker.partitions.replica_logs import ReplicaLogs
from tidelog.broker.runtime.log_writer import LogWriter
from tidelog.broker.runtime.stats import Stats
from tidelog.config.schema import BrokerConfig
from tidelog.config.topics import topic_config
from tidelog.model.ids import PartitionId, TopicId
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.environment import SimClock, SimRunner
from tidelog.sim.kit.loop import run
from tidelog.sim.kit.seeds import stream
from tidelog.storage.directory_identity import DirectoryIdentity
from tidelog.storage.log_manager import LogManager, log_directory
from tidelog.storage.partition_log import PartitionLog

HELD = 10
OLD, NEW = HELD - 1, HELD
MANY = 5 * AT_ONCE


def log_of(number: int) -> PartitionId:
    return PartitionId(TopicId("ab" * 16), number)


class Place:
    """The logs of a broker whose disk has taken note of those of before position 10."""

    def __init__(self) -> None:
        self.files = WatchedFiles(SimDisk(1))
        self.manager = LogManager(self.files, open_max=64, new_incarnation=lambda: "i")
        self.manager.identity.store(DirectoryIdentity(cluster_id="c", node_id=1, storage="s", held_position=HELD))
        clock, stats = SimClock(asyncio.get_running_loop()), Stats()
        self.writer = LogWriter(SimRunner(stream(1)), clock, stats)
        self.logs = ReplicaLogs(self.manager, clock, stats, self.writer, lambda _: None)
        self.news = asyncio.Event()
        self.logs.on_opened = self.news.set
        self.task = asyncio.ensure_future(self.logs.openings.run())

    def get(self, number: int, since: int = NEW) -> PartitionLog | None:
        return self.logs.get(log_of(number), "t", topic_config(BrokerConfig(), {}), since, is_alone=True)

    async def released(self) -> list[int]:
        """The next partitions that may have a role."""
        while True:
            await self.news.wait()
            self.news.clear()
            found = await self.logs.release(NEW + 1)
            if found:
                return [known.partition for known in found]

    async def close(self) -> None:
        await self.logs.openings.close()
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def play(story: Callable[[Place], Awaitable[None]]) -> None:
    async def main() -> None:
        place = Place()
        await story(place)
        await place.close()

    run(main)


def test_who_asks_for_a_log_does_not_wait_and_asks_again_when_it_is_open() -> None:
    async def story(place: Place) -> None:
        assert place.get(0) is None and place.logs.is_opening(log_of(0))
        assert await place.released() == [0]
        log = place.get(0)
        assert log is not None and log.log_end_offset == 0 and not place.logs.is_opening(log_of(0))

    play(story)


def test_new_logs_are_released_together_when_the_disk_has_taken_note_of_all() -> None:
    async def story(place: Place) -> None:
        for number in range(MANY):
            place.get(number)
        assert place.manager.held_position == HELD
        assert await place.released() == list(range(MANY))
        assert place.manager.held_position == NEW + 1, "from now on it is missed if it gets lost"

    play(story)


def test_a_log_that_is_open_and_not_released_is_given_to_nobody() -> None:
    async def story(place: Place) -> None:
        place.get(0)
        await place.news.wait()
        assert place.logs.is_open(log_of(0)) and place.get(0) is None

    play(story)


def test_old_logs_are_released_as_they_are_opened_and_first_who_is_waited_for() -> None:
    async def story(place: Place) -> None:
        for number in range(MANY):
            place.get(number, OLD)
        place.logs.openings.hurry(log_of(MANY - 1))
        assert await place.released() == [MANY - 1, *range(AT_ONCE - 1)]
        assert place.manager.held_position == HELD

    play(story)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO])
def test_a_log_that_cannot_be_opened_costs_its_partition_and_is_tried_again(number: int) -> None:
    async def story(place: Place) -> None:
        bad = f"{log_directory(log_of(1))}"
        place.files.fails = lambda kind, path: number if kind == "open" and path.startswith(bad) else 0
        for one in range(3):
            place.get(one)
        assert sorted(await place.released()) == [0, 1, 2]
        assert list(place.logs.troubled) == [log_of(1)]
        assert place.get(0) is not None and place.get(1) is None and place.get(2) is not None
        assert not place.logs.is_opening(log_of(1)), "not with each image of the metadata"
        assert place.manager.held_position == NEW, "it may not be made"
        place.files.fails = lambda kind, path: 0
        place.logs.close_troubled()
        assert place.get(1) is None
        assert await place.released() == [1]
        assert place.get(1) is not None and place.manager.held_position == NEW + 1

    play(story)


def test_a_directory_that_takes_no_names_costs_the_logs_that_were_to_be_in_it() -> None:
    async def story(place: Place) -> None:
        topic = log_directory(log_of(0)).rpartition("/")[0]
        place.files.fails = lambda kind, path: errno.EIO if (kind, path) == ("sync_dir", topic) else 0
        place.get(0)
        assert await place.released() == [0]
        assert place.get(0) is None and list(place.logs.troubled) == [log_of(0)]
        assert not place.files.exists(log_directory(log_of(0))), "a second fsync would say yes to a name that is lost"

    play(story)


def test_what_is_withdrawn_is_not_opened_and_what_is_under_way_comes_to_its_end_first() -> None:
    async def story(place: Place) -> None:
        for number in range(MANY):
            place.get(number, OLD)
        await asyncio.sleep(0)  # the first group is under way
        await place.logs.withdraw([log_of(number) for number in range(MANY)])
        assert len(place.manager.logs) == AT_ONCE and not place.logs.pending
        place.news.set()
        assert await place.logs.release(NEW) == []

    play(story)


def test_nothing_is_under_way_once_it_is_closed() -> None:
    async def story(place: Place) -> None:
        for number in range(MANY):
            place.get(number, OLD)
        await asyncio.sleep(0)
        await place.logs.openings.close()
        assert len(place.manager.logs) == AT_ONCE
        assert place.manager.close({}) == []
        assert not place.logs.openings.pending

    play(story)
