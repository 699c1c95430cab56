"""A strike may rob a disk of a partition only if a good copy of each batch is left on another."""

from __future__ import annotations

import pytest

from tests.unit.controller.cluster import IsrCluster, PaxosCluster, topic_id
from tidelog.model.ids import PartitionId, TopicId
from tidelog.sim.cluster.book import Book
from tidelog.sim.cluster.holders import Holders
from tidelog.sim.cluster.truth import Truth

PARTITION = PartitionId(TopicId(topic_id("t")), 0)


def holders_of(cluster: IsrCluster) -> Holders:
    """Returns what is known of its partition, on three disks without damage."""
    holders = Holders()
    holders.attach(Truth((), image=cluster.image))
    book = holders.books[PARTITION] = Book("t-0", is_volatile=False, is_paxos=isinstance(cluster, PaxosCluster))
    if book.is_paxos:
        holders.majorities.created(PARTITION, book, cluster.partition, lambda node: 0)
    return holders


def isr_without_the_third() -> IsrCluster:
    cluster = IsrCluster()
    cluster.crash(3)
    assert cluster.sets[1:] == ((1, 2), ())
    return cluster


@pytest.mark.parametrize(
    ("cluster", "rotten", "robbable"),
    [
        pytest.param(IsrCluster(), (), (1, 2, 3), id="others are in sync"),
        pytest.param(IsrCluster(), (1,), (1,), id="others are in sync and sound"),
        pytest.param(IsrCluster(), (1, 2, 3), (), id="any of them may be the one that has it back"),
        pytest.param(isr_without_the_third(), (), (1, 2, 3), id="out of sync, and never damaged"),
        pytest.param(isr_without_the_third(), (2, 3), (2, 3), id="out of sync, and a member is sound"),
        pytest.param(isr_without_the_third(), (1, 2, 3), (), id="out of sync, and no member is sound"),
        pytest.param(PaxosCluster(), (1,), (1,), id="members of a majority are sound"),
        pytest.param(PaxosCluster(), (1, 2, 3), (), id="no member of a majority is sound"),
    ],
)
def test_who_may_be_robbed_beside_damage(
    cluster: IsrCluster, rotten: tuple[int, ...], robbable: tuple[int, ...]
) -> None:
    holders = holders_of(cluster)
    for node in rotten:
        holders.rots(node, PARTITION)
    assert tuple(node for node in (1, 2, 3) if holders.may_rob(node, PARTITION)) == robbable
    assert tuple(node for node in (1, 2, 3) if holders.may_wipe(node)) == robbable


def test_no_journal_of_a_guarded_partition_may_go() -> None:
    """Its copies are damaged already: who forgets what it accepted takes the proof that one was chosen."""
    holders = holders_of(PaxosCluster())
    assert holders.may_forget(PARTITION, 1)
    holders.guards(PARTITION)
    assert not holders.may_forget(PARTITION, 1)
