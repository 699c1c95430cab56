"""Each row of the table: who may say what about a batch that a new leader has lost, and what follows."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from tidelog.model.holdings import Holding
from tidelog.replication.isr.settlement import (
    Answered,
    MembersLost,
    PutBack,
    Repaired,
    Settlement,
    SettlementEffect,
    TruncateAt,
    TruncatedAt,
)

EPOCH = 7
HIGH_WATERMARK = 10
MEMBERS = {2: 20, 3: 30}


def settlement(*damaged: int) -> Settlement:
    """Batches of one record each."""
    return Settlement(EPOCH, MEMBERS, HIGH_WATERMARK, {at: at + 1 for at in damaged})


def says(holding: Holding, offset: int = 12, node: int = 2) -> Answered:
    """A member, in the life and the epoch that count."""
    return Answered(node, MEMBERS.get(node, 40), EPOCH, HIGH_WATERMARK, offset, holding)


def test_what_is_below_the_high_watermark_holds_nobody_up() -> None:
    assert settlement(3, 9).is_settled
    assert settlement(3, 10).open == [10]


def test_without_another_member_damage_is_taken_for_committed() -> None:
    settling = Settlement(EPOCH, {}, HIGH_WATERMARK, {8: 9, 12: 13})
    assert settling.is_settled
    assert settling.committed_end == 13, "or its followers would wait for ever to hear that"
    assert Settlement(EPOCH, {}, HIGH_WATERMARK, {8: 9}).committed_end == HIGH_WATERMARK


@pytest.mark.parametrize("node", [2, 3, 4])
def test_a_copy_counts_whoever_has_it(node: int) -> None:
    settling = settlement(12)
    answer = replace(says(Holding.HAVE, node=node), leader_epoch=1, broker_epoch=1)
    assert settling.step(answer) == [PutBack(12)]
    assert settling.open == [12], "not before it is in its place"
    assert settling.step(Repaired(12)) == []
    assert settling.is_settled


def test_one_member_that_lacks_it_proves_that_it_was_not_committed() -> None:
    settling = settlement(12, 14, 15)
    assert settling.step(says(Holding.DONT_HAVE, 14)) == [TruncateAt(14)]
    assert settling.open == [12, 14, 15], "not before it is done"
    assert settling.step(TruncatedAt(14)) == []
    assert settling.open == [12]


@pytest.mark.parametrize(
    "answer",
    [
        replace(says(Holding.DONT_HAVE), node=4, broker_epoch=40),
        replace(says(Holding.DONT_HAVE), broker_epoch=21),
        replace(says(Holding.DONT_HAVE), broker_epoch=19),
        replace(says(Holding.DONT_HAVE), leader_epoch=EPOCH - 1),
        replace(says(Holding.DONT_HAVE), leader_epoch=-1),
        says(Holding.HAVE_FAULTY),
        says(Holding.UNKNOWN),
    ],
    ids=["no member", "a later life", "an earlier life", "an older epoch", "no epoch", "faulty", "unknown"],
)
def test_what_proves_nothing_changes_nothing(answer: Answered) -> None:
    settling = settlement(12)
    assert settling.step(answer) == []
    assert settling.open == [12]


def test_what_every_other_member_has_damaged_counts_as_committed() -> None:
    settling = Settlement(EPOCH, MEMBERS, HIGH_WATERMARK, {11: 12, 12: 17, 20: 21})
    assert settling.step(says(Holding.HAVE_FAULTY, node=2)) == []
    assert settling.step(says(Holding.HAVE_FAULTY, node=2)) == []
    assert settling.step(says(Holding.HAVE_FAULTY, node=4)) == []
    assert settling.step(says(Holding.HAVE_FAULTY, offset=20, node=3)) == []
    assert settling.open == [11, 12, 20], "node 3 may have it whole, or lack it"
    assert settling.step(says(Holding.HAVE_FAULTY, node=3)) == []
    assert settling.open == [20], "and so does all before it"
    assert settling.committed_end == 17
    assert settling.step(says(Holding.DONT_HAVE)) == [], "nobody can take that back"


@pytest.mark.parametrize(
    ("answer", "counts"),
    [
        (replace(says(Holding.HAVE_FAULTY, node=3), broker_epoch=31), True),
        (replace(says(Holding.HAVE_FAULTY, node=3), broker_epoch=29), False),
        (replace(says(Holding.HAVE_FAULTY, node=3), leader_epoch=EPOCH - 1), False),
        (says(Holding.UNKNOWN, node=3), False),
    ],
    ids=["a later life", "an earlier life", "an older epoch", "its row is lost, too"],
)
def test_whose_damage_counts(answer: Answered, counts: bool) -> None:
    settling = settlement(12)
    settling.step(says(Holding.HAVE_FAULTY, node=2))
    settling.step(answer)
    assert settling.is_settled is counts


def test_a_member_that_lost_its_log_is_not_waited_for() -> None:
    settling = settlement(11, 12, 20)
    settling.step(says(Holding.HAVE_FAULTY, node=2))
    assert settling.open == [11, 12, 20], "node 3 may have it whole, or lack it"
    assert settling.step(MembersLost(frozenset({3}))) == []
    assert settling.open == [20], "node 2 may have that whole, or lack it"
    assert settling.committed_end == 13
    settling.step(MembersLost(frozenset()))
    settling.step(says(Holding.HAVE_FAULTY, offset=20, node=2))
    assert settling.is_settled and settling.committed_end == 21


def test_when_all_members_lost_their_logs_damage_is_taken_for_committed() -> None:
    settling = settlement(11, 12)
    settling.step(MembersLost(frozenset(MEMBERS)))
    assert settling.is_settled and settling.committed_end == 13


def test_a_member_that_lacks_it_outweighs_all_that_lost_their_logs() -> None:
    settling = settlement(12)
    settling.step(MembersLost(frozenset({3})))
    assert settling.step(says(Holding.DONT_HAVE, node=2)) == [TruncateAt(12)]


def test_a_member_that_lacks_it_outweighs_all_that_have_it_damaged() -> None:
    settling = settlement(12)
    settling.step(says(Holding.HAVE_FAULTY, node=2))
    assert settling.step(says(Holding.DONT_HAVE, node=3)) == [TruncateAt(12)]
    settling.step(TruncatedAt(12))
    assert settling.is_settled and settling.committed_end == HIGH_WATERMARK


def test_what_a_member_knows_to_be_committed_is_what_the_leader_begins_with() -> None:
    settling = settlement(12)
    settling.step(replace(says(Holding.UNKNOWN), high_watermark=15))
    assert settling.is_settled and settling.committed_end == 15
    settling = settlement(12)
    settling.step(replace(says(Holding.UNKNOWN, node=4), high_watermark=15))
    assert settling.is_settled and settling.committed_end == HIGH_WATERMARK


@pytest.mark.parametrize("holding", [Holding.HAVE, Holding.HAVE_FAULTY])
def test_the_same_batch_below_anybodys_high_watermark_is_committed(holding: Holding) -> None:
    """Or a leader whose followers have it damaged, too, or one before it, would begin below it, and wait for them for
    ever."""
    settling = Settlement(EPOCH, MEMBERS, HIGH_WATERMARK, {11: 12, 13: 15, 17: 18})
    knows = replace(says(holding, node=4), high_watermark=15, leader_epoch=EPOCH + 1)
    assert settling.step(replace(knows, offset=11)) == []
    assert settling.open == [13, 17] and settling.committed_end == 12, "what lies behind may be another batch"
    assert settling.step(replace(knows, offset=13)) == []
    assert settling.open == [17] and settling.committed_end == 15
    settling.step(replace(knows, offset=17, high_watermark=17))
    assert settling.open == [17] and settling.committed_end == 17, "only what is before it is below that high watermark"


@pytest.mark.parametrize(
    "answer",
    [
        says(Holding.DONT_HAVE, node=4),
        says(Holding.DELETED, node=4),
        says(Holding.UNKNOWN, node=4),
        replace(says(Holding.HAVE_FAULTY, node=4), is_named=False),
        replace(says(Holding.HAVE, node=4), is_named=False),
        replace(says(Holding.HAVE_FAULTY, node=4), offset=14),
    ],
    ids=["another batch", "deleted", "its row is lost", "whatever is there", "whole, whatever it is", "not asked for"],
)
def test_a_high_watermark_that_may_be_another_logs_is_nobodys(answer: Answered) -> None:
    settling = settlement(12)
    settling.step(replace(answer, high_watermark=15))
    assert settling.is_settled and settling.committed_end == HIGH_WATERMARK


def test_what_was_truncated_is_not_committed_by_a_late_word() -> None:
    settling = settlement(12)
    settling.step(says(Holding.DONT_HAVE))
    settling.step(TruncatedAt(12))
    settling.step(replace(says(Holding.HAVE_FAULTY, node=4), high_watermark=15))
    assert settling.committed_end == HIGH_WATERMARK


def test_what_another_has_deleted_was_committed() -> None:
    settling = settlement(11, 12, 13)
    assert settling.step(says(Holding.DELETED)) == []
    assert settling.open == [13], "and all before it"
    assert settling.step(says(Holding.DONT_HAVE)) == [], "nobody can take that back"


def test_what_another_knows_to_be_committed_is() -> None:
    settling = settlement(12, 13)
    assert settling.step(replace(says(Holding.HAVE_FAULTY), node=4, high_watermark=13)) == []
    assert settling.open == [13]


# -- any order -----------------------------------------------------------------------------------------------------


class Cluster:
    """A log of one-record batches on each replica; a commit takes all members. `rotten` are damaged copies.

    An earlier leader may live on: who has not adopted the new epoch still fetches from it, and it still commits. All
    that broker 1 had when it was elected it has acknowledged.
    """

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.lives = {2: 20, 3: 30, 4: 40}
        self.members = {node: self.lives[node] for node in rng.sample([2, 3], rng.randint(1, 2))}
        self.ends = {node: rng.randint(0, 9) for node in self.lives}
        self.end = self.acknowledged = rng.randint(1, 9)
        self.committed = min([self.end, *(self.ends[node] for node in self.members)])
        self.high_watermark = rng.randint(0, self.committed)
        self.rotten = {(node, i) for node in (1, *self.lives) for i in range(10) if rng.random() < 0.3}
        self.epochs = {node: rng.choice([EPOCH, EPOCH - 1]) for node in self.lives}
        self.settling = Settlement(EPOCH, self.members, self.high_watermark, {at: at + 1 for at in self.damaged})

    @property
    def damaged(self) -> list[int]:
        return [i for i in range(self.end) if (1, i) in self.rotten]

    @property
    def held_by_all(self) -> int:
        """So much each member has, damaged or not: no election loses it. Who has lost something in a restart is no
        member any more."""
        members = [node for node, life in self.members.items() if self.lives[node] == life]
        return min([self.end, *(self.ends[node] for node in members)])

    def fetch_from_the_earlier_leader(self, node: int) -> None:
        if self.epochs[node] < EPOCH and self.ends[node] < self.acknowledged:
            self.ends[node] += 1
            if all(self.lives[member] == life for member, life in self.members.items()):
                reached = min([self.acknowledged, *(self.ends[member] for member in self.members)])
                self.committed = max(self.committed, reached)
            assert self.committed <= self.end, "what was truncated is committed"

    def answer(self) -> Answered:
        rng, node = self.rng, self.rng.choice([*self.lives])
        self.fetch_from_the_earlier_leader(rng.choice([*self.lives]))
        if rng.random() < 0.1:  # it restarts, and has lost what is not committed, or all of it if it is no member now
            self.lives[node] += 1
            self.ends[node] = rng.randint(0, self.ends[node])
        if rng.random() < 0.3:
            self.epochs[node] = EPOCH
        offset = rng.randint(0, 9)
        if (node, offset) in self.rotten and offset < self.ends[node]:
            holding = Holding.HAVE_FAULTY
        else:
            holding = Holding.HAVE if offset < self.ends[node] else Holding.DONT_HAVE
        known = rng.randint(0, self.committed)
        return Answered(node, self.lives[node], self.epochs[node], known, offset, holding)

    def obey(self, effect: SettlementEffect) -> None:
        if isinstance(effect, TruncateAt):
            assert effect.offset >= self.committed, "committed records were truncated"
            self.end = effect.offset
            self.settling.step(TruncatedAt(self.end))
        elif self.rng.random() < 0.8:
            self.rotten.discard((1, effect.offset))
            self.settling.step(Repaired(effect.offset))


@pytest.mark.parametrize("block", range(10))
def test_nothing_committed_is_ever_cut_in_whatever_order_answers_come(block: int) -> None:
    truncations = repairs = waits = 0
    for seed in range(block * 200, block * 200 + 200):
        cluster = Cluster(seed)
        for _ in range(60):
            for effect in cluster.settling.step(cluster.answer()):
                cluster.obey(effect)
                truncations, repairs = (
                    truncations + isinstance(effect, TruncateAt),
                    repairs + isinstance(effect, PutBack),
                )
            assert cluster.settling.committed_end <= cluster.held_by_all
            for offset in cluster.settling.open:
                assert cluster.high_watermark <= offset < cluster.end
                assert offset in cluster.damaged
        waits += not cluster.settling.is_settled
    assert truncations and repairs and waits


def test_whoever_has_the_first_open_batch_damaged_too_is_awaited_no_more() -> None:
    settling = settlement(12, 14)
    assert settling.awaited == {2, 3}
    settling.step(says(Holding.UNKNOWN))
    settling.step(says(Holding.HAVE_FAULTY, 14))
    settling.step(replace(says(Holding.HAVE_FAULTY), leader_epoch=EPOCH - 1))
    assert settling.awaited == {2, 3}
    settling.step(says(Holding.HAVE_FAULTY))
    assert settling.awaited == {3}
    settling.step(Repaired(12))
    assert settling.open == [14] and settling.awaited == {3}
    settling.step(MembersLost(frozenset({3})))
    assert settling.is_settled and not settling.awaited
