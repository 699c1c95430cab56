"""The follower's rules, one by one. Cutting has its own page: test_divergence.py."""

from __future__ import annotations

import pytest

from tidelog.replication.isr.events import (
    AppendFetched,
    DeleteRecords,
    Distrust,
    DivergingAt,
    Fetch,
    FetchDue,
    Fetched,
    FetchOutOfRange,
    FollowerEffect,
    FollowHighWatermark,
    LeaderChanged,
    LogState,
    ReportFlushed,
    StartOver,
    Truncate,
    Truncated,
)
from tidelog.replication.isr.follower import IsrFollower
from tidelog.replication.isr.log_events import Appended, AppendRefused, Flushed


def new_follower(high_watermark: int = 5) -> IsrFollower:
    """In epoch 4, over ten batches of epoch 2."""
    return IsrFollower(4, LogState(0, 10, 10, ((2, 0),)), high_watermark)


def data(correlation: int, base: int, end: int, high_watermark: int, start: int = 0) -> Fetched:
    return Fetched(correlation, base, end, ((4, base),) if end > base else (), high_watermark, start)


def fetched(follower: IsrFollower, correlation: int, end: int, high_watermark: int) -> list[FollowerEffect]:
    (fetch,) = follower.step(FetchDue(correlation))
    assert isinstance(fetch, Fetch)
    assert follower.step(data(correlation, fetch.fetch_offset, end, high_watermark)) == [AppendFetched(end)]
    return follower.step(Appended(end))


def test_it_asks_for_what_stands_behind_its_log() -> None:
    assert new_follower().step(FetchDue(1)) == [Fetch(1, 10, 10, 2)]
    assert IsrFollower(4, LogState(0, 0, 0), 0).step(FetchDue(1)) == [Fetch(1, 0, 0, None)]
    emptied = IsrFollower(4, LogState(10, 10, 10, ((2, 0),)), 10)
    assert emptied.step(FetchDue(1)) == [Fetch(1, 10, 10, None)], "an empty log has no tail, whatever it once held"


def test_answers_are_appended_and_the_next_question_names_their_epoch() -> None:
    follower = new_follower()
    assert fetched(follower, 1, 13, 12) == [FollowHighWatermark(12)]
    assert follower.step(FetchDue(2)) == [Fetch(2, 13, 10, 4)]


def test_the_high_watermark_is_the_leaders_as_far_as_the_log_goes() -> None:
    follower = new_follower(high_watermark=5)
    assert fetched(follower, 1, 12, 40) == [FollowHighWatermark(12)]
    follower.step(FetchDue(2))
    assert follower.step(data(2, 12, 12, 7)) == [FollowHighWatermark(7)], "a new leader may know less"


def test_nothing_is_asked_while_the_log_is_changed() -> None:
    follower = new_follower()
    follower.step(FetchDue(1))
    follower.step(data(1, 10, 12, 5))
    assert follower.step(FetchDue(2)) == []
    follower.step(AppendRefused(10))
    follower.step(LeaderChanged(5))
    assert follower.step(FetchDue(3)) == [Fetch(3, 10, 10, 2)]
    assert follower.step(DivergingAt(3, 1, 4)) == [Truncate(0)]
    assert follower.step(FetchDue(4)) == []
    follower.step(Truncated(0, 0))
    assert follower.step(FetchDue(5)) == [Fetch(5, 0, 0, None)]


@pytest.mark.parametrize("late", [data(1, 10, 12, 5), DivergingAt(1, 2, 8), FetchOutOfRange(1, 20, 30)])
def test_only_the_answer_to_the_newest_question_counts(late: Fetched | DivergingAt | FetchOutOfRange) -> None:
    follower = new_follower()
    follower.step(FetchDue(1))
    follower.step(FetchDue(2))
    assert follower.step(late) == []
    follower.step(LeaderChanged(5))
    follower.step(FetchDue(3))
    assert follower.step(late) == []


def test_an_answer_counts_once() -> None:
    follower = new_follower()
    follower.step(FetchDue(1))
    assert follower.step(DivergingAt(1, 2, 8)) == [Truncate(8)]
    follower.step(Truncated(8, 8))
    assert follower.step(DivergingAt(1, 2, 8)) == []


def test_a_change_of_leader_cuts_nothing_by_itself() -> None:
    follower = new_follower(high_watermark=5)
    assert follower.step(LeaderChanged(5)) == []
    assert follower.step(FetchDue(1)) == [Fetch(1, 10, 10, 2)]


def test_a_cut_takes_the_high_watermark_along() -> None:
    follower = new_follower(high_watermark=9)
    follower.step(FetchDue(1))
    follower.step(DivergingAt(1, 2, 8))
    assert follower.step(Truncated(8, 8)) == [FollowHighWatermark(8)]
    assert follower.step(FetchDue(2)) == [Fetch(2, 8, 8, 2)]


def test_the_leader_hears_of_the_disk_while_a_question_is_under_way() -> None:
    follower = new_follower()
    fetched(follower, 1, 13, 5)
    assert follower.step(Flushed(11)) == [], "the next question says it"
    assert follower.step(FetchDue(2)) == [Fetch(2, 13, 11, 4)]
    assert follower.step(Flushed(13)) == [ReportFlushed(13, 13, 4)]
    assert follower.step(Flushed(13)) == []


def test_the_log_start_follows_as_far_as_is_committed_and_on_the_disk() -> None:
    follower = new_follower()
    follower.step(FetchDue(1))
    follower.step(data(1, 10, 13, 12, start=11))
    assert follower.step(Appended(13)) == [FollowHighWatermark(12), DeleteRecords(10)]
    assert follower.step(Flushed(13)) == [DeleteRecords(11)]


def test_a_truncation_does_not_acknowledge_what_a_power_cut_tore() -> None:
    follower = new_follower()
    follower.step(FetchDue(1))
    follower.step(DivergingAt(1, 2, 9))
    follower.step(Truncated(9, 8))
    (fetch,) = follower.step(FetchDue(2))
    assert isinstance(fetch, Fetch)
    assert (fetch.fetch_offset, fetch.durable_offset) == (9, 8)


def test_a_log_of_which_the_leader_keeps_nothing_starts_over() -> None:
    follower = new_follower()
    follower.step(FetchDue(1))
    assert follower.step(FetchOutOfRange(1, 20, 30)) == [StartOver(20)]
    assert follower.step(Truncated(20, 20)) == [FollowHighWatermark(20)]
    assert follower.step(FetchDue(2)) == [Fetch(2, 20, 20, None)]


@pytest.mark.parametrize(
    "answer",
    [
        data(2, 11, 12, 5),
        data(2, 13, 12, 5),
        Fetched(2, 13, 14, ((3, 13),), 5, 0),
        Fetched(2, 13, 14, ((5, 13),), 5, 0),
        DivergingAt(2, 2, 8),
        FetchOutOfRange(2, 0, 20),
    ],
)
def test_a_leader_that_contradicts_itself_is_followed_no_more(
    answer: Fetched | DivergingAt | FetchOutOfRange,
) -> None:
    follower = new_follower()
    fetched(follower, 1, 13, 5)
    follower.step(FetchDue(2))
    (effect,) = follower.step(answer)
    assert isinstance(effect, Distrust)
    assert follower.step(FetchDue(3)) == []
    follower.step(LeaderChanged(5))
    assert follower.step(FetchDue(4)) == [Fetch(4, 13, 10, 4)]


@pytest.mark.parametrize("end", [10, 12])
def test_a_leader_that_calls_a_log_diverging_and_keeps_all_of_it_is_followed_no_more(end: int) -> None:
    follower = new_follower()
    follower.step(FetchDue(1))
    (effect,) = follower.step(DivergingAt(1, 2, end))
    assert isinstance(effect, Distrust)
    assert follower.step(FetchDue(2)) == []


def test_a_log_is_aligned_from_the_first_answer_of_an_epoch_that_does_not_diverge() -> None:
    follower = new_follower()
    assert (follower.is_aligned, follower.high_watermark, follower.log_start_offset) == (False, 5, 0)
    follower.step(FetchDue(1))
    follower.step(DivergingAt(1, 2, 8))
    follower.step(Truncated(8, 8))
    assert not follower.is_aligned
    fetched(follower, 2, 9, 8)
    assert (follower.is_aligned, follower.high_watermark) == (True, 8)
    follower.step(LeaderChanged(5))
    assert not follower.is_aligned


def test_a_log_that_parts_from_the_leaders_before_its_start_asks_where_that_begins() -> None:
    """It is told there, too, what the leader knew of producers."""
    follower = IsrFollower(4, LogState(5, 10, 10, ((3, 0),)), 10)
    follower.step(FetchDue(1))
    assert follower.step(DivergingAt(1, 2, 3)) == [StartOver(0)]
    assert follower.step(Truncated(0, 0)) == [FollowHighWatermark(0)]
    assert follower.step(FetchDue(2)) == [Fetch(2, 0, 0, None)]
    assert follower.step(FetchOutOfRange(2, 2, 9)) == [StartOver(2)]


def test_a_follower_deletes_nothing_by_the_word_of_an_earlier_leader() -> None:
    follower = new_follower()
    follower.step(FetchDue(1))
    follower.step(data(1, 10, 13, 13, start=13))
    follower.step(Appended(13))
    follower.step(LeaderChanged(5))
    assert follower.step(Flushed(13)) == []


def test_an_emptied_log_whose_past_was_older_than_the_leaders_goes_on() -> None:
    emptied = IsrFollower(4, LogState(10, 10, 10, ((3, 0),)), 10)
    emptied.step(FetchDue(1))
    assert emptied.step(Fetched(1, 10, 10, (), 10, 10)) == [], "the leader's is empty, too"
    emptied.step(FetchDue(2))
    assert emptied.step(Fetched(2, 10, 12, ((3, 10),), 10, 10)) == [AppendFetched(12)]


def test_an_answer_to_a_log_that_is_emptied_meanwhile_is_not_awaited() -> None:
    """It was asked with a tail to compare, and there is none any more."""
    follower = new_follower()
    follower.step(FetchDue(1))
    follower.step(data(1, 10, 13, 13, start=13))
    assert follower.step(Appended(13)) == [FollowHighWatermark(13), DeleteRecords(10)]
    follower.step(FetchDue(2))
    assert follower.step(Flushed(13)) == [DeleteRecords(13), ReportFlushed(13, 13, None)]
    assert follower.step(data(2, 13, 14, 13, start=13)) == []
    follower.step(FetchDue(3))
    assert follower.step(data(3, 13, 14, 13, start=13)) == [AppendFetched(14)]


def test_an_emptied_log_whose_past_was_newer_than_the_leaders_forgets_it() -> None:
    """All of it was deleted; the leader, elected after a loss, has batches of an older epoch there."""
    emptied = IsrFollower(4, LogState(10, 10, 10, ((3, 0),)), 10)
    emptied.step(FetchDue(1))
    assert emptied.step(Fetched(1, 10, 12, ((2, 10),), 12, 8)) == [StartOver(0)]
    emptied.step(Truncated(0, 0))
    emptied.step(FetchDue(2))
    assert emptied.step(FetchOutOfRange(2, 8, 12)) == [StartOver(8)]
    emptied.step(Truncated(8, 8))
    emptied.step(FetchDue(3))
    assert emptied.step(Fetched(3, 8, 12, ((2, 8),), 12, 8)) == [AppendFetched(12)]
    assert emptied.step(Appended(12)) == [FollowHighWatermark(12)]
