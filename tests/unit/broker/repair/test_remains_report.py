"""Replicas say what they have of a partition that nobody leads, and it may go on from that, or not."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from tidelog.broker.repair.remains_report import judge_remains
from tidelog.broker.repair.repair_messages import ReplicaState, ReplicaStateQuery
from tidelog.model.cluster import NO_LEADER, PartitionInfo, PartitionMember
from tidelog.model.ids import NodeId

NODES = (NodeId(1), NodeId(2), NodeId(3))
MEMBERS = tuple(PartitionMember(node, node, f"s{node}") for node in NODES)
INFO = PartitionInfo(0, NO_LEADER, 4, NODES, (), members=MEMBERS, wanted=MEMBERS)


def replica_state(end: int, votes_under: int = 0, *, agreed: int = 0, position: int = 0, top: int = 0) -> ReplicaState:
    ids = (votes_under,) if votes_under else ()
    return ReplicaState(
        0, end, 4, engine_ids=ids, agreed_end=agreed, journal_end=agreed, position=position, top_position=top
    )


def test_a_majority_that_can_vote_is_not_given_up() -> None:
    replies = {1: replica_state(9, 1, agreed=9), 2: replica_state(9, 2, agreed=9)}
    report = judge_remains(INFO, replies, (3,), votes=True)
    assert "2 of 3 voters can vote (brokers 1, 2)" in report.refusals[0]
    leading = replace_leading(replies[1])
    assert "broker 1 leads" in judge_remains(INFO, {1: leading}, (2, 3), votes=True).refusals[0]


def test_a_majority_whose_election_waits_is_given_up_once_all_that_are_there_have_promised() -> None:
    """Broker 1 lost the name of what it accepted, and broker 3 its vote: what was chosen nobody knows."""
    waiting = replace_waiting(replica_state(9, 1, agreed=9), unheard=(2, 3))
    replies = {1: waiting, 2: replica_state(9, 2, agreed=9)}
    report = judge_remains(INFO, replies, (3,), votes=True)
    assert len(report.refusals) == 1 and "position 7" in report.refusals[0] and "broker 2 says" in report.refusals[0]
    replies[1] = replace_waiting(waiting, unheard=(3,))
    report = judge_remains(INFO, replies, (3,), votes=True)
    assert report.refusals == () and "waits for position 7 and broker 3" in report.statements[0].status
    assert "--even-though 3" in judge_remains(INFO, replies, (), votes=True).refusals[0]


def replace_waiting(known: ReplicaState, unheard: tuple[int, ...]) -> ReplicaState:
    return msgspec.structs.replace(known, unheard=unheard, unsettled=7)


def replace_leading(known: ReplicaState) -> ReplicaState:
    return ReplicaState(known.log_start_offset, known.log_end_offset, known.epoch, is_leading=True)


def test_an_id_that_the_disk_has_no_more_is_no_vote() -> None:
    replies = {1: replica_state(9, 1, agreed=9), 2: replica_state(9, 7, agreed=9), 3: replica_state(9)}
    report = judge_remains(INFO, replies, (), votes=True)
    assert report.refusals == ()
    assert [said.status.split(",")[0] for said in report.statements] == ["vote", "no vote", "no vote"]


def test_each_broker_that_cannot_be_asked_has_to_be_named() -> None:
    replies = {1: replica_state(9, 1, agreed=9)}
    refusals = judge_remains(INFO, replies, (2,), votes=True).refusals
    assert len(refusals) == 1 and "--even-though 3" in refusals[0]
    assert judge_remains(INFO, replies, (2, 3), votes=True).refusals == ()


def test_journals_are_enough_if_they_account_for_the_longest_log() -> None:
    replies = {1: replica_state(9, 1, agreed=12), 2: replica_state(11), 3: replica_state(8)}
    report = judge_remains(INFO, replies, (), votes=True)
    assert (report.source, report.end) == (-1, 12)


def test_the_longest_log_is_the_source_where_it_has_more() -> None:
    replies = {1: replica_state(9, 1, agreed=9), 2: replica_state(11, position=30), 3: replica_state(8, position=21)}
    report = judge_remains(INFO, replies, (), votes=True)
    assert (report.source, report.end, report.position) == (2, 11, 30)


def test_a_log_that_ends_with_copies_is_put_behind_all_that_is_known() -> None:
    copied = ReplicaState(0, 11, 4, is_named=False)
    replies = {1: replica_state(9, 1, agreed=9, top=40), 2: copied}
    report = judge_remains(INFO, replies, (3,), votes=True)
    assert (report.source, report.position, report.refusals) == (2, 40, ())
    further = ReplicaState(0, 9, 4, engine_ids=(1,), agreed_end=9, journal_end=13, top_position=41)
    assert "does not say where it stands" in judge_remains(INFO, {1: further, 2: copied}, (3,), votes=True).refusals[0]


def test_the_log_with_the_newest_epoch_leads_and_not_the_longest() -> None:
    replies = {1: ReplicaState(0, 20, 3), 2: ReplicaState(0, 15, 4), 3: ReplicaState(0, 15, 4)}
    report = judge_remains(INFO, replies, (), votes=False)
    assert (report.source, report.end, report.kept) == (2, 15, NODES)
    led = replace(INFO, leader=NodeId(2), isr=(NodeId(2),))
    assert judge_remains(led, replies, (), votes=False).refusals == (
        "broker 2 leads this partition: there is nothing to give up",
    )


def test_a_leader_that_waits_for_somebody_who_is_not_there_may_go_on_without() -> None:
    """It is the source even if another log is longer: what was acknowledged it has, but for the damaged end."""
    info = replace(INFO, leader=NODES[1], isr=NODES[1:2], elr=NODES[2:], members=(), wanted=())
    waiting = ReplicaState(0, 15, 4, awaited=(3,))
    report = judge_remains(info, {1: ReplicaState(0, 20, 3), 2: waiting}, (3,), votes=False)
    assert (report.refusals, report.kept, report.source, report.end) == ((), (1, 2), 2, 15)
    report = judge_remains(info, {1: ReplicaState(0, 20, 3), 2: waiting}, (), votes=False)
    assert len(report.refusals) == 1 and "--even-though 3" in report.refusals[0]
    report = judge_remains(info, {2: waiting, 3: ReplicaState(0, 15, 4)}, (1,), votes=False)
    assert len(report.refusals) == 1 and "before, broker 3 says" in report.refusals[0]
    leading = replace_awaited(waiting)
    assert "broker 2 leads" in judge_remains(info, {2: leading}, (1, 3), votes=False).refusals[0]
    assert "broker 2 leads" in judge_remains(info, {1: ReplicaState(0, 20, 3)}, (2, 3), votes=False).refusals[0]


def replace_awaited(known: ReplicaState) -> ReplicaState:
    return ReplicaState(known.log_start_offset, known.log_end_offset, known.epoch)


def test_the_messages_keep_their_names_on_the_wire() -> None:
    tags = [kind.__struct_config__.tag for kind in (ReplicaStateQuery, ReplicaState)]
    assert tags == ["StandingQuery", "Standing"], "brokers of other versions know them by these"
