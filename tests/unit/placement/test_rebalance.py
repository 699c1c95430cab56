"""Plans for brokers that come and go: the published examples, what a plan says, and what it refuses."""

from __future__ import annotations

import pytest

from tidelog.model.errors import InvalidRequest
from tidelog.model.ids import TopicPartition
from tidelog.placement.balancer import fewest_moves
from tidelog.placement.rebalance import Assignment, Load, Plan, Reassignment, plan_rebalance
from tidelog.placement.striped import UsableBroker, assigned_replicas


def bare(*nodes: int) -> list[UsableBroker]:
    return [UsableBroker(node) for node in nodes]


def placed(brokers: list[UsableBroker], partitions: int, factor: int, topic: str = "t") -> list[Assignment]:
    lists = assigned_replicas(brokers, range(partitions), factor)
    return [Assignment(TopicPartition(topic, number), tuple(replicas)) for number, replicas in enumerate(lists)]


def lists(*replicas: tuple[int, ...]) -> list[Assignment]:
    return [Assignment(TopicPartition("t", number), held) for number, held in enumerate(replicas)]


def carried_out(plan: Plan, current: list[Assignment]) -> dict[TopicPartition, tuple[int, ...]]:
    return {**dict(current), **{change.partition: change.new for change in plan.reassignments}}


@pytest.mark.parametrize(("brokers", "moves"), [(5, 0), (6, 7), (7, 12), (10, 20), (15, 30)])
def test_growing_the_published_example_moves_as_few_replicas_as_possible(brokers: int, moves: int) -> None:
    current = placed(bare(*range(5)), 15, 3)
    plan = plan_rebalance(current, bare(*range(brokers)))
    assert plan.replica_moves == plan.lower_bound == moves
    assert {45 // brokers, -(-45 // brokers)} >= {load.replicas for load in plan.after.values()}
    assert {15 // brokers, -(-15 // brokers)} >= {load.leaders for load in plan.after.values()}


@pytest.mark.parametrize(("left", "moves"), [(4, 9), (3, 18)])
def test_shrinking_it_moves_only_what_was_on_the_brokers_that_leave(left: int, moves: int) -> None:
    plan = plan_rebalance(placed(bare(*range(5)), 15, 3), bare(*range(left)), bare(*range(left, 5)))
    assert plan.replica_moves == plan.lower_bound == moves
    assert all(plan.after[gone] == Load(0, 0) for gone in range(left, 5))
    assert all(set(change.removing) <= set(range(left, 5)) for change in plan.reassignments)


def test_replacing_a_broker_moves_its_replicas_and_no_others() -> None:
    plan = plan_rebalance(placed(bare(*range(5)), 15, 3), bare(0, 1, 2, 3, 9), bare(4))
    assert plan.replica_moves == plan.lower_bound == 9
    assert {change.adding for change in plan.reassignments if change.adding} == {(9,)}


def test_an_even_cluster_needs_no_plan() -> None:
    plan = plan_rebalance(placed(bare(*range(5)), 20, 3), bare(*range(5)))
    assert plan == Plan((), 0, 0, 0, plan.before, plan.before)
    assert plan.before[0] == Load(12, 4)


def test_leaders_are_evened_by_reordering_alone() -> None:
    plan = plan_rebalance(lists((0, 1), (0, 2), (1, 2)), bare(0, 1, 2))
    assert plan.replica_moves == 0
    assert plan.leader_changes == 1
    assert {change.adding for change in plan.reassignments} == {()}
    assert [load.leaders for load in plan.after.values()] == [1, 1, 1]


def test_followers_of_a_leader_are_evened_by_reordering_alone() -> None:
    current = lists(*((leader, *sorted({0, 1, 2, 3} - {leader})) for leader in range(4) for _ in range(3)))
    plan = plan_rebalance(current, bare(0, 1, 2, 3))
    assert (plan.replica_moves, plan.leader_changes) == (0, 0)
    for leader in range(4):
        heirs = [new[1] for new in carried_out(plan, current).values() if new[0] == leader]
        assert sorted(heirs) == sorted({0, 1, 2, 3} - {leader})


def test_a_reassignment_tells_copies_from_order() -> None:
    change = Reassignment(TopicPartition("t", 0), (1, 2, 3), (2, 1, 4))
    assert (change.adding, change.removing) == ((4,), (3,))


def test_a_topic_is_spread_as_well_as_the_whole() -> None:
    current = [found for topic in ("a", "b", "c") for found in placed(bare(*range(4)), 8, 2, topic)]
    plan = plan_rebalance(current, bare(*range(6)))
    assert plan.replica_moves == plan.lower_bound == 16
    for topic in ("a", "b", "c"):
        held = [node for key, new in carried_out(plan, current).items() if key.topic == topic for node in new]
        assert {held.count(node) for node in range(6)} <= {2, 3}


def test_a_chain_helps_where_no_direct_move_is_possible() -> None:
    # 3 leaves partition 0, which 1 and 2 have and 0 lacks; 0 is full, so it hands another one on.
    current = lists((1, 2, 3), (0, 1), (0, 2), (0, 4))
    plan = plan_rebalance(current, bare(0, 1, 2, 4), bare(3))
    assert sorted(load.replicas for load in plan.after.values()) == [0, 2, 2, 2, 3]


def test_racks_that_hold_a_partition_apart_still_do() -> None:
    rack = {0: "a", 1: "a", 2: "b", 3: "b", 4: "c", 5: "c", 6: "a", 7: "b", 8: "c"}
    six, nine = ([UsableBroker(node, rack[node]) for node in range(count)] for count in (6, 9))
    current = placed(six, 30, 3)
    plan = plan_rebalance(current, nine)
    assert plan.replica_moves == plan.lower_bound == 30
    for new in carried_out(plan, current).values():
        assert sorted(rack[node] for node in new) == ["a", "b", "c"]


def test_a_smaller_rack_takes_more_rather_than_two_replicas_in_one_rack() -> None:
    brokers = [UsableBroker(0, "a"), UsableBroker(1, "b"), UsableBroker(2, "b")]
    plan = plan_rebalance(lists(*[(0, 1)] * 6), brokers)
    assert [load.replicas for load in plan.after.values()] == [6, 3, 3]
    assert plan.replica_moves == 3


def test_a_rack_that_joins_takes_its_share_where_it_spreads_partitions_more() -> None:
    brokers = [UsableBroker(node, "ab"[node % 2]) for node in range(4)]
    joined = [*brokers, UsableBroker(4, "c"), UsableBroker(5, "c")]
    current = placed(brokers, 12, 3)
    plan = plan_rebalance(current, joined)
    racks = {broker.node_id: broker.rack for broker in joined}
    assert plan.replica_moves == plan.lower_bound == 12
    assert all({racks[node] for node in new} == {"a", "b", "c"} for new in carried_out(plan, current).values())


def test_too_few_brokers_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="t-0 has 3 replicas, but only 2 brokers would be left"):
        plan_rebalance(lists((0, 1, 2)), bare(0, 1), bare(2))


def test_a_broker_that_neither_stays_nor_leaves_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="broker 7, which neither stays nor leaves"):
        plan_rebalance(lists((0, 7)), bare(0, 1))


def test_racks_on_some_brokers_only_are_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"broker\.rack"):
        plan_rebalance(lists((0,)), [UsableBroker(0, "a"), UsableBroker(1)])


def test_nothing_to_spread() -> None:
    assert plan_rebalance([], bare(0, 1), bare(2)).reassignments == ()


@pytest.mark.parametrize(
    ("loads", "leaving", "moves"),
    [([9, 9, 9, 9, 9, 0, 0], 0, 12), ([9, 9, 9, 9, 9, 0], 0, 7), ([4, 4], 2, 2), ([1, 0], 0, 0), ([3, 0], 0, 1)],
)
def test_the_lower_bound(loads: list[int], leaving: int, moves: int) -> None:
    assert fewest_moves(loads, leaving) == moves


@pytest.mark.parametrize(("brokers", "moves"), [(6, 23), (7, 16)])
def test_applying_the_rule_again_would_move_more(brokers: int, moves: int) -> None:
    before, after = (placed(bare(*range(count)), 15, 3) for count in (5, brokers))
    assert sum(len(set(new) - set(old)) for (_, old), (_, new) in zip(before, after, strict=True)) == moves
