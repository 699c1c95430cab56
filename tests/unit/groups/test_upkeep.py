"""What happens by the clock, and when the cluster's topics change."""

from __future__ import annotations

from tests.unit.groups.desk import Desk, Member, settle
from tidelog.groups.settings import Now, TopicSeen

DAY_MS = 86_400_000


def test_a_topic_that_grows_is_shared_out_anew(desk: Desk) -> None:
    m1, m2 = Member(desk, "m1", "t"), Member(desk, "m2", "t")
    settle(m1, m2)
    desk.view["t"] = desk.view["t"]._replace(partitions=6)
    desk.look_at_topics()
    settle(m1, m2)
    assert sorted((*m1.owned, *m2.owned)) == [("t", number) for number in range(6)]
    assert {len(m1.owned), len(m2.owned)} == {3}


def test_a_topic_that_appears_goes_to_those_who_wait_for_it_and_to_whose_pattern_it_matches(desk: Desk) -> None:
    by_name, by_pattern = Member(desk, "m1", "new"), Member(desk, "m2", pattern="n.*")
    settle(by_name, by_pattern)
    assert not by_name.owned
    desk.view["new"] = TopicSeen("id-of-new", 2)
    desk.look_at_topics()
    settle(by_name, by_pattern)
    assert [len(by_name.owned), len(by_pattern.owned)] == [1, 1]


def test_a_topic_that_vanishes_is_given_up(desk: Desk) -> None:
    m1 = Member(desk, "m1", "t", "u")
    settle(m1)
    del desk.view["t"]
    desk.look_at_topics()
    settle(m1)
    assert {topic for topic, _ in m1.owned} == {"u"}


def test_other_topics_are_no_matter(desk: Desk) -> None:
    Member(desk, "m1", "t")
    desk.join("m2", "t")
    desk.leave("m2")
    logged = len(desk.log)
    desk.look_at_topics()
    desk.view["other"] = TopicSeen("id-of-other", 2)
    desk.look_at_topics()
    del desk.view["u"]
    desk.look_at_topics()
    assert len(desk.log) == logged


def test_a_group_without_members_does_not_care_about_topics(desk: Desk) -> None:
    desk.join("m1", "t")
    desk.leave("m1")
    desk.commit("", -1, 5)
    logged = len(desk.log)
    desk.view["t"] = desk.view["t"]._replace(partitions=6)
    desk.look_at_topics()
    assert len(desk.log) == logged


def test_all_who_are_expelled_together_make_one_epoch(desk: Desk) -> None:
    for name in ("m1", "m2", "m3"):
        desk.join(name, "t")
    desk.expel("m1", "m2")
    assert desk.group.epoch == 4
    assert list(desk.group.members) == ["m3"]


def test_offsets_of_a_group_with_members_do_not_expire(desk: Desk) -> None:
    desk.commit("", -1, 5)
    desk.join("m1", "t")
    desk.now = Now(30 * DAY_MS, 0.0)
    desk.tidy()
    assert desk.offsets() == {("t", 0): 5}


def test_offsets_expire_when_a_group_is_empty_for_long(desk: Desk) -> None:
    desk.join("m1", "t")
    desk.commit("m1", 1, 5)
    desk.now = Now(30 * DAY_MS, 0.0)
    desk.leave("m1")
    desk.now = Now(37 * DAY_MS - 1, 0.0)
    desk.tidy()
    assert desk.offsets() == {("t", 0): 5}
    desk.now = Now(37 * DAY_MS, 0.0)
    desk.tidy()
    assert not desk.shard.groups, "and the group with the last of them"


def test_offsets_of_a_simple_group_expire_one_by_one(desk: Desk) -> None:
    desk.now = Now(DAY_MS, 0.0)
    desk.commit("", -1, 5)
    desk.now = Now(8 * DAY_MS - 1, 0.0)
    desk.tidy()
    assert desk.offsets()
    desk.now = Now(8 * DAY_MS, 0.0)
    desk.tidy()
    assert not desk.shard.groups


def test_an_empty_group_without_offsets_vanishes(desk: Desk) -> None:
    desk.join("m1", "t")
    desk.tidy()
    assert desk.shard.groups
    desk.leave("m1")
    desk.tidy()
    assert not desk.shard.groups


def test_offsets_of_topics_that_are_gone_vanish(desk: Desk) -> None:
    desk.join("m1", "t")
    desk.commit("m1", 1, 5)
    desk.view["t"] = TopicSeen("another id", 4)
    desk.tidy()
    assert not desk.group.offsets
    assert desk.group.members
