"""Another coordinator takes over, in every phase of a classic group; and static members come back."""

from __future__ import annotations

import pytest

from tests.unit.groups.classic.classic_desk import ClassicDesk
from tidelog.model.classic_groups import Leaving, Protocol
from tidelog.model.errors import FencedInstance, IllegalGeneration, UnknownMember


def test_a_stable_group_goes_on_as_it_was(desk: ClassicDesk) -> None:
    first, second = desk.stable(2)
    desk.take_over()
    assert desk.heartbeat(first, 2) is None
    assert desk.ask_sync(second, 2).assignment == f"of {second}".encode()
    assert desk.commit_as(second, 2) == 0


def test_a_generation_whose_leader_has_not_assigned_is_waited_for(desk: ClassicDesk) -> None:
    first, second = desk.stable(2)
    desk.ask_join(first, protocols=(Protocol("range", b"other"),))
    desk.ask_join(second)
    desk.ask_sync(second, 3)
    desk.take_over()
    waiting = desk.ask_sync(second, 3)
    desk.ask_sync(first, 3, {second: b"2"})
    assert waiting.assignment == b"2"


def test_and_no_longer_than_the_rebalance_timeout(desk: ClassicDesk) -> None:
    first, second = desk.stable(2, session_timeout_ms=100_000)
    desk.ask_join(first, protocols=(Protocol("range", b"other"),), session_timeout_ms=100_000)
    desk.ask_join(second, session_timeout_ms=100_000)
    desk.take_over()
    desk.ask_sync(second, 3)
    desk.pass_time(60)
    assert [*desk.classic.members] == [second]


def test_who_was_joining_joins_anew_and_the_number_of_a_generation_is_not_used_twice(desk: ClassicDesk) -> None:
    (first,) = desk.stable(1)
    newcomer, _ = desk.enter()
    desk.take_over()
    assert desk.ask_join(newcomer).refusal is UnknownMember
    _, joining = desk.enter()
    again = desk.ask_join(first, protocols=(Protocol("range", b"other"),))
    assert again.joined.generation == joining.joined.generation == 2
    desk.take_over()
    desk.let_go(joining.joined.member_id)
    assert desk.ask_join(first).joined.generation == 3
    assert desk.ask_sync(first, 2, {first: b"of the second"}).refusal is IllegalGeneration


def test_a_member_that_is_gone_when_the_coordinator_changes_is_expelled(desk: ClassicDesk) -> None:
    first, second = desk.stable(2)
    desk.take_over()
    desk.pass_time(9)
    desk.heartbeat(first, 2)
    desk.pass_time(2)
    assert second not in desk.classic.members


# -- static members ----------------------------------------------------------------------------------------------------


def static(desk: ClassicDesk, instance_id: str) -> str:
    """A member of this instance alone in its group."""
    member_id, _ = desk.enter(instance_id=instance_id)
    desk.sync_all([member_id])
    return member_id


def test_a_static_member_has_at_once_what_it_had_and_whoever_it_was_is_fenced(desk: ClassicDesk) -> None:
    before = static(desk, "i")
    after, joining = desk.enter(instance_id="i", can_skip_assignment=True)
    assert joining.joined.generation == 1
    assert joining.joined.skip_assignment
    assert joining.joined.leader == after
    assert desk.ask_sync(after, 1, instance_id="i").assignment == f"of {before}".encode()
    assert desk.ask_sync(before, 1, instance_id="i").refusal is FencedInstance
    assert desk.ask_join(before, instance_id="i").refusal is FencedInstance
    with pytest.raises(FencedInstance):
        desk.heartbeat(before, 1, instance_id="i")
    with pytest.raises(FencedInstance):
        desk.commit_as(before, 1, instance_id="i")
    desk.take_over()
    assert desk.heartbeat(after, 1, instance_id="i") is None


def test_one_that_led_and_cannot_skip_the_assignment_believes_that_another_one_leads(desk: ClassicDesk) -> None:
    before = static(desk, "i")
    after, joining = desk.enter(instance_id="i")
    assert (joining.joined.leader, joining.joined.members) == (before, ())
    assert desk.ask_sync(after, 1).assignment == f"of {before}".encode()


def test_one_that_did_not_lead_is_told_who_leads(desk: ClassicDesk) -> None:
    leader, joining = desk.enter(instance_id="i")
    desk.sync_all([leader])
    other, _ = desk.enter(instance_id="j")
    desk.ask_join(leader, instance_id="i")
    desk.sync_all([leader, other])
    after, joining = desk.enter(instance_id="j", can_skip_assignment=True)
    assert (joining.joined.leader, joining.joined.members, joining.joined.skip_assignment) == (leader, (), False)
    assert desk.ask_sync(after, 2, instance_id="j").assignment == f"of {other}".encode()


def test_one_that_comes_back_while_the_leader_assigns_has_all_join_again(desk: ClassicDesk) -> None:
    before, _ = desk.enter(instance_id="i")
    _, joining = desk.enter(instance_id="i")
    assert joining.joined.generation == 2
    assert desk.ask_sync(before, 1, instance_id="i").refusal is FencedInstance


def test_one_that_waits_to_join_is_fenced_by_the_next(desk: ClassicDesk) -> None:
    desk.stable(1)
    _, lost = desk.enter(instance_id="i")
    _, joining = desk.enter(instance_id="i")
    assert lost.refusal is FencedInstance
    assert joining.told is None


def test_one_that_knows_other_protocols_makes_a_generation(desk: ClassicDesk) -> None:
    static(desk, "i")
    _, joining = desk.enter(instance_id="i", protocols=(Protocol("sticky", b""),))
    assert (joining.joined.generation, joining.joined.protocol) == (2, "sticky")


def test_one_that_is_away_is_waited_for_until_its_session_is_over(desk: ClassicDesk) -> None:
    away = static(desk, "i")
    _, joining = desk.enter(rebalance_timeout_ms=5_000, session_timeout_ms=50_000)
    desk.pass_time(11)
    assert away not in desk.classic.members
    assert [one.instance_id for one in joining.joined.members] == [None]


def test_an_operator_removes_one_by_its_instance_alone(desk: ClassicDesk) -> None:
    static(desk, "i")
    verdicts = desk.let_go(Leaving("", "i"), Leaving("", "j"))
    assert verdicts[0].error is None
    assert isinstance(verdicts[1].error, UnknownMember)
    assert desk.classic.phase.value == "Empty"


def test_one_cannot_leave_for_another(desk: ClassicDesk) -> None:
    static(desk, "i")
    after, _ = desk.enter(instance_id="i")
    assert isinstance(desk.let_go(Leaving("m1", "i"))[0].error, FencedInstance)
    assert [*desk.classic.members] == [after]
