"""Members of a classic group join, sync, are waited for, and expelled."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.groups.classic.classic_desk import RANGE, SETTINGS, ClassicDesk
from tidelog.groups.classic.deadlines import ALL, ClassicDeadlines
from tidelog.groups.decide_classic import decide_silence
from tidelog.model.classic_groups import JoinedMember, Protocol
from tidelog.model.errors import (
    IllegalGeneration,
    InconsistentProtocol,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMember,
)


def test_a_member_alone_leads_a_generation_and_gets_what_it_gives_itself(desk: ClassicDesk) -> None:
    member_id, joining = desk.enter()
    assert joining.joined.generation == 1
    assert joining.joined.leader == member_id
    assert joining.joined.members == (JoinedMember(member_id, None, b"wants t"),)
    syncing = desk.ask_sync(member_id, 1, {member_id: b"all"}, protocol_type="consumer", protocol="range")
    assert syncing.assignment == b"all"
    assert desk.heartbeat(member_id, 1) is None


def test_a_second_member_waits_until_the_first_has_joined_again(desk: ClassicDesk) -> None:
    (first,) = desk.stable(1)
    second, joining = desk.enter()
    assert joining.told is None
    assert isinstance(desk.heartbeat(first, 1), RebalanceInProgress)
    again = desk.ask_join(first)
    assert again.joined.generation == joining.joined.generation == 2
    assert again.joined.leader == joining.joined.leader == first, "whoever leads goes on leading"
    assert [member.member_id for member in again.joined.members] == [first, second]
    assert joining.joined.members == (), "and nobody else is told who the others are"


def test_who_syncs_before_the_leader_waits_for_it(desk: ClassicDesk) -> None:
    first, second = desk.stable(2)
    desk.ask_join(first, protocols=(Protocol("range", b"other"),))
    desk.ask_join(second)
    generation = desk.classic.generation
    waiting = desk.ask_sync(second, generation)
    assert waiting.told is None
    assert desk.heartbeat(second, generation) is None
    desk.ask_sync(first, generation, {first: b"1", second: b"2"})
    assert waiting.assignment == b"2"


def test_a_member_that_the_leader_has_forgotten_gets_nothing_and_one_it_invented_is_nobody(desk: ClassicDesk) -> None:
    first, second = desk.stable(2)
    desk.ask_join(first, protocols=(Protocol("range", b"other"),))
    desk.ask_join(second)
    generation = desk.classic.generation
    desk.ask_sync(first, generation, {first: b"1", "nobody": b"9"})
    assert desk.ask_sync(second, generation).assignment == b""
    assert sorted(desk.classic.members) == sorted([first, second])


def test_only_the_leader_assigns(desk: ClassicDesk) -> None:
    first, second = desk.stable(2)
    desk.ask_join(first, protocols=(Protocol("range", b"other"),))
    desk.ask_join(second)
    generation = desk.classic.generation
    waiting = desk.ask_sync(second, generation, {first: b"stolen", second: b"stolen"})
    assert waiting.told is None
    desk.ask_sync(first, generation, {first: b"1", second: b"2"})
    assert waiting.assignment == b"2"


@pytest.mark.parametrize("generation", [0, 1, 3, -1])
def test_another_generation_than_the_one_in_force_is_illegal(desk: ClassicDesk, generation: int) -> None:
    first, _ = desk.stable(2)
    assert desk.classic.generation == 2
    assert desk.ask_sync(first, generation, {first: b"x"}).refusal is IllegalGeneration
    with pytest.raises(IllegalGeneration):
        desk.heartbeat(first, generation)


def test_a_sync_by_another_protocol_is_refused(desk: ClassicDesk) -> None:
    (first,) = desk.stable(1)
    assert desk.ask_sync(first, 1, protocol="roundrobin").refusal is InconsistentProtocol
    assert desk.ask_sync(first, 1, protocol_type="connect").refusal is InconsistentProtocol


def test_who_does_not_join_again_is_no_member_any_more(desk: ClassicDesk) -> None:
    first, second = desk.stable(2, session_timeout_ms=100_000)
    _, joining = desk.enter(session_timeout_ms=100_000)
    again = desk.ask_join(second, session_timeout_ms=100_000)
    desk.pass_time(59)
    assert joining.told is None
    desk.pass_time(1)
    assert joining.joined.leader == again.joined.leader == second, "the leader before is not there to lead"
    assert first not in desk.classic.members
    assert desk.ask_sync(first, desk.classic.generation).refusal is UnknownMember


def test_who_is_silent_for_a_session_is_expelled_and_the_others_join_again(desk: ClassicDesk) -> None:
    first, second = desk.stable(2)
    desk.pass_time(6)
    assert desk.heartbeat(first, 2) is None
    desk.pass_time(6)
    assert sorted(desk.classic.members) == [first]
    assert isinstance(desk.heartbeat(first, 2), RebalanceInProgress)
    assert desk.ask_join(first).joined.generation == 3
    with pytest.raises(UnknownMember):
        desk.heartbeat(second, 2)


def test_who_joins_and_never_syncs_is_expelled_after_the_rebalance_timeout(desk: ClassicDesk) -> None:
    first, second = desk.stable(2)
    desk.ask_join(first, protocols=(Protocol("range", b"other"),))
    desk.ask_join(second)
    waiting = desk.ask_sync(second, 3)
    for _ in range(12):
        desk.pass_time(5)
        if desk.classic.generation == 3 and first in desk.classic.members:
            desk.heartbeat(first, 3)
    assert first not in desk.classic.members
    assert waiting.refusal is RebalanceInProgress
    assert desk.ask_join(second).joined.leader == second


def test_a_join_is_not_expelled_while_it_waits(desk: ClassicDesk) -> None:
    (first,) = desk.stable(1, session_timeout_ms=100_000)
    _, joining = desk.enter(session_timeout_ms=1_000)
    desk.pass_time(50)
    desk.ask_join(first, session_timeout_ms=100_000)
    assert joining.joined.generation == 2


def test_a_newcomer_whose_caller_may_be_gone_is_given_up_in_the_end(desk: ClassicDesk) -> None:
    said = {"session_timeout_ms": 1_000_000, "rebalance_timeout_ms": 1_000_000}
    desk.stable(1, **said)
    member_id, joining = desk.enter(**said | {"session_timeout_ms": 10_000})
    desk.pass_time(299)
    assert joining.told is None
    desk.pass_time(11)
    assert joining.refusal is UnknownMember
    assert member_id not in desk.classic.members


def test_a_repeated_join_is_told_of_the_same_generation(desk: ClassicDesk) -> None:
    first, second = desk.stable(2)
    assert desk.ask_join(second).joined.generation == 2
    assert desk.classic.phase.value == "Stable"
    assert desk.ask_join(first).told is None, "a leader that joins again wants to assign anew"


def test_of_two_joins_of_one_member_the_first_is_told_to_ask_again(desk: ClassicDesk) -> None:
    desk.stable(1)
    member_id, lost = desk.enter()
    again = desk.ask_join(member_id)
    assert lost.refusal is RebalanceInProgress
    assert again.told is None


def test_who_leaves_is_missed_at_once_and_the_last_one_leaves_an_empty_group(desk: ClassicDesk) -> None:
    first, second = desk.stable(2)
    assert [one.error for one in desk.let_go(second)] == [None]
    assert desk.ask_join(first).joined.generation == 3
    verdicts = desk.let_go(first, "nobody")
    assert verdicts[0].error is None
    assert isinstance(verdicts[1].error, UnknownMember)
    assert desk.classic.phase.value == "Empty"
    assert desk.classic.generation == 4
    assert desk.ask_join(first).refusal is UnknownMember


def test_who_leaves_while_it_waits_is_told(desk: ClassicDesk) -> None:
    (first,) = desk.stable(1)
    second, joining = desk.enter()
    desk.let_go(second)
    assert joining.refusal is UnknownMember
    assert desk.ask_join(first).joined.generation == 2


def test_a_group_that_was_empty_waits_for_more_to_come() -> None:
    desk = ClassicDesk(replace(SETTINGS, initial_rebalance_delay_ms=3_000), t=4)
    _, first = desk.enter()
    desk.pass_time(2)
    _, second = desk.enter()
    desk.pass_time(2)
    assert first.told is None, "somebody came, so three more seconds"
    desk.pass_time(2)
    assert first.joined.generation == second.joined.generation == 1
    assert len(first.joined.members) == 2


def test_it_waits_no_longer_than_its_rebalance_timeout() -> None:
    desk = ClassicDesk(replace(SETTINGS, initial_rebalance_delay_ms=3_000), t=4)
    _, first = desk.enter(rebalance_timeout_ms=5_000)
    for _ in range(5):
        assert first.told is None
        desk.enter(rebalance_timeout_ms=5_000)
        desk.pass_time(1)
    assert first.joined.generation == 1


def test_the_protocol_is_one_that_all_know_and_most_like_best(desk: ClassicDesk) -> None:
    sticky, both = Protocol("sticky", b"s"), (Protocol("sticky", b"s"), Protocol("range", b"r"))
    (first,) = desk.stable(1, protocols=both)
    _, second = desk.enter(protocols=(both[1], both[0]))
    _, third = desk.enter(protocols=(both[1], both[0]))
    desk.ask_join(first, protocols=both)
    assert {one.joined.protocol for one in (second, third)} == {"range"}
    refused = desk.ask_join(protocols=(Protocol("other", b""),))
    assert refused.refusal is InconsistentProtocol
    assert desk.ask_join(protocol_type="connect").refusal is InconsistentProtocol
    desk.let_go(*desk.classic.members)
    assert desk.stable(1, protocols=(sticky,))
    assert desk.ask_join(protocols=RANGE).refusal is InconsistentProtocol


def test_an_id_that_nobody_joins_with_is_forgotten(desk: ClassicDesk) -> None:
    (first,) = desk.stable(1, session_timeout_ms=100_000)
    desk.ask_join(session_timeout_ms=5_000)
    _, joining = desk.enter(session_timeout_ms=100_000)
    again = desk.ask_join(first, session_timeout_ms=100_000)
    assert joining.told is None, "somebody may be about to join"
    desk.pass_time(5)
    assert len(again.joined.members) == 2


def test_an_id_may_be_given_back_before_anybody_has_joined_with_it(desk: ClassicDesk) -> None:
    (first,) = desk.stable(1)
    given = desk.ask_join().told
    assert isinstance(given, MemberIdRequired)
    _, joining = desk.enter()
    desk.ask_join(first)
    assert joining.told is None, "somebody may be about to join"
    (verdict,) = desk.let_go(given.member_id)
    assert verdict.error is None
    assert len(desk.classic.members) == 2 and joining.joined.generation == 2


def test_old_clients_are_members_at_once(desk: ClassicDesk) -> None:
    assert desk.ask_join(requires_known_id=False).joined.generation == 1


def test_a_wait_that_is_over_already_ends_nothing(desk: ClassicDesk) -> None:
    (first,) = desk.stable(1)
    turn = decide_silence(desk.shard, "g", ALL, desk.settings, desk.now)
    assert turn is not None
    assert (turn.records, turn.tells, turn.group) == ([], [], desk.classic)
    assert decide_silence(desk.shard, "another", first, desk.settings, desk.now) is None


def test_who_leaves_a_group_that_is_not_there_is_unknown(desk: ClassicDesk) -> None:
    (verdict,) = desk.let_go("m9")
    assert isinstance(verdict.error, UnknownMember)
    assert not desk.shard.groups


def test_who_is_no_member_is_not_awaited(desk: ClassicDesk) -> None:
    desk.stable(1)
    desk.pass_time(5)
    deadlines = ClassicDeadlines()
    deadlines.heard(desk.classic, "m9", 0.0)
    assert deadlines.next_s() is None


def test_what_could_not_be_done_is_due_again_later() -> None:
    deadlines = ClassicDeadlines()
    deadlines.set(("g", "m1"), 7.0)
    assert (deadlines.pop(6.9), deadlines.pop(7.0), deadlines.next_s()) == (None, ("g", "m1"), None)
