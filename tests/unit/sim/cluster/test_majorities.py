"""Of partitions that commit by majority: when nobody is left who could tell what was agreed on."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.unit.controller.cluster import PaxosCluster, topic_id
from tidelog.model.ids import PartitionId, TopicId
from tidelog.replication.paxos.apply import Verdict
from tidelog.replication.paxos.events import Applied
from tidelog.replication.paxos.state import Kind, Metadata, Prefix, Slot, Value
from tidelog.replication.quorum import Majority
from tidelog.sim.cluster.book import Book
from tidelog.sim.cluster.majorities import Majorities
from tidelog.sim.cluster.paxos_log import Actor, PaxosLog

PARTITION = PartitionId(TopicId(topic_id("t")), 0)
NUMBER = 1 << 16 | 1
WHOLE = Slot(0, NUMBER, Value(Kind.APPEND, NUMBER, 0, 1, b"digest"))
TORN = replace(WHOLE, faulty=True)


class Ends:
    """The three members of one partition, and how they die."""

    def __init__(self) -> None:
        self.cluster = PaxosCluster(3, 3)
        self.majorities = Majorities()
        self.majorities.created(PARTITION, Book("t-0", True, True), self.cluster.partition, lambda node: 0)

    @property
    def log(self) -> PaxosLog:
        return self.majorities.logs[PARTITION]

    def asks(self) -> None:
        self.log.asks(self.actor(1), NUMBER, Majority((1, 2, 3)), -1)

    def tears(self, *nodes: int) -> None:
        """A power cut leaves the name of what these had, and they start again."""
        for node in nodes:
            self.log.recovered(self.actor(node), TORN)

    @staticmethod
    def actor(node: int) -> Actor:
        return Actor(node, 1, node, "journal")

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
    ends.log.recovered(Actor(2, 2, 2, "journal"), Metadata("journal"))
    assert not any(map(ends.is_the_last_of_too_many, (1, 2, 3)))
    assert list(ends.log.lost) == [3]


def test_all_names_of_a_disk_die_with_it() -> None:
    ends = Ends()
    ends.log.renamed(2, 4)
    ends.log.begins_to_be_lazy(4)
    ends.is_the_last_of_too_many(2)
    assert list(ends.log.lost) == [2]


def asked(whole: tuple[int, ...], torn: tuple[int, ...]) -> Ends:
    """Returns ends with one value proposed: these voters have it whole on their disks, and those have it torn."""
    ends = Ends()
    ends.asks()
    for node in whole:
        ends.log.stored(node, WHOLE)
    ends.tears(*torn)
    return ends


@pytest.mark.parametrize(
    ("whole", "torn", "torn_offsets"),
    [
        pytest.param((), (1, 3), {0}, id="torn on a majority"),
        pytest.param((2,), (1, 3), set(), id="whole on another disk"),
        pytest.param((1, 2), (1, 3), set(), id="whole before, where it was damaged since"),
    ],
)
def test_what_nobody_ever_had_whole_is_chosen_by_its_name(
    whole: tuple[int, ...], torn: tuple[int, ...], torn_offsets: set[int]
) -> None:
    ends = asked(whole, torn)
    assert ends.log.torn_offsets() == set(), "it is not applied yet"
    ends.log.applies(ends.actor(1), Applied(0, WHOLE.value, Verdict.APPLIED, is_faulty=True))
    assert ends.log.torn_offsets() == torn_offsets


def test_a_batch_that_a_journal_has_let_go_was_whole() -> None:
    ends = Ends()
    ends.asks()
    for node in (1, 2):
        ends.log.stored(node, WHOLE)
    ends.log.applies(ends.actor(1), Applied(0, WHOLE.value, Verdict.APPLIED))
    for node in (1, 2):
        ends.log.stored(node, Prefix(1, NUMBER, 1, 0))
    assert ends.log.torn_offsets() == set()
