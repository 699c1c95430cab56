"""What must be true of a group: each rule notices what breaks it, and nothing that looks like it."""

from __future__ import annotations

import pytest

from tidelog.model.groups import CommitAnswer, CommitOffsets, CommittedOffset, CommitVerdict, OffsetsAnswer
from tidelog.model.ids import TopicPartition
from tidelog.sim.cluster.groups.coverage import Coverage
from tidelog.sim.cluster.groups.rules import NOT_OWNED, GroupRules

WHERE = TopicPartition("t", 0)


class Told:
    """A group, and what its rules found."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.rules = GroupRules("g", lambda rule, what: self.found.append(rule))
        self.rules.hands_out("a", WHERE, 0, 100, range(100))

    def commit(
        self, member: str, epoch: int, offset: int, *, sequence: int = 1, sent: int | None = None, code: int = 0
    ) -> None:
        request = CommitOffsets(
            group="g",
            member_id=member,
            member_epoch=epoch,
            sequence=sequence,
            offsets=(CommittedOffset("t", 0, offset),),
        )
        answer = CommitAnswer((CommitVerdict("t", 0, code),))
        self.rules.kept(self.rules.sends() if sent is None else sent, request, answer)

    def find(self, offset: int) -> None:
        self.rules.found(self.rules.floors(), OffsetsAnswer((CommittedOffset("t", 0, offset),)))


@pytest.fixture
def told() -> Told:
    return Told()


def test_coverage_joins_what_touches() -> None:
    coverage = Coverage()
    for begin, end in ((10, 20), (30, 40), (0, 5), (5, 10)):
        coverage.add(begin, end)
    assert coverage.stretches == [(0, 20), (30, 40)]
    assert [offset in coverage for offset in (0, 19, 20, 30, 40)] == [True, True, False, True, False]
    assert (coverage.reach(), coverage.reach(25), coverage.reach(35)) == (20, 25, 40)
    coverage.add(15, 35)
    assert coverage.stretches == [(0, 40)]


def test_a_committed_offset_is_not_beyond_what_was_handed_out(told: Told) -> None:
    told.commit("a", 1, 100)
    assert told.found == []
    told.commit("a", 1, 101, sequence=2)
    assert told.found == ["offsets"]


def test_what_is_kept_is_found(told: Told) -> None:
    told.commit("a", 1, 50)
    told.find(50)
    told.find(60)
    assert told.found == []
    told.find(50)
    assert told.found == ["offsets"]


def test_who_asked_before_it_was_kept_may_be_told_less(told: Told) -> None:
    floors = told.rules.floors()
    told.commit("a", 1, 50)
    told.rules.found(floors, OffsetsAnswer((CommittedOffset("t", 0, -1),)))
    assert told.found == []
    told.find(-1)
    assert told.found == ["offsets"]


def test_what_was_refused_promises_nothing(told: Told) -> None:
    told.commit("a", 1, 500, code=NOT_OWNED)
    told.find(-1)
    assert told.found == []


def test_of_one_epoch_a_partition_has_one_owner(told: Told) -> None:
    told.rules.told("a", "a", 1, [WHERE])
    told.rules.told("a", "a", 1, [WHERE])
    told.rules.told("b", "b", 2, [WHERE])
    assert told.found == []
    told.rules.told("c", "c", 2, [WHERE])
    assert told.found == ["owners"]


def test_who_returns_under_the_name_of_a_static_member_has_its_place(told: Told) -> None:
    told.rules.told("a.1", "a", 1, [WHERE])
    told.rules.told("a.2", "a", 1, [WHERE])
    assert told.found == []


def test_a_commit_is_not_kept_once_another_owns_the_partition(told: Told) -> None:
    told.rules.told("a", "a", 1, [WHERE])
    sent = told.rules.sends()
    told.rules.told("b", "b", 2, [WHERE])
    told.commit("a", 1, 50, sent=sent)
    assert told.found == [], "it was under way"
    told.commit("b", 2, 60)
    told.rules.told("a", "a", 3, [WHERE])
    told.commit("a", 3, 70, sequence=2)
    assert told.found == [], "it owns it again"
    told.commit("a", 1, 80, sequence=3)
    assert told.found == ["fencing"]


def test_a_commit_is_not_kept_after_a_later_one(told: Told) -> None:
    late = told.rules.sends()
    told.commit("a", 1, 50, sequence=2)
    told.commit("a", 1, 40, sequence=1, sent=late)
    assert told.found == [], "nobody knows which was first"
    told.commit("a", 1, 50, sequence=2)
    assert told.found == [], "the same again"
    told.commit("a", 1, 40, sequence=1)
    assert told.found == ["sequence"]


def test_two_never_hand_out_one_partition(told: Told) -> None:
    told.rules.holds("a", WHERE, lambda: True)
    told.rules.hands_out("a", WHERE, 100, 110, range(100, 110))
    told.rules.holds("b", WHERE, lambda: True)
    told.rules.hands_out("b", TopicPartition("t", 1), 0, 5, range(5))
    assert told.found == []
    told.rules.hands_out("b", WHERE, 100, 110, range(100, 110))
    assert told.found == ["exclusive"]
    assert told.rules.counters["records handed out again"] == 10


@pytest.mark.parametrize("end", ["dies", "drops", "lease"])
def test_who_cannot_hand_out_any_more_is_in_nobodys_way(told: Told, end: str) -> None:
    told.rules.holds("a", WHERE, lambda: end != "lease")
    if end == "dies":
        told.rules.dies("a")
    if end == "drops":
        told.rules.drops("a", WHERE)
    told.rules.hands_out("b", WHERE, 100, 110, ())
    assert told.found == []


def test_in_the_end_everything_is_handed_out_and_committed(told: Told) -> None:
    assert [*told.rules.missing({WHERE: 120})] == ["t-0: nobody was given 100, of 120"]
    assert [*told.rules.missing({WHERE: 100})] == ["t-0: the committed offset is 0, of 100"]
    told.commit("a", 1, 100)
    assert [*told.rules.missing({WHERE: 100})] == []


def test_of_offsets_that_are_gone_nothing_is_demanded(told: Told) -> None:
    told.commit("a", 1, 100)
    told.rules.is_gone = lambda: True
    told.find(-1)
    assert told.found == []
