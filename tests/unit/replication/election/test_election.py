"""The rules of an election, one by one."""

from __future__ import annotations

from copy import deepcopy
from math import inf

import pytest

from tidelog.replication.election import Election, Role
from tidelog.replication.election_events import (
    Advanced,
    Campaign,
    ElectionEffect,
    Heard,
    Heartbeat,
    HeartbeatAnswer,
    LeaderChanged,
    LeaseReleased,
    Listeners,
    LostTerm,
    PeerDown,
    PreVote,
    PreVoteAnswer,
    Promised,
    Ready,
    Reconfigured,
    Resign,
    StepAside,
    Tell,
    Tick,
    WakeAt,
    Won,
)
from tidelog.replication.election_lease import FREE_MS_MAX
from tidelog.replication.election_settings import ElectionSettings
from tidelog.replication.paxos.numbers import make_number
from tidelog.replication.quorum import Joint, Majority, Quorum

LEARNER = (1 << 16) + 9
N1, N2, N3 = (make_number(5, node) for node in (1, 2, 3))
LEASE_S, TIMEOUT_S, BEAT_S = 0.4, 1.0, 0.1


def election(
    me: int = 1, *, quorum: Quorum | None = None, has_voted_before: bool = False, promised: int = 0
) -> Election:
    """At time 0, and chance is always the lower end."""
    made = Election(
        me,
        quorum or Majority((1, 2, 3)),
        ElectionSettings(),
        now_s=0.0,
        has_voted_before=has_voted_before,
        uniform=lambda low, high: low,
        promised=promised,
    )
    assert (LEASE_S, TIMEOUT_S, BEAT_S) == (0.4, 1.0, 0.1)
    return made


def heartbeat(number: int, beat: int = 1) -> Heard:
    return Heard(number & 0xFFFF, Heartbeat(number, beat, 0))


def following(number: int = N2, *, at_s: float = 0.0) -> Election:
    made = election()
    made.step(heartbeat(number), at_s)
    return made


def candidate(at_s: float = 0.0) -> Election:
    made = election()
    made.step(Tick(), at_s)
    made.step(Heard(2, PreVoteAnswer(1, granted=True)), at_s)
    assert made.role is Role.CANDIDATE
    return made


def leader(at_s: float = 0.0) -> Election:
    made = candidate(at_s)
    made.step(Promised(N1), at_s)
    made.step(Won(N1), at_s)
    assert made.role is Role.LEADER
    return made


def told(effects: list[ElectionEffect]) -> dict[int, object]:
    return {effect.to: effect.message for effect in effects if isinstance(effect, Tell)}


# -- asking ----------------------------------------------------------------------------------------------------------


def test_one_voter_elects_itself_at_once_even_after_a_restart() -> None:
    alone = election(quorum=Majority((1,)), has_voted_before=True)
    assert Campaign() in alone.step(Tick(), 0.0)
    assert alone.may_promise(1, 0.0)
    alone.step(Promised(N1), 0.0)
    effects = alone.step(Won(N1), 0.0)
    assert effects == [LeaderChanged(1, N1), WakeAt(BEAT_S)]
    assert alone.has_lease(0.0)


def test_one_voter_that_stood_still_begins_another_term_at_once() -> None:
    """It has missed its own heartbeats, and there is nobody else's to wait for."""
    alone = election(quorum=Majority((1,)))
    alone.step(Tick(), 0.0)
    alone.step(Promised(N1), 0.0)
    alone.step(Won(N1), 0.0)
    late_s = 10 * TIMEOUT_S
    assert alone.step(Tick(), late_s) == [Resign(), LeaderChanged(None, N1), WakeAt(late_s)]
    assert Campaign() in alone.step(Tick(), late_s)


def test_a_lease_of_ones_own_binds_a_voter_that_is_alone_before_strangers() -> None:
    """They may have been told of other voters; that is for the log to say."""
    alone = election(quorum=Majority((1,)))
    alone.step(Tick(), 0.0)
    alone.step(Promised(N1), 0.0)
    alone.step(Won(N1), 0.0)
    assert alone.may_promise(1, 0.1) and not alone.may_promise(2, 0.1)
    assert alone.may_promise(2, LEASE_S + 0.01)


def test_a_voter_that_hears_nobody_asks_before_it_campaigns() -> None:
    voter = election()
    effects = voter.step(Tick(), 0.0)
    assert told(effects) == {2: PreVote(1), 3: PreVote(1)}
    assert Campaign() not in effects
    assert voter.step(Heard(2, PreVoteAnswer(1, granted=False)), 0.0) == []
    assert Campaign() in voter.step(Heard(3, PreVoteAnswer(1, granted=True)), 0.0)


def test_an_answer_to_an_earlier_round_counts_for_nothing() -> None:
    voter = election()
    voter.step(Tick(), 0.0)
    voter.step(heartbeat(N3), 0.0)
    voter.step(Tick(), TIMEOUT_S)
    assert voter.role is Role.PROSPECTIVE
    assert voter.step(Heard(2, PreVoteAnswer(1, granted=True)), TIMEOUT_S) == []
    assert Campaign() in voter.step(Heard(2, PreVoteAnswer(2, granted=True)), TIMEOUT_S)


def test_it_asks_again_until_somebody_leads() -> None:
    voter = election()
    voter.step(Tick(), 0.0)
    assert told(voter.step(Tick(), 0.05)) == {2: PreVote(1), 3: PreVote(1)}
    voter.step(heartbeat(N3), 0.06)
    assert voter.role is Role.FOLLOWER
    assert told(voter.step(Tick(), 0.5)) == {}


def test_who_hears_a_leader_would_not_promise() -> None:
    voter = following(N2)
    assert told(voter.step(Heard(3, PreVote(7)), LEASE_S + 0.1)) == {3: PreVoteAnswer(7, granted=False)}


def test_who_is_bound_by_a_lease_would_not_promise_though_the_leader_is_down() -> None:
    voter = following(N2)
    voter.step(PeerDown(2), 0.1)
    assert told(voter.step(Heard(3, PreVote(7)), 0.39)) == {3: PreVoteAnswer(7, granted=False)}
    assert told(voter.step(Heard(3, PreVote(7)), 0.41)) == {3: PreVoteAnswer(7, granted=True)}


def test_a_leader_and_a_candidate_would_not_promise() -> None:
    for voter in (leader(), candidate()):
        assert told(voter.step(Heard(3, PreVote(7)), 0.01)) == {3: PreVoteAnswer(7, granted=False)}


def test_one_is_welcomed_at_a_time() -> None:
    voter = election(me=1, has_voted_before=False)
    voter.step(heartbeat(N2), 0.0)
    voter.step(Heard(2, LeaseReleased(N2)), 0.0)
    assert told(voter.step(Heard(3, PreVote(1)), 0.0)) == {3: PreVoteAnswer(1, granted=True)}
    assert told(voter.step(Heard(2, PreVote(1)), 0.01)) == {2: PreVoteAnswer(1, granted=False)}
    voter.step(Tick(), 0.01)
    assert voter.role is Role.FOLLOWER, "it does not compete with whom it has just welcomed"
    copied = deepcopy(voter)
    copied.step(Tick(), BEAT_S / 2)
    assert copied.role is Role.PROSPECTIVE, "when its turn comes"
    assert told(voter.step(Heard(2, PreVote(1)), 0.06)) == {2: PreVoteAnswer(1, granted=True)}


def test_whoever_is_welcomed_is_so_for_a_turn() -> None:
    voter = election()
    for sender, at_s, granted in ((3, 0.0, True), (3, 0.0, True), (2, 0.04, False), (2, 0.05, True)):
        assert told(voter.step(Heard(sender, PreVote(1)), at_s)) == {sender: PreVoteAnswer(1, granted=granted)}


def test_who_asks_gives_way_to_a_smaller_one_after_a_turn() -> None:
    voter = election(me=2)
    voter.step(Tick(), 0.0)
    for at_s, granted in ((0.04, False), (0.05, True)):
        assert told(voter.step(Heard(1, PreVote(1)), at_s)) == {1: PreVoteAnswer(1, granted=granted)}


def test_a_leader_that_is_silent_for_the_timeout_holds_nobody_up() -> None:
    voter = following(N2)
    for at_s, granted in ((TIMEOUT_S - 0.01, False), (TIMEOUT_S, True)):
        assert told(voter.step(Heard(3, PreVote(1)), at_s)) == {3: PreVoteAnswer(1, granted=granted)}


def test_a_candidate_begins_once_and_hears_of_no_release() -> None:
    voter = candidate()
    assert voter.step(Heard(3, PreVoteAnswer(1, granted=True)), 0.0) == []
    assert voter.step(Heard(2, LeaseReleased(N2)), 0.1) == []
    assert voter.role is Role.CANDIDATE


def test_of_two_that_ask_the_larger_goes_first() -> None:
    voter = election(me=2)
    voter.step(Tick(), 0.0)
    assert told(voter.step(Heard(1, PreVote(1)), 0.0)) == {1: PreVoteAnswer(1, granted=False)}
    assert told(voter.step(Heard(3, PreVote(1)), 0.0)) == {3: PreVoteAnswer(1, granted=True)}
    assert voter.step(Heard(1, PreVoteAnswer(1, granted=True)), 0.0) == [], "it has given its own voice away"


# -- campaigning -----------------------------------------------------------------------------------------------------


def test_a_lost_attempt_waits() -> None:
    voter = candidate()
    voter.step(Promised(N1), 0.0)
    assert voter.step(LostTerm(N1), 0.1) == [WakeAt(0.1 + TIMEOUT_S)]
    assert voter.role is Role.FOLLOWER


def test_the_end_of_an_earlier_term_ends_no_other() -> None:
    made = leader()
    assert made.step(LostTerm(make_number(4, 1)), 0.1) == []
    assert made.role is Role.LEADER
    led = following(N2)
    assert led.step(LostTerm(N1), 0.1) == []


def test_who_can_lead_again_asks_at_once_if_nobody_leads() -> None:
    voter = candidate()
    voter.step(LostTerm(N1), 0.1)
    assert voter.step(Ready(), 0.2) == [WakeAt(0.2)]
    assert voter.step(Ready(), 0.3) == [], "it does not put off what is due"
    led = following(N2)
    assert led.step(Ready(), 0.1) == []


def test_an_attempt_without_outcome_ends() -> None:
    voter = candidate()
    assert voter.step(Tick(), TIMEOUT_S) == [Resign(), WakeAt(2 * TIMEOUT_S)]


def test_a_candidate_yields_to_a_newer_number_only() -> None:
    voter = candidate()
    voter.step(Promised(N2), 0.0)
    assert voter.role is Role.FOLLOWER
    voter = candidate()
    voter.step(Promised(make_number(6, 1)), 0.0)
    assert voter.step(heartbeat(N3), 0.0) == []
    assert Resign() in voter.step(heartbeat(make_number(7, 3)), 0.0)


def test_a_victory_that_comes_too_late_is_given_back() -> None:
    voter = following(N2)
    assert voter.step(Won(N1), 0.0) == [Resign()]


# -- leading ---------------------------------------------------------------------------------------------------------


def test_a_leader_beats_to_voters_and_listeners() -> None:
    voter = candidate()
    voter.step(Promised(N1), 0.0)
    voter.step(Listeners((LEARNER, 2)), 0.0)
    voter.step(Advanced(77), 0.0)
    beat = Heartbeat(N1, 1, 77)
    assert told(voter.step(Won(N1), 0.0)) == {2: beat, 3: beat, LEARNER: beat}
    assert told(voter.step(Tick(), BEAT_S))[2] == Heartbeat(N1, 2, 77)


def test_a_lease_counts_from_when_the_heartbeat_was_sent() -> None:
    voter = leader()
    assert not voter.has_lease(0.0)
    voter.step(Heard(2, HeartbeatAnswer(N1, 1)), 0.3)
    assert voter.has_lease(0.379)
    assert not voter.has_lease(0.381), "L less the drift"


def test_a_lease_is_the_best_quorum_s() -> None:
    five = election(quorum=Majority(range(1, 6)))
    five.step(Tick(), 0.0)
    for peer in (2, 3):
        five.step(Heard(peer, PreVoteAnswer(1, granted=True)), 0.0)
    five.step(Promised(N1), 0.0)
    five.step(Won(N1), 0.0)
    five.step(Tick(), 0.1)
    five.step(Tick(), 0.2)
    five.step(Heard(2, HeartbeatAnswer(N1, 3)), 0.2)
    five.step(Heard(3, HeartbeatAnswer(N1, 2)), 0.2)
    five.step(Heard(4, HeartbeatAnswer(N1, 1)), 0.2)
    assert five.has_lease(0.1 + 0.379) and not five.has_lease(0.1 + 0.381)


def test_an_answer_of_a_stranger_or_to_another_term_is_no_grant() -> None:
    voter = leader()
    voter.step(Heard(9, HeartbeatAnswer(N1, 1)), 0.0)
    voter.step(Heard(2, HeartbeatAnswer(N2, 1)), 0.0)
    voter.step(Heard(2, HeartbeatAnswer(N1, 8)), 0.0)
    assert not voter.has_lease(0.0)


def test_a_leader_without_a_quorum_resigns_and_releases_its_leases() -> None:
    voter = leader()
    voter.step(Heard(2, HeartbeatAnswer(N1, 1)), 0.0)
    now_s = 0.0
    while voter.role is Role.LEADER:
        now_s += BEAT_S
        effects = voter.step(Tick(), now_s)
    assert now_s == pytest.approx(TIMEOUT_S + BEAT_S, abs=BEAT_S)
    assert Resign() in effects and told(effects) == {2: LeaseReleased(N1), 3: LeaseReleased(N1)}
    assert voter.may_promise(2, now_s)


def test_a_leader_s_own_voice_is_bound_as_well() -> None:
    voter = leader()
    assert not voter.may_promise(2, 0.39) and voter.may_promise(2, 0.41)


def test_a_larger_number_deposes() -> None:
    voter = leader()
    effects = voter.step(heartbeat(N2), 0.1)
    assert Resign() in effects and LeaderChanged(2, N2) in effects
    assert not voter.has_lease(0.1)


def test_stepping_aside_names_a_successor() -> None:
    voter = leader()
    effects = voter.step(StepAside(3), 0.1)
    assert effects[0] == Resign()
    assert told(effects) == {2: LeaseReleased(N1, 3), 3: LeaseReleased(N1, 3)}
    assert voter.may_promise(3, 0.1) and not voter.has_lease(0.1)
    assert voter.step(StepAside(3), 0.1) == []


# -- what is over ----------------------------------------------------------------------------------------------------


def test_an_answer_says_for_how_long_no_lease_of_an_earlier_term_has_run() -> None:
    voter = following(N2)  # it grants a lease until 0.4
    voter.step(Promised(N3), 0.9)
    assert told(voter.step(heartbeat(N3), 1.0)) == {3: HeartbeatAnswer(N3, 1, 600)}
    assert told(voter.step(heartbeat(N3, beat=2), 1.25)) == {3: HeartbeatAnswer(N3, 2, 850)}


def test_a_lease_that_was_released_ran_until_then() -> None:
    voter = following(N2)
    voter.step(Heard(2, LeaseReleased(N2, 3)), 0.25)
    voter.step(Promised(N3), 0.3)
    assert told(voter.step(heartbeat(N3), 0.75)) == {3: HeartbeatAnswer(N3, 1, 500)}


def test_a_leader_is_alone_since_a_quorum_was_bound_to_nobody_before_it() -> None:
    voter = leader()
    assert voter.alone_s(5.0) == 0.0, "its own word is no quorum"
    voter.step(Heard(2, HeartbeatAnswer(N1, 1)), 0.1)
    assert voter.alone_s(5.0) == 0.0, "a voter of an earlier version does not say"
    voter.step(Heard(2, HeartbeatAnswer(N2, 1, 900)), 0.1)
    assert voter.alone_s(5.0) == 0.0, "an answer to another term"
    voter.step(Heard(2, HeartbeatAnswer(N1, 2, 400)), 0.2)
    assert voter.alone_s(0.2) == pytest.approx(0.4 * 0.95), "the voter's clock may be the faster one"
    voter.step(Heard(3, HeartbeatAnswer(N1, 2, 700)), 0.2)
    assert voter.alone_s(0.2) == pytest.approx(0.7 * 0.95), "any quorum has a voter that granted the last lease"
    voter.step(StepAside(2), 1.0)
    assert voter.alone_s(5.0) == 0.0


# -- following -------------------------------------------------------------------------------------------------------


def test_a_heartbeat_is_answered_and_binds() -> None:
    voter = election()
    effects = voter.step(heartbeat(N2, beat=4), 0.0)
    assert told(effects) == {2: HeartbeatAnswer(N2, 4, FREE_MS_MAX)}
    assert LeaderChanged(2, N2) in effects
    assert voter.may_promise(2, 0.1) and not voter.may_promise(3, 0.39) and not voter.may_promise(1, 0.39)
    assert voter.may_promise(3, 0.41)


def test_a_stale_heartbeat_is_ignored() -> None:
    voter = following(N3)
    assert voter.step(heartbeat(N2), 0.1) == []


def test_a_heartbeat_under_somebody_else_s_number_is_ignored() -> None:
    assert told(election().step(Heard(3, Heartbeat(N2, 1, 0)), 0.0)) == {}


def test_who_has_promised_a_newer_number_never_grants_an_older_one_again() -> None:
    voter = following(N2)
    assert LeaderChanged(None, N2) in voter.step(Promised(N3), 0.5)
    assert voter.step(heartbeat(N2), 0.5) == []
    assert not voter.may_promise(2, 0.8) and voter.may_promise(3, 0.8)
    after_a_restart = election(has_voted_before=True, promised=N3)
    assert told(after_a_restart.step(heartbeat(N2), 0.0)) == {}
    assert told(after_a_restart.step(heartbeat(N3), 0.0)) == {3: HeartbeatAnswer(N3, 1, 0)}


@pytest.mark.parametrize("number", [N1, N2])
def test_a_promise_that_is_no_newer_than_the_leader_binds_nobody_for_longer(number: int) -> None:
    """The disk may report it after the heartbeats of the term that it was made to."""
    voter = following(N2)
    assert voter.step(Promised(number), 0.3) == []
    assert voter.leader == 2
    assert not voter.may_promise(3, LEASE_S - 0.01) and voter.may_promise(3, LEASE_S + 0.01)


def test_after_a_restart_nobody_is_promised_for_a_lease() -> None:
    voter = election(has_voted_before=True)
    assert not any(voter.may_promise(node, LEASE_S - 0.01) for node in (1, 2, 3))
    assert told(voter.step(Heard(2, PreVote(1)), 0.1)) == {2: PreVoteAnswer(1, granted=False)}
    assert all(voter.may_promise(node, LEASE_S) for node in (1, 2, 3))


def test_a_dead_leader_shortens_the_wait_to_its_lease() -> None:
    voter = following(N2)
    voter.step(PeerDown(3), 0.1)
    (wake,) = voter.step(PeerDown(2), 0.1)
    assert isinstance(wake, WakeAt) and wake.at_s == pytest.approx(LEASE_S * 1.05), "and to its end by every clock"
    assert told(voter.step(Tick(), LEASE_S * 1.05 + 1e-9)) == {2: PreVote(1), 3: PreVote(1)}


def test_a_leader_that_is_heard_again_is_not_dead() -> None:
    voter = following(N2)
    voter.step(PeerDown(2), 0.1)
    voter.step(heartbeat(N2), 0.2)
    assert told(voter.step(Tick(), 0.9)) == {}


def test_a_release_frees_at_once() -> None:
    voter = following(N2)
    effects = voter.step(Heard(2, LeaseReleased(N2)), 0.1)
    assert effects == [LeaderChanged(None, N2), WakeAt(0.1)]
    assert voter.may_promise(3, 0.1)
    assert voter.step(heartbeat(N2, beat=9), 0.1) == [], "an echo of a term that is over"


@pytest.mark.parametrize(("successor", "wake_s"), [(1, 0.1), (3, 0.1 + TIMEOUT_S), (None, 0.1)])
def test_a_successor_goes_first(successor: int | None, wake_s: float) -> None:
    voter = following(N2)
    assert WakeAt(wake_s) in voter.step(Heard(2, LeaseReleased(N2, successor)), 0.1)


def test_a_late_release_does_not_end_a_newer_term() -> None:
    voter = following(N2)
    newer = make_number(9, 2)
    voter.step(heartbeat(newer), 0.1)
    assert voter.step(Heard(2, LeaseReleased(N2)), 0.2) == []
    assert voter.leader == 2 and not voter.may_promise(3, 0.2)


# -- other voters ----------------------------------------------------------------------------------------------------


def test_a_learner_follows_and_never_asks() -> None:
    learner = election(me=LEARNER)
    effects = learner.step(heartbeat(N2), 0.0)
    assert effects == [LeaderChanged(2, N2), WakeAt(TIMEOUT_S)], "nor does it grant anything"
    assert learner.step(Tick(), TIMEOUT_S) == [LeaderChanged(None, N2), WakeAt(inf)]


def test_a_learner_that_becomes_a_voter_asks_when_it_hears_nobody() -> None:
    learner = election(me=LEARNER)
    learner.step(Tick(), 0.0)
    assert learner.step(Reconfigured(4, Majority((1, 2, 3, 4))), 1.0) == [WakeAt(1.0 + TIMEOUT_S)]
    assert set(told(learner.step(Tick(), 2.0))) == {1, 2, 3}


def test_a_leader_is_elected_anew_under_a_joint_quorum() -> None:
    voter = leader()
    voter.step(Heard(2, HeartbeatAnswer(N1, 1)), 0.0)
    joint = Joint((Majority((1, 2, 3)), Majority((1, 2, 4))))
    effects = voter.step(Reconfigured(1, joint), 0.1)
    assert Campaign() in effects and told(effects) == {}
    assert not voter.has_lease(0.1)
    number = make_number(6, 1)
    voter.step(Promised(number), 0.1)
    assert set(told(voter.step(Won(number), 0.1))) == {2, 3, 4}
    voter.step(Heard(3, HeartbeatAnswer(number, 1)), 0.1)
    assert not voter.has_lease(0.1), "no majority of the new voters"
    voter.step(Heard(4, HeartbeatAnswer(number, 1)), 0.1)
    assert voter.has_lease(0.1)


def test_a_leader_that_is_no_voter_any_more_resigns() -> None:
    voter = leader()
    effects = voter.step(Reconfigured(1, Majority((2, 3))), 0.1)
    assert effects[0] == Resign() and told(effects) == {2: LeaseReleased(N1), 3: LeaseReleased(N1)}
    assert voter.step(Tick(), 5.0) == [WakeAt(inf)]


def test_a_former_only_voter_that_may_have_granted_waits_before_a_larger_quorum() -> None:
    """It was restarted, took itself for the only voter, and learned better."""
    voter = election(quorum=Majority((1,)), has_voted_before=True)
    voter.step(Tick(), 0.0)
    assert voter.step(Reconfigured(1, Majority((1, 2, 3))), 0.1) == [WakeAt(LEASE_S)]
    assert voter.role is Role.FOLLOWER


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(AssertionError):
        ElectionSettings(heartbeat_ms=400)
    with pytest.raises(AssertionError):
        ElectionSettings(lease_ms=1000)
