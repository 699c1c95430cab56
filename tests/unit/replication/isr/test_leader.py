"""The leader's rules, one by one."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tidelog.replication.isr.events import (
    AlterPartition,
    AlterPartitionAnswered,
    Diverging,
    FollowerFetched,
    FollowerFlushed,
    IsrChanged,
    IsrSettings,
    LeaderEffect,
    LogState,
    Outcome,
    OutOfRange,
    RecordsDeleted,
    Refused,
    Serve,
    Tick,
)
from tidelog.replication.isr.leader import IsrLeader
from tidelog.replication.isr.log_events import AdvanceHighWatermark, Appended, Flushed, Propose

EPOCHS = {1: 101, 2: 102, 3: 103}
LAG_MS = 1_000


def new_leader(
    isr: tuple[int, ...] = (1, 2, 3), *, min_isr: int = 1, is_fsynced: bool = False, high_watermark: int = 5
) -> IsrLeader:
    """Of epoch 4, over ten batches of epoch 2."""
    settings = IsrSettings(LAG_MS, retry_ms=10)
    partition = IsrChanged((1, 2, 3), isr, 7, EPOCHS, min_isr, is_fsynced)
    return IsrLeader(1, 4, LogState(0, 10, 10, ((2, 0),)), high_watermark, partition, settings, now_ms=0)


def fetch(leader: IsrLeader, node: int, end: int, *, durable: int = 0, now_ms: int = 1) -> list[LeaderEffect]:
    epoch = 2 if end <= 10 else 4
    verdict, effects = leader.fetched(FollowerFetched(node, EPOCHS[node], end, durable, epoch, now_ms))
    assert verdict == Serve(end)
    return effects


def append(leader: IsrLeader, count: int = 1) -> None:
    leader.step(Propose(count))
    leader.step(Appended(leader._next_offset))


# -- the high watermark ------------------------------------------------------------------------------------------------


def test_the_high_watermark_waits_for_all_members() -> None:
    leader = new_leader()
    assert fetch(leader, 2, 10) == []
    assert fetch(leader, 3, 8) == [AdvanceHighWatermark(8)]
    assert fetch(leader, 3, 10) == [AdvanceHighWatermark(10)]


def test_the_ends_of_others_are_known_as_far_as_they_were_heard() -> None:
    leader = new_leader()
    fetch(leader, 2, 8)
    assert leader.follower_ends == {2: 8, 3: 0}


def test_a_member_that_leaves_the_set_as_it_is_moved_away_is_forgotten_altogether() -> None:
    leader = new_leader()
    fetch(leader, 2, 10)
    fetch(leader, 3, 8)
    left = IsrChanged((1, 2), (1, 2), 8, EPOCHS, 1, is_fsynced=False)
    assert leader.step(left) == [AdvanceHighWatermark(10)]
    assert leader.follower_ends == {2: 10}


def test_a_new_leaders_high_watermark_stays_until_the_members_were_heard() -> None:
    assert new_leader().high_watermark == 5
    assert new_leader((1,)).high_watermark == 10, "alone, there is nobody to hear"


def test_a_leader_calls_no_more_committed_than_it_keeps() -> None:
    """Elected unclean, it may have heard of more than its own disk has; readers would see it, and lose it."""
    partition = IsrChanged((1, 2, 3), (1,), 7, EPOCHS, min_isr=2)
    log = LogState(0, 6, 10, ((2, 0),))
    assert IsrLeader(1, 4, log, 8, partition, IsrSettings(), 0).high_watermark == 6
    in_memory = replace(partition, is_fsynced=False)
    assert IsrLeader(1, 4, log, 8, in_memory, IsrSettings(), 0).high_watermark == 8


def test_with_fsyncs_the_disks_count() -> None:
    leader = new_leader((1, 2), is_fsynced=True)
    append(leader, 2)
    assert fetch(leader, 2, 12, durable=10) == [AdvanceHighWatermark(10)]
    assert leader.step(FollowerFlushed(2, 102, 12, 12, 4, 2)) == [], "the leader's own disk counts, too"
    assert leader.step(Flushed(11)) == [AdvanceHighWatermark(11)]
    assert leader.step(Flushed(12)) == [AdvanceHighWatermark(12)]


def test_durability_can_be_changed() -> None:
    leader = new_leader((1, 2), is_fsynced=True)
    append(leader)
    fetch(leader, 2, 11, durable=10)
    changed = IsrChanged((1, 2, 3), (1, 2), 7, EPOCHS, 1, is_fsynced=False)
    assert leader.step(changed) == [AdvanceHighWatermark(11)]
    append(leader)
    leader.step(replace(changed, is_fsynced=True))
    assert leader.high_watermark == 11, "what was called committed stays so"


def test_durability_and_the_set_are_of_one_moment() -> None:
    """A member lost what its memory held while the disk was all that it had to keep, so it may still be elected. Its
    loss, and that memory counts from now on, come with one image."""
    leader = new_leader((1, 2), min_isr=2, is_fsynced=True, high_watermark=10)
    append(leader)
    fetch(leader, 2, 11, durable=10)
    assert leader.step(IsrChanged((1, 2, 3), (1,), 8, {**EPOCHS, 2: 104}, 2, is_fsynced=False)) == []
    assert leader.high_watermark == 10


def test_below_min_isr_nothing_is_committed() -> None:
    leader = new_leader((1,), min_isr=2)
    append(leader)
    assert leader.is_below_min_isr
    assert leader.high_watermark == 5
    changed = IsrChanged((1, 2, 3), (1,), 7, EPOCHS, min_isr=1, is_fsynced=False)
    assert leader.step(changed) == [AdvanceHighWatermark(11)]


def test_a_lower_minimum_counts_with_the_set_that_it_came_with() -> None:
    """Between two images that the leader saw, 2 was fenced, and a move has made two enough of what was three. The
    others are eligible since, without what is appended now."""
    leader = new_leader((1, 2), min_isr=3)
    append(leader)
    assert fetch(leader, 2, 11) == []
    assert leader.step(IsrChanged((1, 2, 3), (1,), 9, EPOCHS, min_isr=2)) == []
    assert leader.high_watermark == 5


def test_one_about_to_join_is_waited_for() -> None:
    leader = new_leader((1, 2))
    fetch(leader, 2, 10)
    (request,) = fetch(leader, 3, 10)
    assert isinstance(request, AlterPartition)
    leader.step(AlterPartitionAnswered(1, Outcome.PROVEN_NOT_APPLIED, 1, 8, (1, 2)))
    append(leader)
    assert fetch(leader, 2, 11) == [], "3 is in no set, but close behind"
    assert leader.step(Tick(LAG_MS + 100))[0] == AdvanceHighWatermark(11)


def test_one_that_is_far_behind_is_not_waited_for_even_if_members_may_lag_that_long() -> None:
    settings = IsrSettings(30_000, join_ms_max=3_000)
    partition = IsrChanged((1, 3), (1,), 7, EPOCHS, is_fsynced=False)
    leader = IsrLeader(1, 4, LogState(0, 10, 10, ((2, 0),)), 10, partition, settings, 0)
    append(leader)
    leader.step(Tick(4_000))
    assert fetch(leader, 3, 10, now_ms=4_000) == [], "it was caught up as of 4 s ago"
    append(leader)
    assert leader.high_watermark == 12


# -- the low watermark -------------------------------------------------------------------------------------------------


def begins_at(leader: IsrLeader, node: int, start: int, *, now_ms: int = 1) -> list[LeaderEffect]:
    """The follower has the whole log but what it has deleted."""
    report = FollowerFetched(node, EPOCHS[node], 10, 10, 2, now_ms, log_start_offset=start)
    return leader.fetched(report)[1]


def test_the_low_watermark_waits_for_all_members() -> None:
    """A member that leads next would show again what it has not deleted."""
    leader = new_leader()
    begins_at(leader, 2, 0)
    begins_at(leader, 3, 0)
    leader.step(RecordsDeleted(4))
    assert leader.low_watermark == 0
    begins_at(leader, 2, 4)
    assert leader.low_watermark == 0
    begins_at(leader, 3, 3)
    assert leader.low_watermark == 3
    begins_at(leader, 3, 4)
    assert leader.low_watermark == 4


def test_the_low_watermark_does_not_wait_for_who_has_left() -> None:
    leader = new_leader()
    begins_at(leader, 2, 0)
    leader.step(RecordsDeleted(4))
    begins_at(leader, 2, 4)
    assert leader.low_watermark == 0, "3 was not heard"
    leader.step(IsrChanged((1, 2, 3), (1, 2), 8, EPOCHS))
    assert leader.low_watermark == 4


def test_below_min_isr_nothing_is_deleted_for_good() -> None:
    """A replica that left the set with all that is committed may be elected."""
    leader = new_leader((1,), min_isr=2, high_watermark=10)
    leader.step(RecordsDeleted(4))
    assert leader.low_watermark == 0
    leader.step(IsrChanged((1, 2, 3), (1,), 8, EPOCHS, min_isr=1))
    assert leader.low_watermark == 4


def test_a_follower_joins_when_it_has_deleted_what_the_leader_has() -> None:
    leader = new_leader((1,))
    leader.step(RecordsDeleted(4))
    assert begins_at(leader, 2, 3) == []
    (asked,) = begins_at(leader, 2, 4)
    assert isinstance(asked, AlterPartition)
    assert [node for node, _ in asked.isr] == [1, 2]


def test_what_another_life_has_deleted_counts_no_more() -> None:
    """A power cut may have taken it."""
    leader = new_leader((1, 2))
    leader.step(RecordsDeleted(4))
    leader.fetched(FollowerFetched(2, 150, 10, 10, 2, 1, log_start_offset=2))
    assert leader.low_watermark == 2
    leader.fetched(FollowerFetched(2, 151, 10, 10, 2, 1, log_start_offset=0))
    assert leader.low_watermark == 2, "what was called deleted for good stays so"
    leader.fetched(FollowerFetched(2, 151, 10, 10, 2, 1, log_start_offset=4))
    assert leader.low_watermark == 4


# -- joining and leaving -----------------------------------------------------------------------------------------------


def test_a_follower_joins_when_it_has_everything() -> None:
    leader = new_leader((1, 2))
    fetch(leader, 2, 10)
    assert fetch(leader, 3, 9) == []
    assert fetch(leader, 3, 10) == [AlterPartition(1, ((1, 101), (2, 102), (3, 103)), 7)]


def test_nobody_joins_below_the_start_of_the_epoch() -> None:
    leader = new_leader((1, 2))
    assert leader.high_watermark == 5
    assert leader.leader_epoch_start_offset == 10
    assert fetch(leader, 3, 6) == []


def test_with_fsyncs_nobody_joins_by_memory() -> None:
    leader = new_leader((1, 2), is_fsynced=True)
    assert fetch(leader, 3, 10, durable=9) == []
    (request,) = leader.step(FollowerFlushed(3, 103, 10, 10, 2, 2))
    assert isinstance(request, AlterPartition)


def test_nobody_joins_whose_process_the_metadata_does_not_know() -> None:
    leader = new_leader((1, 2))
    newer = FollowerFetched(3, 150, 10, 10, 2, 1)
    assert leader.fetched(newer) == (Serve(10), [])
    changed = IsrChanged((1, 2, 3), (1, 2), 7, {**EPOCHS, 3: 150})
    assert leader.step(changed) == [AlterPartition(1, ((1, 101), (2, 102), (3, 150)), 7)]


def test_nobody_joins_that_the_leader_can_repair() -> None:
    """Once it is in, the leader may lose its disk: then its copy has to be one."""
    leader = new_leader((1, 2))
    damaged = FollowerFetched(3, 103, 10, 10, 2, 1, awaits_repair=True)
    assert leader.fetched(damaged) == (Serve(10), [])
    assert leader.step(Tick(2)) == []
    (request,) = fetch(leader, 3, 10)
    assert isinstance(request, AlterPartition)


def test_a_late_report_does_not_say_that_damage_is_repaired() -> None:
    leader = new_leader((1, 2))
    leader.fetched(FollowerFetched(3, 103, 10, 10, 2, 1, awaits_repair=True))
    assert leader.step(FollowerFlushed(3, 103, 10, 10, 2, 1)) == []
    assert leader.step(Tick(2)) == []


def test_a_member_that_awaits_repair_stays_and_holds_nobody_up() -> None:
    leader = new_leader((1, 3))
    assert leader.fetched(FollowerFetched(3, 103, 10, 10, 2, 1, awaits_repair=True))[1] == [AdvanceHighWatermark(10)]
    assert leader.step(Tick(2)) == []


def test_a_fenced_follower_does_not_join() -> None:
    leader = new_leader((1, 2))
    leader.step(IsrChanged((1, 2, 3), (1, 2), 8, {1: 101, 2: 102}))
    assert fetch(leader, 3, 10) == []


def test_another_life_begins_with_nothing() -> None:
    leader = new_leader((1, 2))
    fetch(leader, 2, 10)
    append(leader)
    fetch(leader, 2, 11)
    leader.fetched(FollowerFetched(2, 150, 10, 10, 2, 2))
    append(leader)
    assert leader.step(Tick(3)) == []
    assert leader.high_watermark == 11
    assert leader._followers[2].log_end_offset == 10


def test_a_member_that_lags_leaves() -> None:
    leader = new_leader()
    fetch(leader, 2, 10)
    fetch(leader, 3, 10)
    append(leader)
    assert leader.step(Tick(1)) == [], "it begins to fall behind with this one"
    fetch(leader, 2, 11, now_ms=50)
    assert leader.step(Tick(LAG_MS)) == []
    assert leader.step(Tick(LAG_MS + 2)) == [AlterPartition(1, ((1, 101), (2, 102)), 7)]
    assert leader.maximal_isr == (1, 2, 3), "it is waited for until it is out"
    assert leader.high_watermark == 10
    gone = AlterPartitionAnswered(1, Outcome.APPLIED, LAG_MS + 3, 8, (1, 2))
    assert leader.step(gone) == [AdvanceHighWatermark(11)]


def test_who_was_put_out_for_silence_stays_out_until_it_is_heard() -> None:
    """Below the minimum the high watermark stands still, and what is committed is all there, however long ago."""
    leader = new_leader((1, 2), min_isr=2)
    fetch(leader, 2, 10)
    append(leader)
    assert leader.step(Tick(1)) == []
    assert leader.step(Tick(LAG_MS + 2)) == [AlterPartition(1, ((1, 101),), 7)]
    assert leader.step(AlterPartitionAnswered(1, Outcome.APPLIED, LAG_MS + 3, 8, (1,))) == []
    assert leader.step(Tick(2 * LAG_MS)) == []
    assert fetch(leader, 2, 11, now_ms=3 * LAG_MS) == [AlterPartition(2, ((1, 101), (2, 102)), 8)]


def test_where_nothing_is_written_nobody_lags() -> None:
    leader = new_leader()
    fetch(leader, 2, 10)
    fetch(leader, 3, 10)
    assert leader.step(Tick(50 * LAG_MS)) == []


def test_a_member_that_is_never_heard_leaves() -> None:
    leader = new_leader((1, 2))
    assert leader.step(Tick(LAG_MS + 1)) == [AlterPartition(1, ((1, 101),), 7)]


def test_a_steady_load_makes_nobody_lag() -> None:
    """The follower's disk is always two batches behind, and never at the leader's end."""
    leader = new_leader((1, 2), is_fsynced=True)
    for now_ms in range(1, 5 * LAG_MS, 100):
        append(leader)
        fetch(leader, 2, leader._log_end_offset, durable=max(0, leader._log_end_offset - 2), now_ms=now_ms)
        assert leader.step(Tick(now_ms)) == []


# -- asking the controller ---------------------------------------------------------------------------------------------


def test_who_may_be_in_the_set_is_waited_for_from_the_asking_on() -> None:
    leader = new_leader((1, 2))
    fetch(leader, 3, 10)
    assert leader.in_sync == (1, 2)
    assert leader.maximal_isr == (1, 2, 3)
    append(leader)
    assert fetch(leader, 2, 11) == [AdvanceHighWatermark(10)]


def test_an_ambiguous_answer_reverts_nothing_and_is_asked_again() -> None:
    leader = new_leader((1, 2))
    (request,) = fetch(leader, 3, 10)
    assert isinstance(request, AlterPartition)
    assert leader.step(AlterPartitionAnswered(1, Outcome.AMBIGUOUS, 5)) == []
    assert leader.maximal_isr == (1, 2, 3)
    assert leader.step(Tick(14)) == []
    assert leader.step(Tick(15)) == [AlterPartition(2, request.isr, 7)]
    assert leader.step(Tick(500)) == [], "one in flight"


def test_an_answer_of_an_earlier_attempt_settles_nothing_by_itself() -> None:
    leader = new_leader((1, 2))
    fetch(leader, 3, 10)
    leader.step(AlterPartitionAnswered(1, Outcome.AMBIGUOUS, 5))
    leader.step(Tick(15))
    leader.step(AlterPartitionAnswered(1, Outcome.AMBIGUOUS, 16))
    assert leader.step(Tick(500)) == [], "the second is still under way"
    leader.step(AlterPartitionAnswered(1, Outcome.APPLIED, 17, 8, (1, 2, 3)))
    assert leader.in_sync == (1, 2, 3)


def test_a_refusal_reverts_and_is_not_repeated_at_once() -> None:
    leader = new_leader((1, 2))
    fetch(leader, 3, 10)
    assert leader.step(AlterPartitionAnswered(1, Outcome.PROVEN_NOT_APPLIED, 5, 8, (1, 2))) == []
    assert leader.maximal_isr == (1, 2)
    assert leader.step(Tick(15)) == [AlterPartition(2, ((1, 101), (2, 102), (3, 103)), 8)]


def test_metadata_settles_a_request_and_older_answers_count_no_more() -> None:
    leader = new_leader((1, 2))
    fetch(leader, 3, 10)
    leader.step(IsrChanged((1, 2, 3), (1, 2, 3), 8, EPOCHS))
    assert leader.in_sync == leader.maximal_isr == (1, 2, 3)
    leader.step(IsrChanged((1, 2, 3), (1, 2), 7, EPOCHS))
    leader.step(AlterPartitionAnswered(1, Outcome.APPLIED, 9, 7, (1, 2)))
    assert leader.in_sync == (1, 2, 3)
    assert leader.partition_epoch == 8


# -- fetches that do not count -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("report", "verdict"),
    [
        (FollowerFetched(9, 109, 10, 10, 2, 1), Refused),
        (FollowerFetched(2, 90, 10, 10, 2, 1), Refused),
        (FollowerFetched(2, 102, 10, 10, 5, 1), Refused),
        (FollowerFetched(2, 102, 12, 12, 3, 1), Diverging),
        (FollowerFetched(2, 102, 12, 12, 4, 1), Diverging),
        (FollowerFetched(2, 102, 12, 12, None, 1), OutOfRange),
        (FollowerFetched(2, 102, 2, 2, 2, 1), OutOfRange),
        (FollowerFetched(2, 102, 3, 3, 2, 1), OutOfRange),
    ],
)
def test_what_does_not_fit_counts_for_nothing(report: FollowerFetched, verdict: type) -> None:
    leader = new_leader((1, 2))
    leader.step(RecordsDeleted(3))
    answer, effects = leader.fetched(report)
    assert isinstance(answer, verdict)
    assert effects == []
    synced = FollowerFlushed(report.replica, report.broker_epoch, report.fetch_offset, 0, report.last_fetched_epoch, 1)
    assert leader.step(synced) == []
    assert not leader._followers[2].has_reported


def test_an_empty_log_begins_where_the_leaders_does() -> None:
    leader = new_leader((1, 2))
    leader.step(RecordsDeleted(3))
    assert leader.fetched(FollowerFetched(2, 102, 3, 3, None, 1))[0] == Serve(3)
    assert leader.fetched(FollowerFetched(2, 102, 0, 0, None, 1))[0] == OutOfRange(3, 10)


def test_a_report_that_overtook_a_truncation_is_not_believed() -> None:
    """Its disk held 12, of another log; now it holds 10 of this one, and has 13 in memory."""
    leader = new_leader((1, 2), is_fsynced=True)
    append(leader, 3)
    leader.step(Flushed(13))
    fetch(leader, 2, 10, durable=10)
    fetch(leader, 2, 13, durable=10)
    assert leader.step(FollowerFlushed(2, 102, 12, 12, 3, 5)) == []
    assert leader.high_watermark == 10
    assert leader.step(FollowerFlushed(2, 102, 13, 12, 4, 5)) == [AdvanceHighWatermark(12)]


# -- rest --------------------------------------------------------------------------------------------------------------


def at_rest() -> IsrLeader:
    leader = new_leader()
    for node in (2, 3):
        fetch(leader, node, 10, durable=10)
    assert leader.step(Tick(2)) == [] and leader.is_at_rest
    return leader


def test_a_leader_is_at_rest_when_all_have_all_and_all_of_it_is_committed() -> None:
    leader = new_leader()
    assert not leader.is_at_rest, "no tick has found it so"
    fetch(leader, 2, 10)
    leader.step(Tick(2))
    assert not leader.is_at_rest, "a member was not heard"
    fetch(leader, 3, 10)
    leader.step(Tick(3))
    assert leader.is_at_rest


def test_a_leader_without_a_member_is_not_at_rest() -> None:
    leader = new_leader((1, 2))
    fetch(leader, 2, 10)
    leader.step(Tick(2))
    assert not leader.is_at_rest


def test_whatever_happens_ends_a_leaders_rest() -> None:
    leader = at_rest()
    leader.step(Propose(1))
    leader.step(Tick(3))
    assert not leader.is_at_rest, "a batch is being appended"
    for event in (Appended(10), Flushed(10), IsrChanged((1, 2, 3), (1, 2), 8, EPOCHS), RecordsDeleted(3)):
        leader = at_rest()
        leader.step(event)
        assert not leader.is_at_rest
    leader = at_rest()
    fetch(leader, 2, 10)
    assert not leader.is_at_rest


def test_what_happens_after_a_rest_happens_as_if_the_time_had_been_told() -> None:
    told, rested = at_rest(), at_rest()
    for now_ms in range(100, 100_000, 100):
        assert told.step(Tick(now_ms)) == [] and told.is_at_rest
    for leader in (told, rested):
        append(leader)
    after = [
        [(leader.step(Tick(now_ms)), leader.in_sync, leader.high_watermark) for now_ms in range(100_000, 110_000, 100)]
        for leader in (told, rested)
    ]
    assert after[0] == after[1]


@pytest.mark.parametrize("is_told", [True, False])
def test_who_had_everything_while_nothing_was_written_falls_behind_from_the_next_batch_on(is_told: bool) -> None:
    leader = at_rest()
    if is_told:
        for now_ms in range(100, 100_000, 100):
            leader.step(Tick(now_ms))
    append(leader, 2)
    assert leader.step(Tick(100_000)) == [], "the batch has just been written"
    fetch(leader, 2, 11, now_ms=100_050)
    assert leader.step(Tick(100_000 + LAG_MS)) == []
    fetch(leader, 2, 12, now_ms=100_050 + LAG_MS)
    (asked,) = leader.step(Tick(100_100 + LAG_MS))
    assert isinstance(asked, AlterPartition) and [node for node, _ in asked.isr] == [1, 2]
