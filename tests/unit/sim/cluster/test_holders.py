"""A strike may rob a disk of a partition only if a good copy of each batch is left on another."""

from __future__ import annotations

import pytest

from tests.unit.controller.cluster import IsrCluster, PaxosCluster, topic_id
from tidelog.model.ids import PartitionId, TopicId
from tidelog.model.losses import AcceptedLoss, LostRanges
from tidelog.sim.cluster.book import Book
from tidelog.sim.cluster.holders import Holders
from tidelog.sim.cluster.shadows import Held
from tidelog.sim.cluster.truth import Truth

PARTITION = PartitionId(TopicId(topic_id("t")), 0)
TORN = Held(2, 4, 1, 42)


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


def torn() -> Holders:
    """Returns holders of a batch that a leader called committed, and of which all have the row alone."""
    holders = holders_of(IsrCluster())
    book = holders.books[PARTITION]
    book.batches, book.torn = [Held(0, 2, 1, 41), TORN], {TORN}
    return holders


def test_a_batch_that_nobody_has_whole_may_be_given_up_once() -> None:
    holders = torn()
    assert holders.never_had(PARTITION) == {2, 3}
    holders.books[PARTITION].given_up = LostRanges([AcceptedLoss(2, 4, 0, "", 1)])
    assert holders.never_had(PARTITION) == set()


def test_a_batch_that_somebody_has_whole_is_not_given_up() -> None:
    holders = torn()
    holders.shadow(3, PARTITION).batches[TORN.base] = TORN
    assert holders.never_had(PARTITION) == set()


def test_a_deleted_batch_is_not_given_up() -> None:
    holders = torn()
    holders.books[PARTITION].start = 4
    assert holders.never_had(PARTITION) == set()
