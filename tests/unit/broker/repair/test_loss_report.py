"""The judgement of what is lost: divided where anybody knows that a batch begins, kept while a copy may be left."""

from __future__ import annotations

import pytest

from tidelog.broker.repair.loss_report import DAMAGED, GOOD, MISSING, UNREACHABLE, Piece, divided, judge, status_of
from tidelog.broker.repair.repair_messages import DamageReply, Suspect
from tidelog.controller.decide_losses import RANGES_MAX
from tidelog.model.holdings import Holding
from tidelog.model.losses import AcceptedLoss, LossStatement


def row(start: int, end: int) -> Suspect:
    return Suspect(start, end, 3, bytes([start % 256]) * 16, 100, 1_000)


def reply(*suspects: Suspect, high_watermark: int = 1_000) -> DamageReply:
    return DamageReply(0, high_watermark, max(high_watermark, *(one.end for one in suspects), 0), suspects)


def pieces(*statements: tuple[int, int, str, str]) -> list[Piece]:
    """Pieces of which brokers 1 and 2 have said something."""
    return [Piece(start, end, row(start, end), {1: one, 2: two}) for start, end, one, two in statements]


REPLIES = {1: reply(), 2: reply()}


def test_damage_is_divided_where_anybody_knows_that_a_batch_begins() -> None:
    found = divided([reply(Suspect(10, 20), row(30, 31)), reply(row(12, 15), row(15, 20))])
    assert [(one.start, one.end, one.row is not None) for one in found] == [
        (10, 12, False),
        (12, 15, True),
        (15, 20, True),
        (30, 31, True),
    ]
    assert not found[0].identity.is_known
    assert found[1].identity.digest == row(12, 15).digest


def test_a_replica_that_lost_the_row_has_named_the_offsets() -> None:
    piece = Piece(12, 15, row(12, 15))
    assert status_of(Holding.UNKNOWN, 4, piece, reply(Suspect(10, 20))) == "damaged"
    assert status_of(Holding.UNKNOWN, 4, piece, reply()) == "unknown"
    assert status_of(Holding.UNKNOWN, -1, piece, reply(Suspect(10, 20))) == "unknown", "it has no role now"
    assert status_of(Holding.HAVE, 4, piece, reply()) == "good copy"


def test_neighbours_of_which_the_same_is_said_are_one_range() -> None:
    report = judge(
        pieces((1, 3, DAMAGED, DAMAGED), (3, 4, DAMAGED, DAMAGED), (4, 5, DAMAGED, MISSING), (9, 10, DAMAGED, MISSING)),
        None, REPLIES, (), (),
    )  # fmt: skip
    assert report.refusals == () and report.is_whole
    assert [(lost.start, lost.end, len(lost.digests)) for lost in report.lost] == [(1, 4, 2), (4, 5, 1), (9, 10, 1)]
    assert report.lost[1].statements == (LossStatement(1, "damaged"), LossStatement(2, "missing"))


def test_one_good_copy_keeps_its_batch_and_no_other() -> None:
    report = judge(pieces((1, 3, DAMAGED, GOOD), (3, 4, DAMAGED, DAMAGED)), None, REPLIES, (), ())
    assert [(lost.start, lost.end) for lost in report.lost] == [(3, 4)]
    assert "broker 2 has a good copy of offsets 1-2" in (report.pieces[0].kept_because or "")
    assert report.refusals == ()


@pytest.mark.parametrize("even_though", [(), (2,)])
def test_whoever_has_a_good_copy_is_believed_even_if_it_is_named(even_though: tuple[int, ...]) -> None:
    report = judge(pieces((1, 3, DAMAGED, GOOD)), None, REPLIES, even_though, ())
    assert report.lost == []
    assert "broker 2 has a good copy" in report.refusals[0]


def test_a_replica_that_cannot_be_asked_keeps_everything_unless_it_is_named() -> None:
    damaged = pieces((1, 3, DAMAGED, UNREACHABLE), (5, 6, DAMAGED, DAMAGED))
    report = judge(damaged, None, {1: reply()}, (), ())
    assert "--even-though 2" in report.refusals[0]
    report = judge(damaged, None, {1: reply()}, (2,), ())
    assert report.refusals == ()
    assert [(lost.start, lost.end) for lost in report.lost] == [(1, 3), (5, 6)]


@pytest.mark.parametrize("asked", [(0, 3), (2, 3), (2, 9)])
def test_a_batch_is_given_up_as_a_whole(asked: tuple[int, int]) -> None:
    report = judge(pieces((1, 4, DAMAGED, DAMAGED)), asked, REPLIES, (), ())
    assert report.lost == []
    assert "offsets 1-3 are one batch" in report.refusals[0]


def test_what_may_not_be_committed_is_left_to_the_leader() -> None:
    report = judge(pieces((1, 4, DAMAGED, DAMAGED)), None, {1: reply(high_watermark=3)}, (), ())
    assert report.lost == []
    assert "not known to be committed" in report.refusals[0]


def test_nothing_is_refused_where_it_was_given_up_before() -> None:
    assert "nothing is known to be damaged in offsets 1-3" in judge([], (1, 4), REPLIES, (), ()).refusals[0]
    report = judge([], (1, 4), REPLIES, (), [AcceptedLoss(1, 4, 0, "op", 1)])
    assert report.refusals == () and len(report.before) == 1 and report.lost == []


def test_more_than_one_command_takes_is_told() -> None:
    many = pieces(*((3 * n, 3 * n + 1, DAMAGED, DAMAGED) for n in range(RANGES_MAX + 1)))
    report = judge(many, None, REPLIES, (), ())
    assert len(report.lost) == RANGES_MAX and not report.is_whole
    assert judge(many[:-1], None, REPLIES, (), ()).is_whole


def test_the_end_of_a_log_is_kept_for_the_word_of_a_member_that_is_not_there() -> None:
    damaged = pieces((1, 3, DAMAGED, UNREACHABLE))
    for even_though in ((), (2,)):
        report = judge(damaged, None, {1: reply(high_watermark=0)}, even_though, (), (1, 2))
        assert report.lost == []
        assert "offsets 1-2" in report.refusals[0] and "broker 2" in report.refusals[0]
        assert "--votes" in report.refusals[0]
    report = judge(damaged, None, {1: reply(high_watermark=0)}, (2,), (), (1,))
    assert "finds out when it begins" in report.refusals[0], "broker 2 has no say"
