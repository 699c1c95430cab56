"""Who is a member, at which epoch, and with what answer."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from tests.unit.groups.desk import Desk, Member, settle
from tidelog.groups.decide import unchanged
from tidelog.groups.settings import GroupSettings
from tidelog.model.errors import (
    FencedMember,
    GroupFull,
    InvalidRequest,
    UnknownMember,
    UnsupportedAssignor,
)
from tidelog.model.groups import (
    JOIN,
    CommitAnswer,
    CommitOffsets,
    CommittedOffset,
    Heartbeat,
    HeartbeatAnswer,
    TopicPartitions,
    grouped,
)


def test_the_first_member_gets_everything_with_the_answer_to_its_join(desk: Desk) -> None:
    answer = desk.join("m1", "t", "u")
    assert answer == HeartbeatAnswer(
        "m1", 1, 5_000, 45_000, (TopicPartitions("t", (0, 1, 2, 3)), TopicPartitions("u", (0, 1)))
    )
    assert desk.described().state == "Stable"


def test_a_join_may_be_repeated(desk: Desk) -> None:
    first = desk.join("m1", "t")
    logged = len(desk.log)
    assert desk.join("m1", "t") == first
    assert len(desk.log) == logged
    assert desk.group.epoch == 1


def test_a_member_that_joins_again_says_that_it_owns_nothing_and_is_told_of_everything(desk: Desk) -> None:
    m1 = Member(desk, "m1", "t")
    settle(m1)
    assert m1.beat().assignment is None
    again = desk.join("m1", "t")
    assert again.member_epoch == m1.epoch
    assert again.assignment == (TopicPartitions("t", (0, 1, 2, 3)),)


def test_an_old_join_that_comes_late_changes_nothing(desk: Desk) -> None:
    """The member still owns what it has not given up, and wants what it wants now."""
    m1 = Member(desk, "m1", "t")
    settle(m1)
    desk.join("m2", "t")
    told = desk.beat("m1", m1.epoch)
    assert told.assignment == (TopicPartitions("t", (0, 1)),)
    desk.join("m3", "t")
    logged = len(desk.log)
    assert desk.join("m1", "t", rack="a") == told
    with pytest.raises(FencedMember):
        desk.join("m1", "u")
    assert len(desk.log) == logged
    assert desk.beat("m2", 2).assignment is None, "nothing is free yet"


def test_who_joins_may_change_its_mind_before_it_hears_an_answer(desk: Desk) -> None:
    desk.join("m1", "t")
    told = desk.join("m1", "u")
    assert (told.member_epoch, told.assignment) == (2, ())
    assert desk.join("m1", "u") == told
    assert desk.beat("m1", 2, owned=()).assignment == (TopicPartitions("u", (0, 1)),)


def test_a_join_says_what_it_subscribes_to(desk: Desk) -> None:
    with pytest.raises(InvalidRequest, match="what it subscribes to"):
        desk.beat("m1", JOIN)
    assert desk.join("m1").assignment is None, "to nothing, which is what it owns"


def test_topics_that_do_not_exist_are_waited_for(desk: Desk) -> None:
    m1 = Member(desk, "m1", "t", "later")
    settle(m1)
    assert {topic for topic, _ in m1.owned} == {"t"}


def test_whoever_is_unknown_or_speaks_with_an_epoch_of_the_past_or_of_the_future_is_told_so(desk: Desk) -> None:
    with pytest.raises(UnknownMember):
        desk.beat("m1", 1)
    m1 = Member(desk, "m1", "t")
    with pytest.raises(UnknownMember):
        desk.beat("m2", 1)
    for name in ("m2", "m3"):
        Member(desk, name, "t")
        m1.beat()
    assert m1.epoch == 3
    for epoch in (1, 4):
        with pytest.raises(FencedMember, match="at epoch 3"):
            desk.beat("m1", epoch)
    with pytest.raises(InvalidRequest):
        desk.beat("m1", -3)


def test_one_lost_answer_is_told_again(desk: Desk) -> None:
    m1 = Member(desk, "m1", "t")
    settle(m1)
    desk.join("m2", "t")
    lost = desk.beat("m1", m1.epoch)
    logged = len(desk.log)
    assert desk.beat("m1", m1.epoch, owned=grouped(sorted(m1.owned))) == lost
    assert desk.beat("m1", m1.epoch) == lost
    assert len(desk.log) == logged


def test_with_the_epoch_before_nobody_says_anything_new(desk: Desk) -> None:
    """It could be an old heartbeat that comes late; and an answer would make the member believe that it was obeyed."""
    m1 = Member(desk, "m1", "t")
    settle(m1)
    desk.join("m2", "t")
    desk.beat("m1", m1.epoch)
    for news in (
        {"topics": ("u",)},
        {"pattern": "u.*"},
        {"assignor": "range"},
        {"owned": (TopicPartitions("u", (0,)),)},
    ):
        with pytest.raises(FencedMember):
            desk.beat("m1", m1.epoch, **news)
    assert desk.beat("m1", m1.epoch, topics=("t",), pattern="").member_epoch == 2


def test_an_answer_is_repeated_until_the_member_says_that_it_owns_what_it_may(desk: Desk) -> None:
    told = desk.join("m1", "t")
    assert desk.beat("m1", 1).assignment == told.assignment
    assert desk.beat("m1", 1, owned=(TopicPartitions("t", (0, 1)),)).assignment == told.assignment
    assert desk.beat("m1", 1, owned=told.assignment).assignment is None
    assert desk.beat("m1", 1).assignment is None


def test_who_leaves_gives_what_it_had_to_the_others_and_may_say_so_twice(desk: Desk) -> None:
    m1, m2 = Member(desk, "m1", "t"), Member(desk, "m2", "t")
    settle(m1, m2)
    desk.leave("m2")
    logged = len(desk.log)
    assert desk.leave("m2").member_epoch == -1
    assert len(desk.log) == logged
    settle(m1)
    assert len(m1.owned) == 4
    with pytest.raises(UnknownMember):
        m2.beat()


def test_a_group_without_members_goes_on_at_its_epoch(desk: Desk) -> None:
    desk.join("m1", "t")
    desk.leave("m1")
    assert desk.described().state == "Empty"
    assert desk.join("m2", "t").member_epoch == 3


def test_a_member_may_change_what_it_wants(desk: Desk) -> None:
    m1 = Member(desk, "m1", "t")
    settle(m1)
    m1.beat(topics=("u",))
    settle(m1)
    assert m1.owned == {("u", 0), ("u", 1)}
    m1.beat(topics=(), pattern="t|nothing")
    settle(m1)
    assert {topic for topic, _ in m1.owned} == {"t"}
    m1.beat(pattern="")
    settle(m1)
    assert not m1.owned


def test_what_does_not_matter_to_the_assignment_makes_no_epoch(desk: Desk) -> None:
    desk.join("m1", "t", client_id="one", rack="a")
    desk.beat("m1", 1, rack="b", session_timeout_ms=60_000, rebalance_timeout_ms=1_000, topics=("t", "t"))
    assert desk.group.epoch == 1
    member = desk.group.members["m1"]
    assert (member.rack, member.client_id, member.session_timeout_ms) == ("b", "one", 60_000)
    assert desk.beat("m1", 1).session_timeout_ms == 60_000


def test_heartbeats_are_due_three_times_a_session_at_least(desk: Desk) -> None:
    assert desk.join("m1", "t", session_timeout_ms=6_000).heartbeat_interval_ms == 2_000


def test_a_group_goes_by_the_assignor_that_most_want(desk: Desk) -> None:
    assert desk.join("m1", "t", assignor="range").member_epoch == 1
    assert desk.described().assignor == "range"
    desk.join("m2", "t", assignor="roundrobin")
    assert desk.described().assignor == "range", "of equals, the one in use"
    desk.join("m3", "t", assignor="roundrobin")
    assert desk.described().assignor == "roundrobin"
    for name in ("m1", "m2", "m3"):
        desk.leave(name)
    desk.join("m4", "t")
    assert desk.described().assignor == "uniform"


def test_an_assignor_that_does_not_exist_is_refused(desk: Desk) -> None:
    with pytest.raises(UnsupportedAssignor, match="uniform, range, roundrobin"):
        desk.join("m1", "t", assignor="fair")


def test_a_group_has_a_largest_size() -> None:
    desk = Desk(GroupSettings(members_max=2), t=4)
    for name in ("m1", "m2", "m2"):
        desk.join(name, "t")
    with pytest.raises(GroupFull, match=r"group\.consumer\.max\.size"):
        desk.join("m3", "t")
    desk.leave("m1")
    desk.join("m3", "t")


@pytest.mark.parametrize(
    "wrong",
    [
        {"group": ""},
        {"group": "x" * 256},
        {"group": "\udc80"},
        {"member_id": ""},
        {"instance_id": "x/y"},
        {"topics": ("no topic",)},
        {"topics": tuple(f"t{i}" for i in range(1_001))},
        {"pattern": "("},
        {"pattern": "(?=t)"},
        {"pattern": "\udc80"},
        {"pattern": "((a{30}){30}){30}"},
        {"pattern": "x" * 256},
        {"session_timeout_ms": 5_999},
        {"session_timeout_ms": 1_800_001},
        {"rebalance_timeout_ms": 0},
        {"client_id": "x" * 256},
        {"client_host": "x" * 256},
        {"rack": "x" * 256},
    ],
    ids=str,
)
def test_a_join_that_makes_no_sense_is_refused(desk: Desk, wrong: dict[str, Any]) -> None:
    join: dict[str, Any] = {"group": "g", "member_id": "m1", "member_epoch": JOIN, "topics": ("t",), **wrong}
    with pytest.raises(InvalidRequest):
        desk.ask(Heartbeat(**join), HeartbeatAnswer)
    assert not desk.log


def test_so_many_groups_and_no_more() -> None:
    """Groups beyond the bound are refused; the others go on."""
    desk = Desk(GroupSettings(groups_max=1), t=4)
    desk.join("m1", "t")
    desk.join("m2", "t")
    other = Heartbeat(group="other", member_id="m3", member_epoch=JOIN, topics=("t",))
    with pytest.raises(GroupFull, match=r"no more than 1 \(offsets\.topic\.partition\.groups\.max\)"):
        desk.ask(other, HeartbeatAnswer)
    with pytest.raises(GroupFull):
        desk.ask(CommitOffsets(group="other", offsets=(CommittedOffset("t", 0, 1),)), CommitAnswer)
    assert list(desk.shard.groups) == [desk.group.name]


def test_a_group_may_have_any_name(desk: Desk) -> None:
    join = Heartbeat(group="of: /billing é", member_id="client 1-x", member_epoch=JOIN, topics=("t",))
    assert desk.ask(join, HeartbeatAnswer).member_epoch == 1
    assert "of: /billing é" in desk.shard.groups


@pytest.mark.parametrize(
    "said",
    [
        {"owned": ()},
        {"topics": ()},
        {"pattern": ""},
        {"assignor": "range"},
        {"rack": ""},
        {"session_timeout_ms": 45_000},
        {"rebalance_timeout_ms": 1},
        {"client_id": "another"},
    ],
    ids=lambda said: next(iter(said)),
)
def test_only_a_heartbeat_that_says_nothing_is_answered_at_once(desk: Desk, said: dict[str, Any]) -> None:
    member = Member(desk, "m1", "t")
    settle(member)
    beat = Heartbeat(group="g", member_id="m1", member_epoch=member.epoch)
    assert unchanged(desk.shard, beat, desk.settings) == member.beat()
    assert unchanged(desk.shard, structs.replace(beat, **said), desk.settings) is None
    Member(desk, "m2", "t")
    assert unchanged(desk.shard, beat, desk.settings) is None, "there is news"
