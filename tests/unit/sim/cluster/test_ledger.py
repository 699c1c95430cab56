"""The ledger judges what the log of a Paxos partition holds when it is opened, and what its leader serves."""

from __future__ import annotations

import pytest

from tests.unit.controller.cluster import topic_id
from tidelog.model.ids import PartitionId, TopicId
from tidelog.sim.cluster.book import Book
from tidelog.sim.cluster.ledger import Ledger
from tidelog.sim.cluster.shadows import Held
from tidelog.sim.cluster.truth import Truth

PARTITION = PartitionId(TopicId(topic_id("t")), 0)
FIRST, SECOND = Held(0, 2, 1, 11), Held(2, 3, 1, 12)
MISDATED = Held(2, 3, 65537, 13)


class Disk:
    """Holds one replica, and asks the ledger about it."""

    def __init__(self, *held: Held, is_rotten: bool) -> None:
        self.truth = Truth(())
        self.ledger = Ledger()
        self.ledger.attach(self.truth)
        self.ledger.books[PARTITION] = Book("t-0", False, True, [FIRST, SECOND])
        self.shadow = self.ledger.shadow(1, PARTITION)
        self.shadow.batches = {batch.base: batch for batch in held}
        if is_rotten:
            self.ledger.rots(1, PARTITION)

    @property
    def is_accepted(self) -> bool:
        self.ledger.finds(self.shadow)
        return not self.truth.violations

    @property
    def is_served(self) -> bool:
        self.ledger.serves(1, PARTITION)
        return not self.truth.violations


def test_a_damaged_disk_may_have_another_leader_epoch_that_no_checksum_covers() -> None:
    assert Disk(FIRST, MISDATED, is_rotten=True).is_accepted
    assert not Disk(FIRST, MISDATED, is_rotten=False).is_accepted


@pytest.mark.parametrize("other", [Held(2, 3, 1, 13), Held(2, 4, 65537, 13), Held(1, 2, 65537, 13)])
def test_a_damaged_disk_has_nothing_else_that_differs(other: Held) -> None:
    assert not Disk(FIRST, other, is_rotten=True).is_accepted


def test_nobody_serves_what_has_another_leader_epoch() -> None:
    assert Disk(FIRST, SECOND, is_rotten=True).is_served
    assert not Disk(FIRST, MISDATED, is_rotten=True).is_served
