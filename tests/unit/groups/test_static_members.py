"""Static members: who comes back with its `group.instance.id` has its committed offset again, and nobody else
notices."""

from __future__ import annotations

import pytest

from tests.unit.groups.desk import Desk, Member, settle
from tidelog.groups.settings import GroupSettings
from tidelog.model.errors import FencedMember, InstanceIdInUse, InvalidRequest, UnknownMember
from tidelog.model.groups import LEAVE_STATIC


def test_who_comes_back_has_its_committed_offset_again_and_nothing_moves(desk: Desk) -> None:
    m1, m2 = Member(desk, "m1", "t", instance_id="i1"), Member(desk, "m2", "t")
    settle(m1, m2)
    had, epoch = m1.owned, desk.group.epoch
    assert desk.step_out("m1").member_epoch == LEAVE_STATIC
    assert desk.described().state == "Stable"
    settle(m2)
    assert len(m2.owned) == 2, "the committed offset is kept"
    back = Member(desk, "m1-again", "t", instance_id="i1")
    assert (back.owned, back.epoch) == (had, epoch)
    assert sorted(desk.group.members) == ["m1-again", "m2"]
    settle(back, m2)
    assert not m2.gave_up


def test_stepping_out_may_be_said_twice_and_the_same_member_may_come_back(desk: Desk) -> None:
    m1 = Member(desk, "m1", "t", instance_id="i1")
    desk.step_out("m1")
    logged = len(desk.log)
    desk.step_out("m1")
    assert len(desk.log) == logged
    assert Member(desk, "m1", "t", instance_id="i1").owned == m1.owned


def test_a_committed_offset_that_is_kept_counts_in_the_next_assignment(desk: Desk) -> None:
    m1 = Member(desk, "m1", "t", instance_id="i1")
    settle(m1)
    desk.step_out("m1")
    m2 = Member(desk, "m2", "t")
    settle(m2)
    assert len(m2.owned) == 2
    back = Member(desk, "m3", "t", instance_id="i1")
    assert len(back.owned) == 2


def test_while_a_member_lives_nobody_else_has_its_instance_id(desk: Desk) -> None:
    m1 = Member(desk, "m1", "t", instance_id="i1")
    with pytest.raises(InstanceIdInUse, match="m1"):
        desk.join("m2", "t", instance_id="i1")
    desk.expel("m1")
    m2 = Member(desk, "m2", "t", instance_id="i1")
    assert m2.owned == m1.owned
    with pytest.raises(UnknownMember):
        m1.beat()


def test_whose_committed_offset_was_taken_over_is_none_any_more(desk: Desk) -> None:
    m1 = Member(desk, "m1", "t", instance_id="i1")
    desk.step_out("m1")
    with pytest.raises(FencedMember):
        m1.beat()
    with pytest.raises(FencedMember):
        desk.commit("m1", 1, 5)
    Member(desk, "m2", "t", instance_id="i1")
    with pytest.raises(UnknownMember):
        m1.beat()
    desk.step_out("m1")
    desk.leave("m1")
    assert sorted(desk.group.members) == ["m2"], "what the old one says as it leaves comes too late"


def test_a_committed_offset_is_given_away_when_it_was_kept_for_a_session(desk: Desk) -> None:
    m1, m2 = Member(desk, "m1", "t", instance_id="i1"), Member(desk, "m2", "t")
    settle(m1, m2)
    desk.step_out("m1")
    desk.expel("m1")
    settle(m2)
    assert len(m2.owned) == 4


def test_who_comes_back_with_other_wishes_has_them(desk: Desk) -> None:
    Member(desk, "m1", "t", instance_id="i1")
    desk.step_out("m1")
    back = Member(desk, "m2", "u", instance_id="i1")
    assert back.owned == {("u", 0), ("u", 1)}


def test_a_committed_offset_counts_once_in_the_size_of_a_group() -> None:
    desk = Desk(GroupSettings(members_max=1), t=4)
    desk.join("m1", "t", instance_id="i1")
    desk.step_out("m1")
    desk.join("m2", "t", instance_id="i1")


def test_who_is_no_static_member_keeps_no_place(desk: Desk) -> None:
    desk.join("m1", "t")
    with pytest.raises(InvalidRequest, match=r"group\.instance\.id"):
        desk.step_out("m1")


def test_a_member_has_one_instance_id(desk: Desk) -> None:
    desk.join("m1", "t", instance_id="i1")
    with pytest.raises(InvalidRequest, match="another"):
        desk.join("m1", "t", instance_id="i2")
