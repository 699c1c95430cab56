"""Rebalancing plans against their lower bound, and on small clusters against all assignments there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations, product

from hypothesis import given
from hypothesis import strategies as st

from tidelog.model.ids import TopicPartition
from tidelog.placement.rebalance import Assignment, Plan, plan_rebalance
from tidelog.placement.striped import UsableBroker, assigned_replicas

Lists = list[tuple[int, ...]]


class Change:
    """A cluster, the brokers that stay or join, and those that leave."""

    def __init__(self, lists: Lists, brokers: list[UsableBroker], leaving: list[UsableBroker], topics: int = 1) -> None:
        self.lists, self.brokers, self.leaving = lists, brokers, leaving
        self.rack_of = {broker.node_id: broker.rack for broker in (*brokers, *leaving)}
        self.nodes = [broker.node_id for broker in brokers]
        self.current = [
            Assignment(TopicPartition(f"t{number % topics}", number // topics), held)
            for number, held in enumerate(lists)
        ]

    def __repr__(self) -> str:
        return f"Change({self.lists}, {self.brokers}, {self.leaving})"

    def plan(self) -> Plan:
        return plan_rebalance(self.current, self.brokers, self.leaving)

    def carried_out(self, plan: Plan) -> Lists:
        changes = {change.partition: change.new for change in plan.reassignments}
        return [changes.get(partition, held) for partition, held in self.current]

    def spread(self, replicas: Sequence[int]) -> int:
        return len({self.rack_of[node] for node in replicas})

    def least_spread(self, replicas: Sequence[int]) -> int:
        return min(self.spread(replicas), len({broker.rack for broker in self.brokers}), len(replicas))


@st.composite
def clusters(draw: st.DrawFn, *, brokers_max: int, partitions_max: int, is_striped: bool, racks_max: int = 1) -> Change:
    racks = draw(st.integers(1, racks_max))

    def usable(node: int) -> UsableBroker:
        return UsableBroker(node, f"r{draw(st.integers(0, racks - 1))}" if racks > 1 else None)

    old = [usable(node) for node in range(draw(st.integers(1, brokers_max)))]
    leaving = [broker for broker in old if draw(st.integers(0, 3)) == 0]
    joining = [usable(100 + number) for number in range(draw(st.integers(0, 3)))]
    stay = [broker for broker in old if broker not in leaving] + joining or [usable(100)]
    factor_max = min(len(old), len(stay), 4)
    partitions = draw(st.integers(1, partitions_max))
    if is_striped:
        lists = [tuple(held) for held in assigned_replicas(old, range(partitions), draw(st.integers(1, factor_max)))]
    else:
        nodes = [broker.node_id for broker in old]
        held = st.integers(1, factor_max).flatmap(
            lambda factor: st.permutations(nodes).map(lambda order: order[:factor])
        )
        lists = [tuple(draw(held)) for _ in range(partitions)]
    return Change(lists, stay, leaving, topics=draw(st.integers(1, 3)))


def assert_sound(change: Change, plan: Plan) -> Lists:
    """Checks what holds for every plan, and returns the new lists."""
    new = change.carried_out(plan)
    for old, held in zip(change.lists, new, strict=True):
        assert len(held) == len(old) == len(set(held))
        assert set(held) <= set(change.nodes)
        assert change.spread(held) >= change.least_spread(old)
    assert plan.replica_moves == sum(len(set(held) - set(old)) for old, held in zip(change.lists, new, strict=True))
    counts = Counter(node for held in new for node in held)
    assert all(plan.after[node].replicas == counts[node] for node in plan.after)
    assert change.plan() == plan
    return new


@given(clusters(brokers_max=9, partitions_max=40, is_striped=True))
def test_what_the_rule_placed_moves_as_little_as_the_bound_says(change: Change) -> None:
    plan = change.plan()
    new = assert_sound(change, plan)
    assert plan.replica_moves == plan.lower_bound
    counts = [plan.after[node] for node in change.nodes]
    assert max(load.replicas for load in counts) - min(load.replicas for load in counts) <= 1
    assert max(load.leaders for load in counts) - min(load.leaders for load in counts) <= 1
    assert sum(load.leaders for load in counts) == len(new)


@given(clusters(brokers_max=8, partitions_max=20, is_striped=False, racks_max=4))
def test_any_cluster_ends_sound_and_needs_no_second_plan(change: Change) -> None:
    new = assert_sound(change, change.plan())
    again = Change(new, change.brokers, [], topics=1).plan()
    assert again.replica_moves == 0


@given(clusters(brokers_max=4, partitions_max=4, is_striped=False))
def test_no_assignment_is_better(change: Change) -> None:
    assert_best(change)


def is_exact(change: Change) -> bool:
    """All partitions are spread as well as the remaining racks permit: then plans are exact."""
    racks = len({broker.rack for broker in change.brokers})
    return all(change.least_spread(held) == min(len(held), racks) for held in change.lists)


@given(clusters(brokers_max=4, partitions_max=3, is_striped=False, racks_max=3).filter(is_exact))
def test_no_assignment_over_racks_is_better(change: Change) -> None:
    assert_best(change)


def assert_best(change: Change) -> None:
    new = assert_sound(change, change.plan())
    assert cost_of(change, new) == min(cost_of(change, lists) for lists in all_assignments(change))


def cost_of(change: Change, lists: Sequence[Sequence[int]]) -> tuple[int, int]:
    counts = Counter(node for held in lists for node in held)
    moves = sum(len(set(held) - set(old)) for old, held in zip(change.lists, lists, strict=True))
    return sum(counts[node] ** 2 for node in change.nodes), moves


def all_assignments(change: Change) -> Iterator[tuple[tuple[int, ...], ...]]:
    choices = [
        [held for held in combinations(change.nodes, len(old)) if change.spread(held) >= change.least_spread(old)]
        for old in change.lists
    ]
    return product(*choices)
