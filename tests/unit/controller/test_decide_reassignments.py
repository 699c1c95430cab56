"""Replicas move: begun, ended by the ISR, called off, replaced, planned for a whole cluster."""

from __future__ import annotations

import pytest

from tests.unit.controller.cluster import IsrCluster, topic_id
from tidelog.config.schema import BrokerConfig
from tidelog.controller.commands import (
    AddPartitions,
    CreateTopic,
    DeleteTopic,
    NewTopic,
    RemoveBroker,
    TopicPlaced,
)
from tidelog.controller.moves import planned
from tidelog.controller.partition_commands import MOVES_MAX, AlterReassignments, NewReplicas
from tidelog.controller.snapshot import decode_image, encode_image
from tidelog.model.cluster import NO_THROTTLE
from tidelog.model.errors import InvalidRequest, NotFound, UnknownPartition


def replicas_of(cluster: IsrCluster) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    return cluster.partition.replicas, cluster.partition.adding, cluster.partition.removing


def test_a_move_ends_when_all_that_stay_are_in_sync() -> None:
    cluster = IsrCluster(5)
    cluster.reassign(4, 2, 5)
    assert replicas_of(cluster) == ((4, 2, 5, 1, 3), (4, 5), (1, 3))
    assert (cluster.sets, cluster.partition.leader_epoch) == ((1, (2, 1, 3), ()), 0)
    assert cluster.ask(1, 2, 3, 4).isr == (4, 2, 1, 3)
    answer = cluster.ask(1, 2, 4, 5)
    assert (answer.code, answer.outcome, answer.leader_epoch) == ("new leader elected", "stale", 1)
    assert replicas_of(cluster) == ((4, 2, 5), (), ())
    assert cluster.sets == (4, (4, 2, 5), ())


def test_a_leader_that_stays_leads_on_in_a_new_epoch() -> None:
    cluster = IsrCluster(4)
    cluster.reassign(4, 2, 1)
    cluster.ask(1, 2, 4)
    assert (cluster.sets, cluster.partition.leader_epoch) == ((1, (4, 2, 1), ()), 1)


def test_fewer_replicas_or_another_order_need_no_copy() -> None:
    cluster = IsrCluster()
    cluster.reassign(3, 2, 1)
    assert (replicas_of(cluster), cluster.sets) == (((3, 2, 1), (), ()), (1, (3, 2, 1), ()))
    assert cluster.partition.leader_epoch == 0
    cluster.reassign(3, 2)
    assert (replicas_of(cluster), cluster.sets) == (((3, 2), (), ()), (3, (3, 2), ()))
    cluster.fence(2)
    cluster.reassign(2)
    assert (replicas_of(cluster), cluster.sets) == (((2, 3), (), (3,)), (3, (3,), ())), "2 has not all, so 3 must stay"


def test_more_replicas_ask_for_a_larger_isr_only_when_they_are_filled() -> None:
    cluster = IsrCluster(3, 1)
    cluster.reassign(1, 2, 3)
    assert cluster.partition.replication_factor == 1
    cluster.ask(1, 2)
    cluster.ask(1)
    assert cluster.sets == (1, (1,), ()), "one is enough, so 2 lacks what is committed now"
    cluster.ask(1, 2, 3)
    assert cluster.partition.replication_factor == 3
    cluster.ask(1)
    assert cluster.sets == (1, (1,), (2, 3))


def test_what_is_asked_again_is_under_way() -> None:
    cluster = IsrCluster(4)
    cluster.reassign(4, 2, 3)
    image = cluster.image
    cluster.reassign(4, 2, 3)
    assert cluster.image is image


def test_another_move_keeps_who_holds_data_and_can_still_be_called_off() -> None:
    cluster = IsrCluster(5, 1)
    cluster.reassign(2, 3)
    cluster.ask(1, 2)
    cluster.fence(1)
    assert cluster.sets == (2, (2,), ())
    cluster.reassign(4)
    assert replicas_of(cluster) == ((4, 2, 3, 1), (4, 2, 3), (2, 3, 1))
    with pytest.raises(InvalidRequest, match=r"none of the original replicas \[1\] is in sync"):
        cluster.call_off()
    cluster.heartbeat(1)
    cluster.ask(2, 1)
    cluster.call_off()
    assert (replicas_of(cluster), cluster.sets) == (((1,), (), ()), (1, (1,), ()))
    image = cluster.image
    cluster.call_off()
    assert cluster.image is image


def test_an_election_of_the_target_ends_a_move_too() -> None:
    cluster = IsrCluster(2, 2)
    cluster.fence(2)
    cluster.reassign(2)
    cluster.heartbeat(2)
    assert replicas_of(cluster) == ((2, 1), (), (1,))
    cluster.ask(1, 2)
    assert (replicas_of(cluster), cluster.sets) == (((2,), (), ()), (2, (2,), ()))


def test_nobody_is_elected_among_those_to_be_filled_if_an_original_replica_is_there() -> None:
    cluster = IsrCluster(5, 2, unclean_leader_election_enable="true")
    cluster.fence(2)
    cluster.reassign(4, 2)
    cluster.heartbeat(2)
    cluster.fence(1)
    assert cluster.sets == (2, (2,), ())


def test_nobody_is_elected_among_those_to_be_filled_even_if_nobody_else_is_there() -> None:
    """It would end the move, and with it the only copy of everything."""
    cluster = IsrCluster(2, 1, unclean_leader_election_enable="true")
    cluster.reassign(2)
    cluster.fence(1)
    assert cluster.sets == (-1, (), (1,))
    assert replicas_of(cluster)[0] == (2, 1)
    cluster.heartbeat(1)
    assert cluster.sets == (1, (1,), ())


def test_an_unclean_election_does_not_end_a_move() -> None:
    """What the others have is not deleted by the same decision that gives it up."""
    cluster = IsrCluster(2, 2, unclean_leader_election_enable="true")
    cluster.fence(2)
    cluster.reassign(2)
    cluster.fence(1)
    cluster.heartbeat(2)
    assert cluster.sets == (2, (2,), ())
    assert replicas_of(cluster) == ((2, 1), (), (1,))
    cluster.heartbeat(1)
    cluster.ask(2, 1)
    assert (replicas_of(cluster), cluster.sets) == (((2,), (), ()), (2, (2,), ()))


def test_where_replicas_cannot_go() -> None:
    cluster = IsrCluster(4)
    cluster.fence(4)
    for target, reason in (((), "distinct, known"), ((1, 1), "distinct"), ((1, 9), "known"), ((1, 4), "4 is not live")):
        with pytest.raises(InvalidRequest, match=reason):
            cluster.reassign(*target)
    for name, partition in ((topic_id("t"), 1), ("f" * 32, 0)):
        with pytest.raises(UnknownPartition):
            cluster.do(AlterReassignments([NewReplicas(name, partition, [1])]))


def test_all_of_it_or_nothing() -> None:
    cluster = IsrCluster(4)
    image = cluster.image
    moves = [NewReplicas(topic_id("t"), 0, [4, 2, 3]), NewReplicas(topic_id("t"), 0, [9])]
    with pytest.raises(InvalidRequest):
        cluster.do(AlterReassignments(moves))
    assert cluster.image is image


def test_new_partitions_get_as_many_replicas_as_the_first_will_have() -> None:
    cluster = IsrCluster(4)
    for target in ((4, 2, 3), (4, 2, 3, 1), (4, 2)):
        cluster.reassign(*target)
        have = len(cluster.image.topics["t"].partitions)
        answer = cluster.do(AddPartitions("t", have, have + 1))
        assert isinstance(answer, TopicPlaced)
        assert len(answer.assignments[0]) == len(answer.assignments[-1]) == len(target)


# -- whole clusters ----------------------------------------------------------------------------------------------------


def test_a_broker_is_emptied_and_then_removed() -> None:
    cluster = IsrCluster(4)
    with pytest.raises(InvalidRequest, match="move them to other brokers first"):
        cluster.do(RemoveBroker(2))
    (command,) = planned(cluster.image, [2])
    cluster.do(command)
    assert set(cluster.partition.target) == {1, 3, 4}
    assert planned(cluster.image, [2]) == [], "it is under way"
    assert cluster.held(2) == cluster.moving() == [("t", 0)]
    with pytest.raises(InvalidRequest, match="move them to other brokers first"):
        cluster.do(RemoveBroker(2))
    cluster.ask(1, 3, 4)
    assert cluster.held(2) == cluster.moving() == []
    cluster.do(RemoveBroker(2))
    assert list(cluster.image.brokers) == [1, 3, 4]


def test_a_new_broker_gets_its_share() -> None:
    cluster = IsrCluster(2, 1)
    cluster.do(CreateTopic(NewTopic("u", None, None, {n: [1] for n in range(3)}), topic_id("u")))
    (command,) = planned(cluster.image)
    assert [list(move.replicas or ()) for move in command.partitions] == [[2], [2]]


def test_moves_come_in_portions() -> None:
    cluster = IsrCluster(3, 1)
    cluster.do(CreateTopic(NewTopic("u", None, None, {n: [1] for n in range(1_600)}), topic_id("u")))
    commands = planned(cluster.image)
    assert [len(command.partitions) for command in commands] == [MOVES_MAX, 67]
    for command in commands:
        cluster.do(command)
    assert planned(cluster.image) == []
    with pytest.raises(InvalidRequest, match="at most 1000"):
        cluster.do(AlterReassignments([*commands[0].partitions, *commands[1].partitions]))


def test_a_plan_that_cannot_be_carried_out_is_refused() -> None:
    cluster = IsrCluster(3)
    with pytest.raises(NotFound, match="there is no broker 7"):
        planned(cluster.image, [7])
    with pytest.raises(InvalidRequest, match="only 2 brokers would be left"):
        planned(cluster.image, [1])


def test_t19_a_replica_that_is_removed_and_added_again_is_in_another_leader_epoch_and_not_in_sync() -> None:
    """A leader that sees both at once could not tell it from one that stayed, if the epoch were the same."""
    cluster = IsrCluster(4)
    before = cluster.partition
    cluster.reassign(1, 2, 4)
    cluster.ask(1, 2, 3, 4)
    cluster.reassign(1, 2, 3)
    assert before.leader == cluster.partition.leader == 1
    assert cluster.partition.leader_epoch > before.leader_epoch
    assert 3 in cluster.partition.replicas and 3 not in (*cluster.partition.isr, *cluster.partition.elr)


def test_t19_the_same_for_a_replica_whose_move_was_called_off_and_begun_again() -> None:
    cluster = IsrCluster(4)
    cluster.reassign(1, 2, 4)
    began = cluster.partition
    cluster.call_off()
    cluster.reassign(1, 2, 4)
    assert cluster.partition.leader_epoch > began.leader_epoch
    assert 4 in cluster.partition.adding and 4 not in cluster.partition.isr


# -- the throttle ------------------------------------------------------------------------------------------------------


def test_a_throttle_comes_with_a_move_and_goes_with_the_last_one() -> None:
    cluster = IsrCluster(5)
    cluster.create("other", 1, 3)
    other = cluster.image.topics["other"].partitions[0]
    target = next(node for node in (1, 2, 3, 4, 5) if node not in other.replicas)
    cluster.reassign(4, 2, 1, throttle=1_000)
    assert cluster.image.moves_throttle == 1_000
    cluster.do(AlterReassignments([NewReplicas(topic_id("other"), 0, [target, *other.replicas[1:]])]))
    assert cluster.image.moves_throttle == 1_000, "one that says nothing leaves it"
    cluster.ask(1, 2, 3, 4)
    assert cluster.image.moves_throttle == 1_000
    cluster.do(AlterReassignments([NewReplicas(topic_id("other"), 0, None)]))
    assert cluster.image.moves_throttle == NO_THROTTLE


def test_a_throttle_is_changed_and_taken_off_while_replicas_move() -> None:
    cluster = IsrCluster(4)
    cluster.reassign(4, 2, 1, throttle=1_000)
    cluster.do(AlterReassignments((), 2_000))
    assert cluster.image.moves_throttle == 2_000
    image = cluster.image
    cluster.do(AlterReassignments((), 2_000))
    assert cluster.image is image, "a repetition finds its work done"
    cluster.do(AlterReassignments((), 0))
    assert cluster.image.moves_throttle == NO_THROTTLE and cluster.partition.is_moving


def test_a_throttle_without_a_move_is_none() -> None:
    cluster = IsrCluster()
    image = cluster.image
    cluster.do(AlterReassignments((), 1_000))
    assert cluster.image is image
    cluster.reassign(1, 2, throttle=1_000)
    assert cluster.image.moves_throttle == NO_THROTTLE
    with pytest.raises(InvalidRequest, match="-1 is no throttle"):
        cluster.do(AlterReassignments((), -1))


def test_a_topic_that_is_deleted_while_it_moves_takes_its_throttle_along() -> None:
    cluster = IsrCluster(4)
    cluster.reassign(4, 2, 1, throttle=1_000)
    assert decode_image(encode_image(cluster.image)) == cluster.image
    cluster.do(DeleteTopic("t", topic_id("t")))
    assert cluster.image.moves_throttle == NO_THROTTLE


def test_a_move_to_a_broker_that_holds_as_much_as_it_may_is_refused() -> None:
    cluster = IsrCluster(4, config=BrokerConfig.model_validate({"broker.partitions.max": 1}))
    cluster.reassign(4, 2, 1)  # 3 holds nothing when it is over
    cluster.ask(1, 2, 4)
    cluster.config = BrokerConfig.model_validate({"broker.partitions.max": 2})
    cluster.do(CreateTopic(NewTopic("u", assignments={0: [4]}), topic_id("u")))
    cluster.config = BrokerConfig.model_validate({"broker.partitions.max": 1})
    cluster.reassign(3, 2, 1)
    with pytest.raises(InvalidRequest, match=r"broker 3 holds 1 partitions.*limit of 1 \(broker\.partitions\.max\)"):
        cluster.do(AlterReassignments([NewReplicas(topic_id("u"), 0, (3,))]))
