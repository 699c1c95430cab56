"""Of partitions that commit by majority: when nobody is left who could tell what was agreed on."""

from __future__ import annotations

from tests.unit.controller.cluster import PaxosCluster, topic_id
from tidelog.model.ids import PartitionId, TopicId
from tidelog.replication.paxos.state import Metadata
from tidelog.sim.cluster.book import Book
from tidelog.sim.cluster.majorities import Majorities
from tidelog.sim.cluster.paxos_log import Actor, PaxosLog

PARTITION = PartitionId(TopicId(topic_id("t")), 0)


class Ends:
    """Three members of one partition, and how they die."""

    def __init__(self) -> None:
        self.cluster = PaxosCluster()
        self.majorities = Majorities()
        self.majorities.created(PARTITION, Book("t-0", True, True), self.cluster.partition, lambda node: 0)

    @property
    def log(self) -> PaxosLog:
        return self.majorities.logs[PARTITION]

    def is_the_last_of_too_many(self, node: int) -> bool:
        return self.majorities.loses_memory(PARTITION, self.cluster.partition, node)


def test_a_mark_on_the_disk_is_enough_to_be_dead() -> None:
    """Nothing was answered from memory yet, but who starts again cannot know that."""
    ends = Ends()
    for engine_id in (2, 3):
        ends.log.begins_to_be_lazy(engine_id)
    assert not ends.is_the_last_of_too_many(1)
    assert not ends.is_the_last_of_too_many(2)
    assert ends.is_the_last_of_too_many(3)


def test_who_has_everything_on_the_disk_and_says_so_may_die() -> None:
    ends = Ends()
    for engine_id in (1, 2, 3):
        ends.log.begins_to_be_lazy(engine_id)
    ends.log.rests(1)
    ends.log.found(Actor(2, 2, 2, "journal"), Metadata("journal"))
    assert not any(map(ends.is_the_last_of_too_many, (1, 2, 3)))
    assert list(ends.log.lost) == [3]


def test_all_names_of_a_disk_die_with_it() -> None:
    ends = Ends()
    ends.log.renamed(2, 4)
    ends.log.begins_to_be_lazy(4)
    ends.is_the_last_of_too_many(2)
    assert list(ends.log.lost) == [2]
