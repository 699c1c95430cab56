"""Commits in a classic group, and the two kinds of groups beside each other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.groups.classic.classic_desk import SETTINGS, ClassicDesk
from tests.unit.groups.desk import Member
from tidelog.groups.settings import Now
from tidelog.model.classic_groups import Protocol
from tidelog.model.errors import (
    FencedMember,
    GroupNotEmpty,
    IllegalGeneration,
    InconsistentProtocol,
    RebalanceInProgress,
    UnknownGroup,
    UnknownMember,
)
from tidelog.model.groups import (
    CommitAnswer,
    CommitOffsets,
    CommittedOffset,
    DeleteGroup,
    GroupDone,
    GroupsListed,
    Heartbeat,
    HeartbeatAnswer,
    ListGroups,
    SetOffsets,
    TopicPartitions,
)

ASSIGNMENT = b"\0\0" + b"\0\0\0\1" + b"\0\1t" + b"\0\0\0\2" + b"\0\0\0\0" + b"\0\0\0\3" + b"\xff\xff\xff\xff"
NOT_THERE = b"\0\0" + b"\0\0\0\2" + b"\0\1t" + b"\0\0\0\1" + b"\0\0\0\4" + b"\0\1x" + b"\0\0\0\1" + b"\0\0\0\0"
SUBSCRIPTION = b"\0\0" + b"\0\0\0\1" + b"\0\1t" + b"\xff\xff\xff\xff"
OFFSETS = (CommittedOffset("t", 0, 5),)


def test_a_member_commits_in_its_generation_and_while_the_others_join_the_next(desk: ClassicDesk) -> None:
    (first,) = desk.stable(1)
    assert desk.commit_as(first, 1, 5) == 0
    desk.enter()
    assert desk.commit_as(first, 1, 6) == 0
    assert desk.offsets() == {("t", 0): 6}


def test_not_while_the_leader_assigns(desk: ClassicDesk) -> None:
    first, joining = desk.enter()
    assert joining.joined.generation == 1
    with pytest.raises(RebalanceInProgress):
        desk.commit_as(first, 1)


@pytest.mark.parametrize("generation", [-1, 0, 1, 3])
def test_not_in_another_generation(desk: ClassicDesk, generation: int) -> None:
    first, _ = desk.stable(2)
    with pytest.raises(IllegalGeneration):
        desk.commit_as(first, generation)


def test_who_is_no_member_commits_while_nobody_is(desk: ClassicDesk) -> None:
    assert desk.commit_as("", -1, 5) == 0
    (first,) = desk.stable(1)
    with pytest.raises(UnknownMember):
        desk.commit_as("", -1)
    with pytest.raises(UnknownMember):
        desk.commit_as("nobody", 1)
    desk.let_go(first)
    assert desk.commit_as("", -1, 9) == 0
    with pytest.raises(UnknownMember):
        desk.commit_as(first, 1)


def test_a_generation_of_a_group_that_is_not_there_is_illegal(desk: ClassicDesk) -> None:
    with pytest.raises(IllegalGeneration):
        desk.commit_as("m1", 1)


# -- beside the other kind ---------------------------------------------------------------------------------------------


def test_a_group_with_classic_members_is_left_alone(desk: ClassicDesk) -> None:
    (first,) = desk.stable(1)
    with pytest.raises(UnknownGroup):
        desk.join("x", "t")
    with pytest.raises(GroupNotEmpty):
        desk.ask(CommitOffsets(group="g", offsets=OFFSETS), CommitAnswer)
    with pytest.raises(GroupNotEmpty):
        desk.ask(SetOffsets(group="g", offsets=OFFSETS), GroupDone)
    with pytest.raises(GroupNotEmpty):
        desk.ask(DeleteGroup(group="g"), GroupDone)
    with pytest.raises(UnknownMember):
        desk.beat(first, 1)


def test_so_is_one_that_only_waits_for_its_first_members(desk: ClassicDesk) -> None:
    desk.ask_join()
    with pytest.raises(GroupNotEmpty):
        desk.ask(DeleteGroup(group="g"), GroupDone)
    desk.pass_time(10)
    desk.ask(DeleteGroup(group="g"), GroupDone)
    assert not desk.shard.groups


def test_an_empty_group_becomes_what_the_next_member_wants_and_keeps_its_offsets(desk: ClassicDesk) -> None:
    member = Member(desk, "x", "t")
    member.beat()
    assert desk.commit_as("x", member.epoch) == 0
    assert desk.ask_join().refusal is InconsistentProtocol
    with pytest.raises(FencedMember):
        desk.commit_as("x", member.epoch + 1)
    with pytest.raises(UnknownMember):
        desk.commit_as("", -1)
    desk.leave("x")
    (first,) = desk.stable(1)
    assert desk.group.record is None
    desk.let_go(first)
    assert Member(desk, "y", "t").epoch == 1
    assert desk.group.classic_record is None
    assert desk.offsets() == {("t", 0): 7}


def test_an_empty_group_is_forgotten_with_its_offsets(desk: ClassicDesk) -> None:
    (first,) = desk.stable(1)
    desk.commit_as(first, 1)
    desk.now = Now(desk.settings.offsets_retention_ms + 10_000, 0.0)
    desk.tidy()
    assert desk.offsets() == {("t", 0): 7}, "while there are members they stay"
    desk.let_go(first)
    desk.tidy()
    assert desk.offsets() == {("t", 0): 7}, "and for a while after"
    desk.now = Now(2 * desk.settings.offsets_retention_ms + 10_000, 0.0)
    desk.tidy()
    assert not desk.shard.groups


def test_after_a_loss_in_the_log_nobody_is_a_member(desk: ClassicDesk) -> None:
    (first,) = desk.stable(1)
    desk.shard.forget_members(desk.now.wall_ms)
    assert desk.classic.phase.value == "Empty"
    assert desk.ask_sync(first, 1).refusal is UnknownMember
    desk.log = [entry for entry in desk.log if b"classic" not in entry[0]]
    desk.put([record for record in desk.shard.live_records() if record.group])


def test_a_coordinator_that_takes_over_awaits_classic_members_alone(desk: ClassicDesk) -> None:
    desk.ask(Heartbeat(group="consumers", member_id="m", member_epoch=0, topics=("t",)), HeartbeatAnswer)
    desk.take_over()
    assert desk.deadlines.next_s() is None
    desk.stable(1)
    desk.take_over()
    assert desk.deadlines.next_s() is not None


# -- as it is shown ----------------------------------------------------------------------------------------------------


def test_a_consumer_group_is_described_with_what_its_members_have(desk: ClassicDesk) -> None:
    said = {"protocols": (Protocol("range", SUBSCRIPTION),), "client_id": "c", "client_host": "h"}
    (first,) = desk.stable(1, **said)
    desk.ask_join(first, **said)
    desk.ask_sync(first, 2, {first: ASSIGNMENT})
    described = desk.described()
    assert (described.kind, described.protocol_type, described.state) == ("classic", "consumer", "Stable")
    assert (described.group_epoch, described.assignor, described.is_simple) == (2, "range", False)
    (member,) = described.members
    assert member.owned == member.target == (TopicPartitions("t", (0, 3)),)
    assert (member.topics, member.metadata, member.assignment) == (("t",), SUBSCRIPTION, ASSIGNMENT)
    (listed,) = desk.ask(ListGroups(partition=0), GroupsListed).groups
    assert (listed.kind, listed.members, listed.state) == ("classic", 1, "Stable")


@pytest.mark.parametrize(
    "said",
    [
        NOT_THERE,
        b"",
        b"\0",
        b"\0\0\x7f\xff\xff\xff",
        ASSIGNMENT[:-9],
        b"\0\0" + b"\0\0\0\1" + b"\0\1\xff" + b"\0\0\0\0",
    ],
)
def test_what_is_no_assignment_is_not_shown(desk: ClassicDesk, said: bytes) -> None:
    (first,) = desk.stable(1)
    desk.ask_join(first)
    desk.ask_sync(first, 2, {first: said})
    assert desk.described().members[0].owned == ()
    assert desk.ask_sync(first, 2).assignment == said


def test_the_state_of_a_classic_group_is_its_phase(desk: ClassicDesk) -> None:
    desk.stable(1)
    assert desk.group.state.value == "Stable"
    desk.enter()
    assert desk.group.state.value == "PreparingRebalance"


def test_other_members_than_consumers_are_described_too(desk: ClassicDesk) -> None:
    said = {"protocol_type": "connect", "protocols": (Protocol("sessioned", ASSIGNMENT),)}
    desk.stable(1, **said)
    described = desk.described()
    assert (described.protocol_type, described.members[0].owned) == ("connect", ())


def test_the_settings_bound_the_members(desk: ClassicDesk) -> None:
    desk.settings = replace(SETTINGS, classic_members_max=2)
    desk.stable(2)
    assert desk.ask_join().refusal.__name__ == "GroupFull"
