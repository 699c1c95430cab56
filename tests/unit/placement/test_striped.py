"""The placement rule against its published table, its formula, and what it is for."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest

from tidelog.model.errors import InvalidRequest
from tidelog.placement.striped import UsableBroker, arrange, assigned_replicas, least_leading

TABLE = """
p0 p5 p10 | p1 p6 p11 | p2 p7 p12 | p3 p8 p13 | p4 p9 p14
p4 p8 p12 | p0 p9 p13 | p1 p5 p14 | p2 p6 p10 | p3 p7 p11
p3 p7 p11 | p4 p8 p12 | p0 p9 p13 | p1 p5 p14 | p2 p6 p10
"""


def bare(count: int) -> list[UsableBroker]:
    return [UsableBroker(node_id) for node_id in range(count)]


def racked(sizes: dict[str, int]) -> list[UsableBroker]:
    racks = [rack for rack, size in sizes.items() for _ in range(size)]
    return [UsableBroker(node_id, rack) for node_id, rack in enumerate(racks)]


def test_the_published_table_of_fifteen_partitions_on_five_brokers() -> None:
    assignment = assigned_replicas(bare(5), range(15), 3)
    rows = [
        " | ".join(" ".join(f"p{p}" for p in range(15) if assignment[p][j] == broker) for broker in range(5))
        for j in range(3)
    ]
    assert rows == TABLE.strip().splitlines()


def kafka_assignment(count: int, partitions: int, factor: int, start: int) -> list[list[int]]:
    """Kafka's way of saying it: a shift that grows whenever the round-robin comes round."""
    shift, assignment = 0, []
    for partition in range(partitions):
        if partition > 0 and partition % count == 0:
            shift += 1
        first = (partition + start) % count
        followers = [(first + 1 + (shift + number) % (count - 1)) % count for number in range(factor - 1)]
        assignment.append([first, *followers])
    return assignment


@pytest.mark.parametrize("count", range(1, 12))
def test_the_rule_is_kafkas_and_puts_no_two_replicas_on_one_broker(count: int) -> None:
    for factor, start in product(range(1, count + 1), range(count)):
        assignment = assigned_replicas(bare(count), range(200), factor, start=start)
        assert assignment == kafka_assignment(count, 200, factor, start)
        assert all(len(set(replicas)) == factor for replicas in assignment)


@pytest.mark.parametrize("count", range(2, 12))
def test_the_rule_of_the_2012_design_holds_until_it_would_put_two_replicas_on_one_broker(count: int) -> None:
    for partition, replicas in enumerate(assigned_replicas(bare(count), range(count * count), count)):
        i, k = partition % count, partition // count
        assert all(replicas[j] == (i + j + k) % count for j in range(1, count) if j + k < count)
        assert all((i + j + k) % count == i for j in range(1, count) if j + k == count)


@pytest.mark.parametrize("count", range(1, 12))
def test_leaders_differ_by_one_at_most_and_replicas_not_at_all_after_whole_rounds(count: int) -> None:
    for factor in range(1, count + 1):
        for partitions in (1, count, 3 * count, 3 * count + count // 2):
            assignment = assigned_replicas(bare(count), range(partitions), factor)
            leaders = Counter(replicas[0] for replicas in assignment)
            assert {partitions // count, -(-partitions // count)} >= {leaders[node] for node in range(count)}
            if partitions % count == 0:
                held = Counter(node for replicas in assignment for node in replicas)
                assert {held[node] for node in range(count)} == {partitions * factor // count}


@pytest.mark.parametrize("count", range(3, 12))
def test_the_load_of_any_failed_broker_goes_to_all_others(count: int) -> None:
    assignment = assigned_replicas(bare(count), range(count * (count - 1)), 3)
    for failed in range(count):
        heirs = [replicas[1] for replicas in assignment if replicas[0] == failed]
        assert sorted(heirs) == [node for node in range(count) if node != failed]


def test_one_broker_holds_everything_once() -> None:
    assert assigned_replicas(bare(1), range(3), 1) == [[0], [0], [0]]


@pytest.mark.parametrize("factor", [0, 4])
def test_there_must_be_a_broker_for_each_replica(factor: int) -> None:
    with pytest.raises(InvalidRequest, match="the cluster has 3"):
        assigned_replicas(bare(3), range(1), factor)


def test_a_failed_brokers_partitions_go_to_different_successors() -> None:
    successors = [replicas[1] for replicas in assigned_replicas(bare(5), range(20), 3) if replicas[0] == 0]
    assert sorted(successors) == [1, 2, 3, 4]


def test_racks_take_turns() -> None:
    brokers = racked({"r1": 3, "r2": 3, "r3": 3})
    assert [broker.node_id for broker in arrange(brokers)] == [0, 3, 6, 1, 4, 7, 2, 5, 8]


@pytest.mark.parametrize("factor", range(1, 7))
@pytest.mark.parametrize("sizes", [{"a": 3, "b": 3, "c": 3}, {"a": 1, "b": 2, "c": 4}, {"a": 5, "b": 1}])
def test_replicas_spread_over_racks(sizes: dict[str, int], factor: int) -> None:
    brokers = racked(sizes)
    if factor > len(brokers):
        pytest.skip("fewer brokers than replicas")
    rack_of = {broker.node_id: broker.rack for broker in brokers}
    for replicas in assigned_replicas(brokers, range(60), factor):
        assert len(set(replicas)) == factor
        assert len({rack_of[node] for node in replicas}) == min(factor, len(sizes))


def test_equal_racks_share_replicas_and_leaders_evenly() -> None:
    assignment = assigned_replicas(racked({"a": 3, "b": 3, "c": 3}), range(90), 3)
    assert set(Counter(replicas[0] for replicas in assignment).values()) == {10}
    assert set(Counter(node for replicas in assignment for node in replicas).values()) == {30}


def test_racks_on_some_brokers_only_are_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"broker\.rack"):
        assigned_replicas([UsableBroker(1, "a"), UsableBroker(2)], range(1), 1)


def test_a_new_topic_starts_where_the_fewest_lead() -> None:
    assert least_leading(bare(3), []) == 0
    assert least_leading(bare(3), [0, 0, 1]) == 2
    assert least_leading(bare(3), [0, 1, 2, 0]) == 1
