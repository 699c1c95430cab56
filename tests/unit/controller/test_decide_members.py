"""Who votes in a partition's log: replaced disks, moves, what leaders report, and the steps that they take.

`votes` are members and wanted, as engine id: node.
"""

from __future__ import annotations

import pytest

from tests.unit.controller.cluster import IsrCluster, PaxosCluster, newest, topic_id
from tidelog.controller.commands import RemoveBroker
from tidelog.controller.member_steps import MemberSet
from tidelog.controller.moves import planned
from tidelog.controller.partition_commands import (
    AlterCode,
    AlterReassignments,
    LostVote,
    NewReplicas,
    ReportLostVotes,
    TermEnd,
)
from tidelog.model.cluster import PartitionMember
from tidelog.model.errors import InvalidRequest, NotController, OldDirectory
from tidelog.model.ids import NodeId

FOUNDERS = {1: 1, 2: 2, 3: 3}


def changes_of(cluster: PaxosCluster, limit: int = 20) -> list[str]:
    """The leader goes on until nothing is left to do; what it did, as +node or -node with the engine id."""
    done = []
    for _ in range(limit):
        before = cluster.image
        step = cluster.advance()
        if step is not None:
            one = step.add or step.remove
            assert one is not None
            done.append(f"{'-' if step.add is None else '+'}{one.node_id}/{one.engine_id}")
        elif cluster.image is before:
            return done
    raise AssertionError("it never ends")


# -- a replaced disk ---------------------------------------------------------------------------------------------------


def test_a_replaced_disk_is_another_member_and_the_old_one_goes_first() -> None:
    cluster = PaxosCluster()
    cluster.crash(3, new_disk=True)
    assert cluster.votes == (FOUNDERS, {1: 1, 2: 2, 4: 3})
    assert cluster.partition.wanted[-1].storage == cluster.image.brokers[NodeId(3)].storage
    assert cluster.led == (1, 0, (1, 2)), "on its new disk it has no vote yet"
    assert not cluster.partition.is_moving
    cluster.heartbeat(3)
    assert cluster.led == (1, 0, (1, 2))
    assert cluster.partition.is_founding
    assert changes_of(cluster) == ["-3/3", "+3/4"]
    assert cluster.votes == ({1: 1, 2: 2, 4: 3},) * 2
    assert not cluster.partition.is_founding
    assert cluster.led == (1, 0, (1, 2, 3))
    assert cluster.partition.next_engine_id == 5


def test_a_new_disk_votes_only_when_it_has_caught_up() -> None:
    cluster = PaxosCluster()
    cluster.crash(3, new_disk=True)
    cluster.advance()
    assert cluster.advance(4) is None, "the broker is not live"
    cluster.heartbeat(3)
    assert cluster.advance(4) is None
    assert cluster.votes == ({1: 1, 2: 2}, {1: 1, 2: 2, 4: 3})
    assert changes_of(cluster) == ["+3/4"]


def test_a_leader_whose_disk_is_replaced_leads_no_more() -> None:
    cluster = PaxosCluster()
    cluster.crash(1, new_disk=True)
    cluster.heartbeat(1)
    assert cluster.led == (2, 1, (2, 3))
    assert changes_of(cluster) == ["-1/1", "+1/4"]
    assert cluster.led == (2, 1, (1, 2, 3))


def test_each_disk_gets_an_id_of_its_own() -> None:
    cluster = PaxosCluster()
    cluster.crash(3, new_disk=True)
    cluster.crash(3, new_disk=True)
    cluster.heartbeat(3)
    assert cluster.votes[1] == {1: 1, 2: 2, 5: 3}
    assert changes_of(cluster) == ["-3/3", "+3/5"]


def test_the_old_disk_comes_back_as_another_member_when_the_log_has_forgotten_it() -> None:
    late = PaxosCluster()
    late.crash(3, new_disk=True)
    with pytest.raises(OldDirectory):
        late.register(3, process="back", storage="disk-3")
    late.advance()
    late.fence(3)
    late.register(3, process="back", storage="disk-3")
    late.heartbeat(3)
    assert late.votes == ({1: 1, 2: 2}, {1: 1, 2: 2, 5: 3}), "what it has promised as 3 counts for nothing in the log"
    assert changes_of(late) == ["+3/5"]


def test_two_replaced_disks_of_three_leave_nobody_who_could_decide() -> None:
    cluster = PaxosCluster()
    for node in (2, 3):
        cluster.crash(node, new_disk=True)
        cluster.heartbeat(node)
    assert cluster.led == (1, 0, (1,))
    assert changes_of(cluster) == []


def test_two_replaced_disks_of_five_are_replaced_one_by_one() -> None:
    cluster = PaxosCluster(5, 5)
    for node in (1, 5):
        cluster.crash(node, new_disk=True)
        cluster.heartbeat(node)
    assert changes_of(cluster) == ["-1/1", "-5/5", "+1/6", "+5/7"]
    assert cluster.led == (2, 1, (1, 2, 3, 4, 5))


def test_a_journal_that_is_lost_without_its_disk_gets_another_id_once() -> None:
    cluster = PaxosCluster()
    cluster.forget(1, 2)
    assert cluster.votes == (FOUNDERS, FOUNDERS), "it is not its own"
    cluster.forget(1, 1)
    cluster.forget(1, 1)
    assert cluster.votes == (FOUNDERS, {2: 2, 3: 3, 4: 1})
    assert cluster.led == (2, 1, (2, 3)), "it can neither vote nor lead"
    assert changes_of(cluster) == ["-1/1", "+1/4"]
    assert cluster.led == (2, 1, (1, 2, 3))
    cluster.forget(1, 1)
    assert cluster.votes == ({2: 2, 3: 3, 4: 1},) * 2


def test_a_journal_of_a_topic_that_is_gone_is_nobodys_loss() -> None:
    cluster = PaxosCluster()
    image = cluster.image
    vote = LostVote(topic_id("gone"), 0, 1)
    cluster.do(ReportLostVotes(1, newest(image, 1), [vote]))
    assert cluster.image == image


def test_a_journal_that_is_lost_again_before_its_id_votes_gets_yet_another() -> None:
    cluster = PaxosCluster()
    cluster.forget(3, 3)
    cluster.forget(4, 3)
    assert cluster.votes[1] == {1: 1, 2: 2, 5: 3}
    assert changes_of(cluster) == ["-3/3", "+3/5"]


# -- moves -------------------------------------------------------------------------------------------------------------


def test_a_replica_moves_and_the_leader_that_goes_is_removed_by_the_next() -> None:
    cluster = PaxosCluster(4)
    cluster.reassign(4, 2, 3)
    info = cluster.partition
    assert (info.replicas, info.adding, info.removing) == ((4, 2, 3, 1), (4,), (1,))
    assert cluster.votes == (FOUNDERS, {2: 2, 3: 3, 4: 4})
    assert cluster.led == (1, 0, (2, 3, 1))
    cluster.advance()
    assert cluster.led == (4, 1, (4, 2, 3, 1)), "all that is left is to remove the leader"
    assert cluster.partition.is_moving
    cluster.advance()
    info = cluster.partition
    assert (info.replicas, info.adding, info.removing) == ((4, 2, 3), (), ())
    assert cluster.votes == ({2: 2, 3: 3, 4: 4},) * 2
    assert cluster.led == (4, 1, (4, 2, 3))


def test_all_replicas_move_in_turn_and_no_set_is_larger_than_it_must_be() -> None:
    cluster = PaxosCluster(6)
    cluster.reassign(4, 5, 6)
    assert changes_of(cluster) == ["+4/4", "-2/2", "+5/5", "-3/3", "+6/6", "-1/1"]
    assert cluster.led == (4, 1, (4, 5, 6))


@pytest.mark.parametrize(
    ("replicas", "target", "changes"),
    [
        (3, (1,), ["-2/2", "-3/3"]),
        (3, (3,), ["-2/2", "-1/1"]),
        (3, (1, 2, 3, 4, 5), ["+4/4", "+5/5"]),
        (1, (2,), ["+2/2", "-1/1"]),
        (3, (3, 2, 1), []),
        (5, (1, 2, 6), ["-3/3", "-4/4", "+6/6", "-5/5"]),
    ],
)
def test_replicas_become_more_fewer_and_others(replicas: int, target: tuple[int, ...], changes: list[str]) -> None:
    cluster = PaxosCluster(6, replicas)
    cluster.reassign(*target)
    assert changes_of(cluster) == changes
    info = cluster.partition
    assert (info.replicas, info.isr, info.is_moving) == (target, target, False)
    assert info.members == info.wanted == cluster.log.members
    assert info.leader in target


def test_a_dead_member_goes_before_a_live_one() -> None:
    cluster = PaxosCluster(6)
    cluster.fence(3)
    cluster.reassign(4, 5, 6)
    assert changes_of(cluster)[:2] == ["+4/4", "-3/3"]


def test_nothing_is_done_that_would_leave_no_live_majority() -> None:
    cluster = PaxosCluster(5, 5)
    cluster.reassign(3, 4, 5)
    cluster.fence(4, 5)
    assert cluster.step() is None, "of four members two would be live"
    cluster.heartbeat(4)
    assert cluster.step() is not None


def test_nobody_goes_before_a_majority_of_those_who_stay_have_all_that_was_there_on_their_disks() -> None:
    cluster = PaxosCluster(2, 1)
    cluster.reassign(2)
    cluster.behind_for_long = {2}
    assert cluster.advance() is None, "it would be one of two"
    cluster.behind_for_long = set()
    cluster.advance()
    assert cluster.votes[0] == {1: 1, 2: 2}
    cluster.behind_for_long = {2}
    assert cluster.advance() is None, "it would be alone"
    cluster.behind_for_long = set()
    assert changes_of(cluster) == ["-1/1"]

    cluster = PaxosCluster()
    cluster.crash(3, new_disk=True)
    cluster.advance()
    cluster.heartbeat(3)
    cluster.behind_for_long = {2, 4}
    assert cluster.advance() is None, "of three, one would have it"
    cluster.behind_for_long = {2}
    assert changes_of(cluster) == ["+3/4"]


def test_a_vote_that_nobody_casts_any_more_goes_before_one_that_cannot_be_spared() -> None:
    cluster = PaxosCluster()
    cluster.reassign(1)
    cluster.behind_for_long = {3}
    assert changes_of(cluster) == ["-3/3", "-2/2"]


def test_who_misses_its_turn_gets_another_id() -> None:
    cluster = PaxosCluster(5)
    cluster.reassign(4, 5, 3)
    assert cluster.votes[1] == {3: 3, 4: 4, 5: 5}
    cluster.advance(4)
    assert cluster.votes == ({**FOUNDERS, 5: 5}, {3: 3, 5: 5, 6: 4})
    assert changes_of(cluster) == ["-2/2", "+4/6", "-1/1"]
    assert cluster.partition.replicas == (4, 5, 3)


def test_a_move_that_is_called_off_ends_when_the_leader_says_so() -> None:
    cluster = PaxosCluster(4)
    cluster.reassign(4, 2, 3)
    cluster.call_off()
    info = cluster.partition
    assert (info.replicas, info.adding, info.removing) == ((2, 3, 1, 4), (4,), (4,))
    assert cluster.votes == (FOUNDERS, FOUNDERS)
    assert cluster.advance() is None
    assert (cluster.partition.replicas, cluster.partition.is_moving) == ((2, 3, 1), False)


def test_a_move_that_is_called_off_too_late_is_undone() -> None:
    cluster = PaxosCluster(4)
    cluster.reassign(4, 2, 3)
    step = cluster.step()
    assert step is not None
    before = cluster.told()
    cluster.log = step.of(cluster.log)
    cluster.call_off()
    late = MemberSet(cluster.log.members, cluster.log.next_engine_id)
    told = cluster.tell(cluster.told(partition_epoch=before.partition_epoch, in_force=late))
    assert told.code is AlterCode.INVALID_UPDATE_VERSION
    assert 4 in cluster.partition.replicas, "it may vote, so it keeps what it has"
    cluster.tell()
    assert cluster.votes == ({**FOUNDERS, 4: 4}, FOUNDERS)
    assert changes_of(cluster) == ["-4/4"]
    assert (sorted(cluster.partition.replicas), cluster.partition.is_moving) == ([1, 2, 3], False)


def test_a_replica_that_comes_back_after_it_was_no_member_any_more_has_another_id() -> None:
    cluster = PaxosCluster(4)
    cluster.reassign(4, 2, 3)
    changes_of(cluster)
    cluster.reassign(1, 2, 3)
    assert cluster.votes[1] == {2: 2, 3: 3, 5: 1}
    assert changes_of(cluster) == ["+1/5", "-4/4"]


def test_a_broker_is_emptied_by_a_plan_and_then_removed() -> None:
    cluster = PaxosCluster(4)
    with pytest.raises(InvalidRequest, match="move them"):
        cluster.do(RemoveBroker(2))
    for command in planned(cluster.image, leaving=[2]):
        cluster.do(command)
    assert cluster.moving()
    assert changes_of(cluster) == ["+4/4", "-2/2"]
    assert not cluster.moving() and not cluster.held(2)
    cluster.do(RemoveBroker(2))
    assert NodeId(2) not in cluster.image.brokers


def test_a_throttle_ends_with_the_move() -> None:
    cluster = PaxosCluster(4)
    cluster.reassign(4, 2, 3, throttle=1_000)
    cluster.advance()
    assert cluster.image.moves_throttle == 1_000
    cluster.advance()
    assert cluster.image.moves_throttle == 0


def test_a_log_that_is_one_step_ahead_gets_a_leader_from_half_of_the_members_known() -> None:
    cluster = PaxosCluster(3, 2)
    cluster.reassign(1, 2, 3)
    cluster.fence(1)
    assert cluster.led == (2, 1, (2,)), "with 3, which may vote already, it may be a majority"
    cluster.lose(TermEnd.RENEW)
    assert cluster.led == (2, 2, (2,))


def test_a_leader_that_is_to_go_leads_on_while_nobody_that_stays_is_live() -> None:
    cluster = PaxosCluster(2, 2)
    cluster.reassign(2)
    assert cluster.led == (2, 1, (2, 1))
    cluster.fence(2)
    assert cluster.led == (1, 2, (1,))
    cluster.heartbeat(2)
    assert cluster.led == (2, 3, (2, 1))


def test_a_leader_that_is_to_go_leads_on_if_the_log_has_no_other_member_any_more() -> None:
    cluster = PaxosCluster(2, 1)
    cluster.reassign(2)
    cluster.advance()
    step = cluster.step()
    assert cluster.led[0] == 2 and step is not None
    cluster.log = step.of(cluster.log)
    cluster.call_off()
    assert cluster.led[0] == 1, "of what is known here, only 2 is left to go"
    cluster.lose(TermEnd.YIELD)
    assert cluster.led[0] == 2, "1 was removed, and cannot be elected"
    assert changes_of(cluster) == ["+1/3", "-2/2"]
    assert (cluster.led[0], cluster.partition.replicas, cluster.partition.is_moving) == (1, (1,), False)


# -- what is told ------------------------------------------------------------------------------------------------------


def test_a_report_of_what_is_known_changes_nothing() -> None:
    cluster = PaxosCluster()
    before = cluster.image
    assert cluster.tell().code is AlterCode.NONE
    assert cluster.image is before


def test_a_report_that_comes_again_is_answered_alike() -> None:
    cluster = PaxosCluster(4)
    cluster.reassign(2, 3, 1, 4)
    step = cluster.step()
    assert step is not None
    cluster.log = step.of(cluster.log)
    asked = cluster.told()
    first, after = cluster.tell(asked), cluster.image
    assert cluster.tell(asked) == first
    assert (first.code, cluster.image) == (AlterCode.NONE, after)


def test_reports_of_other_epochs_and_of_others_than_the_leader_are_refused() -> None:
    cluster = PaxosCluster()
    cluster.fence(1)
    assert cluster.tell(cluster.told(leader_epoch=0)).code is AlterCode.FENCED_LEADER_EPOCH
    assert cluster.tell(sender=3).code is AlterCode.INVALID_REQUEST
    stale = cluster.told(partition_epoch=0, in_force=MemberSet(cluster.log.members[:2], 4))
    assert cluster.tell(stale).code is AlterCode.INVALID_UPDATE_VERSION
    assert cluster.tell(cluster.told(partition=7)).code is AlterCode.UNKNOWN_PARTITION
    assert cluster.tell(cluster.told(topic_id=topic_id("u"))).code is AlterCode.UNKNOWN_PARTITION
    for later in ({"leader_epoch": 2}, {"partition_epoch": 9}):
        with pytest.raises(NotController):
            cluster.tell(cluster.told(**later))
    assert cluster.votes == (FOUNDERS, FOUNDERS)


def test_a_leader_that_was_handed_over_is_told() -> None:
    cluster = PaxosCluster(4)
    cluster.reassign(4, 2, 3)
    step = cluster.step()
    assert step is not None
    cluster.log = step.of(cluster.log)
    answer = cluster.tell()
    assert (answer.code, answer.leader_epoch) == (AlterCode.NEW_LEADER_ELECTED, 1)


ONE, TWO, FOUR = (PartitionMember(n, n, f"disk-{n}") for n in (1, 2, 4))


@pytest.mark.parametrize(
    "told",
    [
        MemberSet((), 4),
        MemberSet((ONE, ONE), 4),
        MemberSet((ONE, PartitionMember(2, 1, "disk-1")), 4),
        MemberSet((ONE, FOUR), 5),
        MemberSet((ONE, TWO), 2),
        MemberSet((ONE, PartitionMember(2, 2, "another")), 4),
        MemberSet((PartitionMember(0, 4, "disk-4"), ONE), 4),
    ],
    ids=["none", "twice", "two ids of a node", "not given out", "beyond its own end", "another disk", "no id"],
)
def test_members_that_cannot_be_are_refused(told: MemberSet) -> None:
    cluster = PaxosCluster()
    assert cluster.tell(cluster.told(in_force=told)).code is AlterCode.INVALID_REQUEST
    assert cluster.votes == (FOUNDERS, FOUNDERS)


def test_in_sync_replicas_have_no_members_to_report() -> None:
    cluster = PaxosCluster()
    cluster.image = IsrCluster().image
    before = cluster.image
    assert cluster.tell().code is AlterCode.INVALID_REQUEST
    assert cluster.image is before


def test_moves_of_both_kinds_go_into_one_command() -> None:
    cluster = PaxosCluster(4)
    cluster.create("u", 1, 3)
    isr = cluster.image.topics["u"]
    target = [node for node in (1, 2, 3, 4) if node not in isr.partitions[0].replicas[1:]][:1]
    target += isr.partitions[0].replicas[1:]
    cluster.do(AlterReassignments([NewReplicas(topic_id("t"), 0, [4, 2, 3]), NewReplicas(topic_id("u"), 0, target)]))
    assert cluster.votes[1] == {2: 2, 3: 3, 4: 4}
    assert cluster.image.topics["u"].partitions[0].members == ()
