"""From what a member owns to what it shall own: never two owners, and nobody disturbed who keeps what it has."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.groups.desk import Desk, Member, settle
from tidelog.groups.decide import has_news
from tidelog.groups.settings import TopicSeen
from tidelog.model.errors import FencedMember
from tidelog.model.groups import Heartbeat, HeartbeatAnswer, TopicPartitions


def beat(member: str, epoch: int, **more: Any) -> Heartbeat:
    return Heartbeat(group="g", member_id=member, member_epoch=epoch, **more)


def test_a_partition_has_no_new_owner_before_the_old_one_has_given_it_up(desk: Desk) -> None:
    desk.join("m1", "t")
    desk.beat("m1", 1, owned=(TopicPartitions("t", (0, 1, 2, 3)),))
    assert desk.join("m2", "t").assignment is None
    told = desk.beat("m1", 1)
    assert (told.member_epoch, told.assignment) == (2, (TopicPartitions("t", (0, 1)),))
    assert desk.beat("m2", 2).assignment is None
    desk.beat("m1", 2, owned=(TopicPartitions("t", (0, 1, 3)),))
    assert desk.beat("m2", 2).assignment is None, "all that was taken away is given up at once"
    assert desk.beat("m1", 2, owned=told.assignment).assignment is None
    assert desk.beat("m2", 2).assignment == (TopicPartitions("t", (2, 3)),)


def test_who_is_expelled_has_given_up_everything(desk: Desk) -> None:
    desk.join("m1", "t")
    desk.join("m2", "t")
    desk.expel("m1", "nobody")
    assert desk.beat("m2", 2).assignment == (TopicPartitions("t", (0, 1, 2, 3)),)


def test_an_old_heartbeat_that_comes_late_gives_nothing_up(desk: Desk) -> None:
    """m1 had partitions 0 and 1, then all four, then is to give up 2 and 3. What it said when it had 0 and 1 only was
    under way all the time."""
    m1, m2 = Member(desk, "m1", "t"), Member(desk, "m2", "t")
    settle(m1, m2)
    late = beat("m1", m1.epoch, owned=(TopicPartitions("t", (0, 1)),))
    desk.leave("m2")
    settle(m1)
    assert len(m1.owned) == 4
    m3 = Member(desk, "m3", "t")
    assert desk.beat("m1", m1.epoch).assignment == (TopicPartitions("t", (0, 1)),)
    with pytest.raises(FencedMember):
        desk.ask(late, HeartbeatAnswer)
    assert m3.beat().assignment is None
    less_late = beat("m1", m1.epoch, owned=late.owned)
    assert desk.ask(less_late, HeartbeatAnswer).assignment == (TopicPartitions("t", (0, 1)),)
    assert m3.beat().assignment is None


def test_who_keeps_its_partitions_is_not_disturbed(desk: Desk) -> None:
    members = [Member(desk, f"m{i}", "t") for i in range(4)]
    settle(*members, rounds_max=8)
    had = {member.member_id: member.owned for member in members}
    for member in members:
        member.gave_up.clear()
    desk.leave("m3")
    settle(*members[:3])
    assert all(member.owned >= had[member.member_id] and not member.gave_up for member in members[:3])


def test_a_new_target_takes_away_more_while_something_is_being_given_up(desk: Desk) -> None:
    m1 = Member(desk, "m1", "t")
    settle(m1)
    m2 = Member(desk, "m2", "t")
    told = desk.beat("m1", 1)
    assert told.assignment == (TopicPartitions("t", (0, 1)),)
    m3, m4 = Member(desk, "m3", "t"), Member(desk, "m4", "t")
    more = desk.beat("m1", 2)
    assert (more.member_epoch, more.assignment) == (4, (TopicPartitions("t", (0,)),))
    desk.beat("m1", 4, owned=(TopicPartitions("t", (0, 1)),))
    assert [len(member.beat().assignment or ()) for member in (m2, m3, m4)] == [0, 0, 0], "1 is not given up yet"
    m1.epoch, m1.owned = 4, frozenset({("t", 0)})
    settle(m1, m2, m3, m4)
    assert sorted(partition for member in (m1, m2, m3, m4) for partition in member.owned) == [
        ("t", number) for number in range(4)
    ]


def test_what_was_given_up_for_nothing_comes_back(desk: Desk) -> None:
    m1 = Member(desk, "m1", "t")
    settle(m1)
    desk.join("m2", "t")
    m1.beat()
    desk.leave("m2")
    assert len(m1.owned) == 2
    settle(m1)
    assert len(m1.owned) == 4


def test_a_topic_that_is_created_anew_is_given_up_and_had_again(desk: Desk) -> None:
    m1 = Member(desk, "m1", "t")
    settle(m1)
    desk.view["t"] = TopicSeen("another id", 4)
    desk.look_at_topics()
    assert m1.beat().assignment == ()
    settle(m1)
    assert len(m1.owned) == 4
    assert {held.topic_id for held in desk.group.currents["m1"].held.values()} == {"another id"}


def test_a_long_poll_has_news_when_the_answer_would_be_another(desk: Desk) -> None:
    assert has_news(desk.shard, beat("m1", 1)), "that it is unknown"
    m1 = Member(desk, "m1", "t")
    assert has_news(desk.shard, beat("m1", 1)), "that it has not said what it owns"
    settle(m1)
    assert not has_news(desk.shard, beat("m1", 1))
    m2 = Member(desk, "m2", "t")
    assert has_news(desk.shard, beat("m1", 1)), "a new target"
    assert not has_news(desk.shard, beat("m2", 2)), "nothing is free"
    m1.beat()
    assert not has_news(desk.shard, beat("m2", 2))
    m1.beat()
    assert has_news(desk.shard, beat("m2", 2)), "something is free"
    settle(m1, m2)
    assert not has_news(desk.shard, beat("m1", 2))
    assert has_news(desk.shard, beat("m1", 1)), "an epoch"


def test_the_states_of_a_group(desk: Desk) -> None:
    m1 = Member(desk, "m1", "t")
    settle(m1)
    assert desk.described().state == "Stable"
    m2 = Member(desk, "m2", "t")
    assert desk.described().state == "Reconciling"
    settle(m1, m2)
    assert desk.described().state == "Stable"
    desk.leave("m1")
    assert desk.described().state == "Reconciling"
    desk.leave("m2")
    assert desk.described().state == "Empty"


def test_of_a_hundred_members_nobody_is_disturbed_for_one_that_joins_but_by_its_share() -> None:
    desk = Desk(big=1_000)
    members = [Member(desk, f"m{number:03}", "big") for number in range(100)]
    settle(*members)
    assert {len(member.owned) for member in members} == {10}
    for member in members:
        member.gave_up.clear()
    logged = len(desk.log)
    members.append(Member(desk, "m100", "big"))
    settle(*members)
    moved = [partition for member in members for partition in member.gave_up]
    assert len(moved) == len(members[-1].owned) == 9
    assert len(desk.log) - logged < 3 * len(members), "a new epoch for everybody, and little more"
