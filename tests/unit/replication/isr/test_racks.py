"""`min.insync.racks`: acknowledged records are in so many racks, and a leader does not give that up lightly."""

from __future__ import annotations

from msgspec.structs import replace

from tidelog.replication.isr.events import AlterPartition, IsrChanged, IsrSettings, LogState
from tidelog.replication.isr.leader import IsrLeader

from .test_leader import EPOCHS, append, fetch
from .test_stall import ticks_until_asked

RACKS = {1: "a", 2: "a", 3: "b"}
SET = IsrChanged((1, 2, 3), (1, 2, 3), 7, EPOCHS, 2, is_fsynced=False, min_racks=2, racks=RACKS)


def leader_of(partition: IsrChanged) -> IsrLeader:
    return IsrLeader(1, 4, LogState(0, 10, 10, ((2, 0),)), 10, partition, IsrSettings(1_000, retry_ms=10), now_ms=0)


def test_members_are_enough_if_they_are_as_many_in_as_many_racks() -> None:
    assert [SET.is_enough(members) for members in ((1, 3), (1, 2), (3,), ())] == [True, False, False, False]
    assert replace(SET, min_racks=1).is_enough((1, 2))
    nowhere = replace(SET, racks={1: ""})
    assert not nowhere.is_enough((1, 2)), "whose rack is not known stands with those that have none"


def test_in_too_few_racks_nothing_is_committed() -> None:
    leader = leader_of(replace(SET, isr=(1, 2)))
    append(leader)
    assert leader.is_below_min_isr
    assert fetch(leader, 2, 11) == []
    leader.step(replace(SET, isr=(1, 2), min_racks=1))
    assert leader.high_watermark == 11


def test_a_stalled_member_stays_while_it_is_the_only_one_in_its_rack() -> None:
    leader = leader_of(SET)
    fetch(leader, 2, 10), fetch(leader, 3, 10)
    assert ticks_until_asked(leader, heard=(2,), ticks=9) is None
    leader = leader_of(SET)
    fetch(leader, 2, 10), fetch(leader, 3, 10)
    asked = ticks_until_asked(leader, heard=(3,), ticks=9)
    assert isinstance(asked, AlterPartition) and [node for node, _ in asked.isr] == [1, 3]
