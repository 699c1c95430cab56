"""Commits: whose count, and in which order."""

from __future__ import annotations

import pytest
from msgspec import structs

from tests.unit.groups.desk import Desk, Member, replayed, settle
from tidelog.groups.settings import GroupSettings, TopicSeen
from tidelog.model.errors import (
    FencedMember,
    GroupNotEmpty,
    InvalidRequest,
    MetadataTooLong,
    UnknownMember,
    UnknownPartition,
    UnknownTopic,
)
from tidelog.model.groups import (
    NO_OFFSET,
    CommitAnswer,
    CommitOffsets,
    CommittedOffset,
    FetchOffsets,
    GroupDone,
    OffsetsAnswer,
    SetOffsets,
    TopicPartitions,
)

KEPT, UNKNOWN_TOPIC, UNKNOWN_PARTITION, NOT_OWNED, STALE, TOO_LONG = 0, 40401, 40402, 40915, 40916, 42212


def set_offsets(desk: Desk, *offsets: CommittedOffset) -> None:
    desk.ask(SetOffsets(group="g", offsets=offsets), GroupDone)


# -- whose commits count ----------------------------------------------------------------------------------------------


def test_a_members_commit_counts_for_what_it_owns(desk: Desk) -> None:
    m1 = Member(desk, "m1", "t")
    m2 = Member(desk, "m2", "t")
    settle(m1, m2)
    mine, other = [member for member in (m1, m2) if ("t", 0) in member.owned] + [
        member for member in (m1, m2) if ("t", 0) not in member.owned
    ]
    assert desk.commit(mine.member_id, mine.epoch, 7) == KEPT
    assert desk.commit(other.member_id, other.epoch, 9) == NOT_OWNED
    assert desk.offsets() == {("t", 0): 7}


def test_a_commit_counts_while_the_partition_is_being_given_up_and_not_after(desk: Desk) -> None:
    desk.join("m1", "t")
    desk.beat("m1", 1, owned=(TopicPartitions("t", (0, 1, 2, 3)),))
    desk.beat("m1", 1, topics=("u",))
    assert desk.commit("m1", 1, 5) == KEPT, "with the epoch that it knows of"
    assert desk.commit("m1", 2, 6) == KEPT
    desk.beat("m1", 2, owned=())
    assert desk.commit("m1", 2, 7) == NOT_OWNED
    assert desk.offsets() == {("t", 0): 6}


def test_a_commit_with_an_older_epoch_counts_as_long_as_the_partition_was_owned_since(desk: Desk) -> None:
    m1 = Member(desk, "m1", "t")
    settle(m1)
    for name in ("m2", "m3"):
        Member(desk, name, "u")
        m1.beat()
    assert m1.epoch == 3
    assert desk.commit("m1", 1, 5) == KEPT


def test_a_late_commit_of_a_partition_that_has_come_back_does_not_count(desk: Desk) -> None:
    m1 = Member(desk, "m1", "t")
    settle(m1)
    late = m1.epoch
    m1.beat(topics=("u",))
    m2 = Member(desk, "m2", "t")
    settle(m1, m2)
    assert desk.commit("m2", m2.epoch, 50) == KEPT
    desk.leave("m2")
    m1.beat(topics=("t",))
    settle(m1)
    assert ("t", 0) in m1.owned
    assert desk.commit("m1", late, 20, sequence=3) == NOT_OWNED
    assert desk.offsets() == {("t", 0): 50}


def test_what_was_given_up_comes_back_in_another_epoch(desk: Desk) -> None:
    """Else a commit that was made before would count after, and for a topic that was created anew as well."""
    everything = (TopicPartitions("t", (0, 1, 2, 3)),)
    desk.join("m1", "t")
    desk.beat("m1", 1, owned=everything)
    desk.view["t"] = TopicSeen("another id", 4)
    desk.look_at_topics()
    assert desk.beat("m1", 1).assignment == ()
    told = desk.beat("m1", 2, owned=())
    assert (told.member_epoch, told.assignment) == (3, everything)
    assert desk.commit("m1", 2, 900, sequence=9) == NOT_OWNED
    assert desk.commit("m1", 3, 1, sequence=10) == KEPT


def test_who_is_expelled_or_speaks_with_a_wrong_epoch_commits_nothing(desk: Desk) -> None:
    desk.join("m1", "t")
    for epoch in (2, 0, -1):
        with pytest.raises(FencedMember):
            desk.commit("m1", epoch, 5)
    desk.expel("m1")
    with pytest.raises(UnknownMember):
        desk.commit("m1", 1, 5)


def test_who_is_no_member_commits_only_where_there_are_none(desk: Desk) -> None:
    assert desk.commit("", -1, 5) == KEPT
    assert desk.described().is_simple
    desk.join("m1", "t")
    assert not desk.described().is_simple
    with pytest.raises(GroupNotEmpty):
        desk.commit("", -1, 6)
    desk.leave("m1")
    assert desk.commit("", -1, 4) == KEPT
    assert desk.offsets() == {("t", 0): 4}


# -- in which order ---------------------------------------------------------------------------------------------------


def test_a_commit_that_was_overtaken_does_not_count(desk: Desk) -> None:
    desk.join("m1", "t")
    assert desk.commit("m1", 1, 10, sequence=2) == KEPT
    assert desk.commit("m1", 1, 5, sequence=1) == STALE
    assert desk.offsets() == {("t", 0): 10}


def test_a_commit_may_be_repeated(desk: Desk) -> None:
    desk.join("m1", "t")
    assert desk.commit("m1", 1, 10, sequence=1) == KEPT
    logged = len(desk.log)
    assert desk.commit("m1", 1, 10, sequence=1) == KEPT
    assert len(desk.log) == logged
    assert desk.commit("m1", 1, 11, sequence=1) == STALE, "another commit with its number"


def test_the_order_survives_a_coordinator(desk: Desk) -> None:
    desk.join("m1", "t")
    desk.commit("m1", 1, 10, sequence=2)
    desk.shard = replayed(desk.log)
    assert desk.commit("m1", 1, 5, sequence=1) == STALE
    assert desk.commit("m1", 1, 3, sequence=3) == KEPT, "who says so may go back"


def test_without_numbers_the_last_one_counts(desk: Desk) -> None:
    desk.join("m1", "t")
    assert [desk.commit("m1", 1, offset) for offset in (10, 12, 5)] == [KEPT] * 3
    assert desk.offsets() == {("t", 0): 5}


def test_the_numbers_of_one_member_mean_nothing_for_the_next(desk: Desk) -> None:
    desk.join("m1", "t")
    desk.commit("m1", 1, 10, sequence=900)
    desk.leave("m1")
    desk.join("m2", "t")
    assert desk.commit("m2", 3, 11, sequence=1) == KEPT


# -- what may be committed --------------------------------------------------------------------------------------------


def test_each_committed_offset_has_its_own_verdict(desk: Desk) -> None:
    desk.join("m1", "t")
    offsets = (
        CommittedOffset("t", 0, 1, leader_epoch=4, metadata="here"),
        CommittedOffset("nowhere", 0, 1),
        CommittedOffset("t", 4, 1),
        CommittedOffset("u", 0, 1),
        CommittedOffset("t", 1, 1, metadata="ä" * 2_049),
        CommittedOffset("t", 2, 2, metadata="ä" * 2_048),
    )
    request = CommitOffsets(group="g", member_id="m1", member_epoch=1, sequence=1, offsets=offsets)
    answer = desk.ask(request, CommitAnswer)
    assert [(verdict.topic, verdict.partition, verdict.code) for verdict in answer.verdicts] == [
        ("t", 0, KEPT),
        ("nowhere", 0, UNKNOWN_TOPIC),
        ("t", 4, UNKNOWN_PARTITION),
        ("u", 0, NOT_OWNED),
        ("t", 1, TOO_LONG),
        ("t", 2, KEPT),
    ]
    assert desk.offsets() == {("t", 0): 1, ("t", 2): 2}
    assert desk.ask(FetchOffsets(group="g"), OffsetsAnswer).offsets[0] == offsets[0]


@pytest.mark.parametrize("wrong", [{"offset": -1}, {"offset": 2**63}, {"leader_epoch": -2}], ids=str)
def test_numbers_that_cannot_be_are_refused(desk: Desk, wrong: dict[str, int]) -> None:
    committed = structs.replace(CommittedOffset("t", 0, 1), **wrong)
    with pytest.raises(InvalidRequest):
        desk.ask(CommitOffsets(group="g", offsets=(committed,)), CommitAnswer)


def test_a_topic_that_is_created_anew_has_no_offsets(desk: Desk) -> None:
    m1 = Member(desk, "m1", "t")
    settle(m1)
    desk.commit("m1", m1.epoch, 10, sequence=5)
    desk.view["t"] = TopicSeen("another id", 4)
    assert desk.offsets() == {}
    assert desk.commit("m1", m1.epoch, 11, sequence=6) == NOT_OWNED, "that was the other topic"
    desk.look_at_topics()
    settle(m1)
    assert desk.commit("m1", m1.epoch, 1, sequence=2) == KEPT
    assert desk.offsets() == {("t", 0): 1}


# -- asking for committed offsets -------------------------------------------------------------------------------------


def test_offsets_are_asked_for_by_name_or_all_at_once(desk: Desk) -> None:
    desk.commit("", -1, 5)
    asked = FetchOffsets(group="g", partitions=(TopicPartitions("t", (1, 0)), TopicPartitions("x", (0,))))
    assert [
        (committed.topic, committed.partition, committed.offset) for committed in desk.ask(asked, OffsetsAnswer).offsets
    ] == [
        ("t", 0, 5),
        ("t", 1, NO_OFFSET),
        ("x", 0, NO_OFFSET),
    ]
    assert desk.ask(FetchOffsets(group="nobody knows"[:6]), OffsetsAnswer).offsets == ()


def test_a_member_asks_with_its_epoch(desk: Desk) -> None:
    m1 = Member(desk, "m1", "t")
    for name in ("m2", "m3"):
        Member(desk, name, "u")
        m1.beat()

    def ask(epoch: int, member: str = "m1") -> None:
        desk.ask(FetchOffsets(group="g", member_id=member, member_epoch=epoch), OffsetsAnswer)

    ask(3)
    ask(2)
    for epoch in (1, 4, -1):
        with pytest.raises(FencedMember):
            ask(epoch)
    with pytest.raises(UnknownMember):
        ask(1, "m9")


# -- operators --------------------------------------------------------------------------------------------------------


def test_an_operator_sets_offsets_back_forth_and_away(desk: Desk) -> None:
    desk.commit("", -1, 5)
    set_offsets(desk, CommittedOffset("t", 0, 2), CommittedOffset("u", 1, 9))
    assert desk.offsets() == {("t", 0): 2, ("u", 1): 9}
    set_offsets(desk, CommittedOffset("t", 0, NO_OFFSET), CommittedOffset("gone", 0, NO_OFFSET))
    assert desk.offsets() == {("u", 1): 9}


def test_an_operator_sets_all_offsets_or_none(desk: Desk) -> None:
    desk.commit("", -1, 5)
    good = CommittedOffset("t", 0, 2)
    for wrong, error in (
        (CommittedOffset("x", 0, 1), UnknownTopic),
        (CommittedOffset("t", 9, 1), UnknownPartition),
        (CommittedOffset("t", 1, -2), InvalidRequest),
        (CommittedOffset("t", 1, 2, metadata="x" * 4_097), MetadataTooLong),
    ):
        with pytest.raises(error):
            set_offsets(desk, good, wrong)
    assert desk.offsets() == {("t", 0): 5}


def test_nobody_sets_offsets_under_members(desk: Desk) -> None:
    desk.join("m1", "t", instance_id="i1")
    with pytest.raises(GroupNotEmpty):
        set_offsets(desk, CommittedOffset("t", 0, 2))
    desk.step_out("m1")
    with pytest.raises(GroupNotEmpty):
        set_offsets(desk, CommittedOffset("t", 0, 2))
    desk.expel("m1")
    set_offsets(desk, CommittedOffset("t", 0, 2))


def test_metadata_has_a_bound_of_the_brokers_choice() -> None:
    desk = Desk(GroupSettings(offset_metadata_bytes_max=3), t=1)
    committed = CommittedOffset("t", 0, 1, metadata="four")
    answer = desk.ask(CommitOffsets(group="g", offsets=(committed,)), CommitAnswer)
    assert answer.verdicts[0].code == TOO_LONG
    assert not desk.log
