"""Groups as a whole: listed, described, deleted."""

from __future__ import annotations

import pytest

from tests.unit.groups.desk import Desk, Member, copied, settle
from tidelog.groups.records import GroupKey, MemberKey, gone
from tidelog.groups.shard import Shard
from tidelog.model.errors import GroupNotEmpty, InvalidRequest, UnknownGroup
from tidelog.model.groups import (
    DeleteGroup,
    DescribeGroup,
    GroupDescription,
    GroupDone,
    GroupListed,
    GroupsListed,
    Heartbeat,
    HeartbeatAnswer,
    ListGroups,
    MemberDescription,
    TopicPartitions,
)


def test_a_group_is_described_with_what_its_members_own_and_will_own(desk: Desk) -> None:
    desk.join("m1", "t", client_id="c", client_host="h", rack="r", instance_id="i1", pattern="u.?")
    desk.join("m2", "t")
    desk.beat("m1", 1)
    description = desk.described()
    assert (description.state, description.group_epoch, description.assignor) == ("Reconciling", 2, "uniform")
    first, second = description.members
    everything = (TopicPartitions("t", (0, 1, 2, 3)), TopicPartitions("u", (0, 1)))
    assert first == MemberDescription("m1", "i1", "c", "h", "r", 2, ("t",), "u.?", everything, first.target)
    assert (second.owned, second.member_epoch) == ((), 2)
    wanted = [pair for member in description.members for entry in member.target for pair in entry.partitions]
    assert len(wanted) == 6


def test_groups_are_listed_by_name(desk: Desk) -> None:
    desk.commit("", -1, 5)
    for group in ("b", "a"):
        join = Heartbeat(group=group, member_id="m", member_epoch=0, topics=("t",))
        desk.ask(join, HeartbeatAnswer)
    assert desk.ask(ListGroups(partition=0), GroupsListed).groups == (
        GroupListed("a", "Stable", 1, "uniform", -1, 1),
        GroupListed("b", "Stable", 1, "uniform", -1, 1),
        GroupListed("g", "Empty", 0, "", -1, 0, is_simple=True),
    )


def test_a_group_without_members_can_be_deleted_with_its_offsets(desk: Desk) -> None:
    m1 = Member(desk, "m1", "t")
    settle(m1)
    desk.commit("m1", 1, 5)
    with pytest.raises(GroupNotEmpty):
        desk.ask(DeleteGroup(group="g"), GroupDone)
    desk.leave("m1")
    assert desk.offsets() == {("t", 0): 5}
    desk.ask(DeleteGroup(group="g"), GroupDone)
    assert not desk.shard.groups
    with pytest.raises(UnknownGroup):
        desk.ask(DeleteGroup(group="g"), GroupDone)


def test_what_is_no_group_cannot_be_described(desk: Desk) -> None:
    with pytest.raises(UnknownGroup):
        desk.described()
    with pytest.raises(InvalidRequest):
        desk.ask(DescribeGroup(group=""), GroupDescription)


def test_after_a_loss_in_the_log_nobody_is_a_member_and_offsets_stay(desk: Desk) -> None:
    m1, m2 = Member(desk, "m1", "t"), Member(desk, "m2", "u")
    settle(m1, m2)
    desk.commit("m1", m1.epoch, 5)
    epoch = desk.described().group_epoch
    desk.shard.forget_members(desk.now.wall_ms)
    description = desk.described()
    assert (description.state, description.members, description.group_epoch) == ("Empty", (), epoch + 1)
    assert desk.offsets() == {("t", 0): 5}
    desk.shard.forget_members(desk.now.wall_ms)
    assert desk.described().group_epoch == epoch + 1, "it is empty already"
    assert desk.join("m1", "t").member_epoch == epoch + 2
    desk.log = copied(desk.shard)


def test_a_group_that_only_keeps_offsets_loses_no_members(desk: Desk) -> None:
    desk.commit("", -1, 5)
    desk.shard.forget_members(desk.now.wall_ms)
    assert desk.described().state == "Empty"
    assert desk.offsets() == {("t", 0): 5}


def test_a_tombstone_of_what_is_not_there_changes_nothing(desk: Desk) -> None:
    desk.put([gone(GroupKey("other")), gone(MemberKey("g", "m1"))])
    assert not desk.shard.groups


def test_a_member_may_come_from_elsewhere(desk: Desk) -> None:
    desk.join("m1", "t", client_id="c", client_host="h")
    desk.beat("m1", 1, client_host="another")
    assert [(one.client_id, one.client_host) for one in desk.described().members] == [("c", "h")], "as it said before"
    desk.beat("m1", 1, client_id="c2", client_host="h2")
    assert [(one.client_id, one.client_host) for one in desk.described().members] == [("c2", "h2")]


def test_a_shard_equals_shards_alone() -> None:
    assert Shard() == Shard()
    assert Shard() != {}
