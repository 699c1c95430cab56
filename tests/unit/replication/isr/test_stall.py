"""Stalls of followers: when one is too long, and when whoever was put out may come back."""

from __future__ import annotations

from tidelog.replication.isr.events import AlterPartition, AlterPartitionAnswered, Outcome, Tick
from tidelog.replication.isr.leader import IsrLeader
from tidelog.replication.isr.log_events import Flushed
from tidelog.replication.isr.stall import PROBATION_STALLS, PROBATION_STALLS_MAX, RECENT_FACTOR, RECENT_STALLS, Stall

from .test_leader import EPOCHS, append, fetch, new_leader

STALL_MS = 500
RECENT_MS, PROBATION_MS, PROBATION_MS_MAX = (
    times * STALL_MS for times in (RECENT_STALLS, PROBATION_STALLS, PROBATION_STALLS_MAX)
)
TICK_MS = 100


class Watched:
    """A follower of a log that always goes further, observed once a tick."""

    def __init__(self) -> None:
        self.stall = Stall(STALL_MS, TICK_MS, 0)
        self.now_ms = 0
        self.acknowledged = 0

    def pass_ms(self, passed_ms: int, *, progresses: bool, tick_ms: int = TICK_MS) -> None:
        until_ms = self.now_ms + passed_ms
        while self.now_ms < until_ms:
            self.now_ms += tick_ms
            self.acknowledged += progresses
            self.stall.observe(self.acknowledged, self.acknowledged + 1, self.now_ms)


def test_a_follower_that_acknowledges_nothing_has_stalled_after_the_limit() -> None:
    watched = Watched()
    watched.pass_ms(1_000, progresses=True)
    watched.pass_ms(STALL_MS, progresses=False)
    assert not watched.stall.is_stalled
    watched.pass_ms(TICK_MS, progresses=False)
    assert watched.stall.is_stalled


def test_a_follower_that_has_everything_never_stalls() -> None:
    stall = Stall(STALL_MS, TICK_MS, 0)
    for now_ms in range(0, 60_000, TICK_MS):
        stall.observe(10, 10, now_ms)
    assert not stall.is_stalled and stall.keeps_up


def test_a_slow_follower_that_makes_progress_has_not_stalled() -> None:
    watched = Watched()
    for _ in range(100):
        watched.pass_ms(STALL_MS - TICK_MS, progresses=False)
        assert not watched.stall.is_stalled
        watched.pass_ms(TICK_MS, progresses=True)


def test_time_in_which_the_leader_does_not_run_is_nobodys_stall() -> None:
    watched = Watched()
    watched.pass_ms(1_000, progresses=True)
    watched.pass_ms(60_000, progresses=False, tick_ms=20_000)
    assert not watched.stall.is_stalled, "three ticks, however late, are three ticks"


def test_the_limit_follows_the_longest_stall_of_late_and_forgets_it() -> None:
    watched = Watched()
    watched.pass_ms(TICK_MS, progresses=True)
    watched.pass_ms(300, progresses=False)
    watched.pass_ms(TICK_MS, progresses=True)
    assert watched.stall.limit_ms == RECENT_FACTOR * 300
    watched.pass_ms(2 * RECENT_MS + TICK_MS, progresses=True)
    assert watched.stall.limit_ms == STALL_MS


def test_a_stall_is_forgotten_however_seldom_the_time_was_told_since() -> None:
    watched = Watched()
    watched.pass_ms(300, progresses=False)
    watched.pass_ms(TICK_MS, progresses=True)
    watched.pass_ms(3 * RECENT_MS, progresses=True, tick_ms=3 * RECENT_MS)
    assert watched.stall.limit_ms == STALL_MS


def test_a_long_stall_counts_for_no_more_than_the_configured_limit() -> None:
    watched = Watched()
    watched.pass_ms(5_000, progresses=False)
    watched.pass_ms(TICK_MS, progresses=True)
    assert watched.stall.limit_ms == RECENT_FACTOR * STALL_MS


def test_a_stall_that_put_a_follower_out_does_not_make_the_next_one_longer() -> None:
    watched = Watched()
    watched.pass_ms(600, progresses=False)
    watched.stall.put_out()
    watched.pass_ms(5_000, progresses=False)
    watched.pass_ms(PROBATION_MS + TICK_MS, progresses=True)
    assert not watched.stall.is_on_probation
    assert watched.stall.limit_ms == STALL_MS


def test_probation_ends_when_the_follower_has_kept_up_and_doubles_each_time() -> None:
    watched = Watched()
    expected_ms = PROBATION_MS
    for _ in range(9):
        watched.stall.put_out()
        watched.pass_ms(expected_ms - TICK_MS, progresses=True)
        assert watched.stall.is_on_probation
        watched.pass_ms(TICK_MS, progresses=True)
        assert not watched.stall.is_on_probation
        expected_ms = min(2 * expected_ms, PROBATION_MS_MAX)
    assert expected_ms == PROBATION_MS_MAX


def test_to_put_out_again_who_has_not_left_yet_does_not_double_its_probation() -> None:
    watched = Watched()
    for _ in range(3):
        watched.stall.put_out()
    watched.pass_ms(PROBATION_MS, progresses=True)
    assert not watched.stall.is_on_probation


def test_stalls_within_the_limit_do_not_prolong_probation() -> None:
    watched = Watched()
    watched.stall.put_out()
    watched.pass_ms(PROBATION_MS // 2, progresses=True)
    watched.pass_ms(STALL_MS, progresses=False)
    assert watched.stall.is_on_probation
    watched.pass_ms(TICK_MS, progresses=True)
    assert not watched.stall.is_on_probation


def test_probation_begins_anew_with_each_pause_and_is_forgotten_after_a_long_time_in_the_set() -> None:
    watched = Watched()
    watched.stall.put_out()
    watched.pass_ms(PROBATION_MS // 2, progresses=True)
    watched.pass_ms(STALL_MS + TICK_MS, progresses=False)
    watched.pass_ms(PROBATION_MS, progresses=True)
    assert watched.stall.is_on_probation
    watched.pass_ms(TICK_MS, progresses=True)
    assert not watched.stall.is_on_probation
    watched.pass_ms(PROBATION_MS_MAX, progresses=True)
    watched.stall.put_out()
    watched.pass_ms(PROBATION_MS, progresses=True)
    assert not watched.stall.is_on_probation, "a second again, not two"


# -- the leader --------------------------------------------------------------------------------------------------------


def test_a_stalled_member_leaves_while_another_acknowledges() -> None:
    leader = new_leader(min_isr=2)
    fetch(leader, 2, 10), fetch(leader, 3, 10)
    asked = ticks_until_asked(leader, heard=(3,), ticks=8)
    assert asked is not None and {node for node, _ in asked.isr} == {1, 3}
    effects = leader.step(AlterPartitionAnswered(asked.attempt, Outcome.APPLIED, 900, 8, (1, 3)))
    assert leader.in_sync == (1, 3)
    assert effects, "what waited for the stalled one is committed"


def test_a_stalled_member_stays_where_too_few_would_be_left() -> None:
    leader = new_leader(min_isr=3)
    fetch(leader, 2, 10), fetch(leader, 3, 10)
    assert ticks_until_asked(leader, heard=(3,), ticks=9) is None


def test_members_that_are_silent_together_stay() -> None:
    leader = new_leader(min_isr=1)
    fetch(leader, 2, 10), fetch(leader, 3, 10)
    assert ticks_until_asked(leader, heard=(), ticks=9) is None, "it may be the leader that is cut off"


def leader_that_put_out_node_2() -> IsrLeader:
    leader = new_leader(min_isr=2)
    fetch(leader, 2, 10), fetch(leader, 3, 10)
    asked = ticks_until_asked(leader, heard=(3,), ticks=8)
    assert asked is not None
    leader.step(AlterPartitionAnswered(asked.attempt, Outcome.APPLIED, 900, 8, (1, 3)))
    return leader


def test_who_was_put_out_is_not_waited_for_and_joins_after_its_probation() -> None:
    leader = leader_that_put_out_node_2()
    now_ms, end = 1_000, leader._log_end_offset
    assert fetch(leader, 2, end, now_ms=now_ms) == [], "caught up, and on probation"
    append(leader)
    assert fetch(leader, 3, end + 1, now_ms=now_ms), "nobody waits for the one on probation"
    joined: list[object] = []
    while not joined and now_ms < 3_000:
        now_ms += TICK_MS
        joined = [*fetch(leader, 2, end + 1, now_ms=now_ms), *leader.step(Tick(now_ms))]
    assert isinstance(joined[-1], AlterPartition) and (2, EPOCHS[2]) in joined[-1].isr
    assert now_ms >= 1_000 + PROBATION_MS


def test_who_stalls_again_before_it_has_joined_is_waited_for_no_longer_than_a_member() -> None:
    leader = leader_that_put_out_node_2()
    now_ms = 1_000
    while leader._stalls[2].is_on_probation:
        now_ms += TICK_MS
        append(leader)
        fetch(leader, 3, leader._log_end_offset, now_ms=now_ms)
        fetch(leader, 2, leader._log_end_offset - 1, now_ms=now_ms)
        leader.step(Tick(now_ms))
    append(leader)
    fetch(leader, 3, leader._log_end_offset, now_ms=now_ms)
    assert leader.high_watermark < leader._log_end_offset, "it is about to join"
    for later_ms in range(TICK_MS, STALL_MS + 3 * TICK_MS, TICK_MS):
        fetch(leader, 3, leader._log_end_offset, now_ms=now_ms + later_ms)
        leader.step(Tick(now_ms + later_ms))
    assert leader.high_watermark == leader._log_end_offset


def has_stalled_after(leader: IsrLeader, ms: int, *, durable: tuple[int, ...]) -> bool:
    """A batch is appended each tick, and is on the disks of these followers; the leader's own takes nothing."""
    for now_ms in range(TICK_MS, ms + 1, TICK_MS):
        append(leader)
        for node in durable:
            fetch(leader, node, leader._log_end_offset, durable=leader._log_end_offset, now_ms=now_ms)
        leader.step(Tick(now_ms))
    return leader.has_stalled


def test_a_leader_has_stalled_when_its_disk_alone_takes_nothing() -> None:
    assert not has_stalled_after(new_leader(min_isr=2, is_fsynced=True), STALL_MS, durable=(2, 3))
    leader = new_leader(min_isr=2, is_fsynced=True)
    assert has_stalled_after(leader, STALL_MS + 2 * TICK_MS, durable=(2, 3))
    assert leader.high_watermark == 10, "it acknowledges nothing meanwhile"
    leader.step(Flushed(leader._log_end_offset))
    leader.step(Tick(STALL_MS + 3 * TICK_MS))
    assert not leader.has_stalled


def test_a_leader_does_not_give_way_to_too_few_nor_for_a_disk_that_nobody_asks_for() -> None:
    assert not has_stalled_after(new_leader(min_isr=2, is_fsynced=True), 2 * STALL_MS, durable=(2,))
    assert not has_stalled_after(new_leader((1,), is_fsynced=True), 2 * STALL_MS, durable=(2, 3)), "none is in sync"
    assert not has_stalled_after(new_leader(min_isr=2, is_fsynced=False), 2 * STALL_MS, durable=(2, 3))


def ticks_until_asked(leader: IsrLeader, *, heard: tuple[int, ...], ticks: int) -> AlterPartition | None:
    """Appends a batch each tick, which the heard followers fetch; returns the first request for another set."""
    for tick in range(1, ticks + 1):
        append(leader)
        for node in heard:
            fetch(leader, node, leader._log_end_offset, now_ms=tick * TICK_MS)
        for effect in leader.step(Tick(tick * TICK_MS)):
            if isinstance(effect, AlterPartition):
                return effect
    return None
