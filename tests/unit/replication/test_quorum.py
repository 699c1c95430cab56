from itertools import combinations

import pytest

from tidelog.replication.quorum import Joint, Majority, Quorum, Unanimous, blocks, parts_of


@pytest.mark.parametrize(("members", "size"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 4), (7, 4)])
def test_a_majority_is_more_than_half(members: int, size: int) -> None:
    assert Majority(range(members)).size == size


@pytest.mark.parametrize("members", range(1, 8))
def test_any_two_quorums_meet_and_nothing_smaller_is_one(members: int) -> None:
    quorum = Majority(range(members))
    subsets = [set(c) for size in range(members + 1) for c in combinations(range(members), size)]
    quorums = [subset for subset in subsets if quorum.is_met(subset)]
    assert all(a & b for a in quorums for b in quorums)
    assert not any(quorum.is_met(subset) for subset in subsets if len(subset) < quorum.size)


def test_strangers_and_repetitions_do_not_count() -> None:
    quorum = Majority([4, 1, 7])
    assert quorum.members == (1, 4, 7)
    assert not quorum.is_met([1, 1, 1])
    assert not quorum.is_met([1, 2, 3])
    assert quorum.is_met([7, 2, 1])
    assert 4 in quorum
    assert 2 not in quorum


@pytest.mark.parametrize("members", [[], [1, 2, 1]])
def test_members_are_distinct_and_there_are_some(members: list[int]) -> None:
    with pytest.raises(AssertionError):
        Majority(members)


@pytest.mark.parametrize("new", [{1, 2, 3, 4}, {1, 2}, {1, 2, 4}, {7}])
def test_a_joint_quorum_meets_whatever_meets_one_of_its_parts(new: set[int]) -> None:
    old, changed = Majority([1, 2, 3]), Majority(new)
    joint = Joint([old, changed])
    everybody = sorted({1, 2, 3} | new)
    assert joint.members == tuple(everybody)
    subsets = [set(c) for size in range(len(everybody) + 1) for c in combinations(everybody, size)]
    for subset in subsets:
        assert joint.is_met(subset) == (old.is_met(subset) and changed.is_met(subset))
        if joint.is_met(subset):
            assert all(subset & other for other in subsets if old.is_met(other) or changed.is_met(other))


def test_members_of_a_joint_quorum_are_those_of_its_parts() -> None:
    joint = Joint([Majority([1, 2]), Majority([2, 3])])
    assert [node in joint for node in (1, 2, 3, 4)] == [True, True, True, False]
    with pytest.raises(AssertionError):
        Joint([])


@pytest.mark.parametrize(
    ("quorum", "fewest"),
    [
        *((Majority(range(members)), fewest) for members, fewest in enumerate((1, 1, 2, 2, 3, 3), 1)),
        *((Unanimous(range(members)), 1) for members in (1, 2, 3)),
        (Joint([Majority((1, 2, 3)), Majority((1, 2, 4))]), 2),
        (Joint([Majority((1, 2, 3)), Majority((1, 2, 3, 4))]), 2),
        (Joint([Majority((1, 2, 3)), Majority((4, 5))]), 1),
    ],
)
def test_who_is_in_each_quorum_blocks_it(quorum: Quorum, fewest: int) -> None:
    members = quorum.members
    subsets = [set(c) for size in range(len(members) + 1) for c in combinations(members, size)]
    quorums = [subset for subset in subsets if quorum.is_met(subset)]
    blocking = [subset for subset in subsets if blocks({*subset, 99}, quorum)]
    assert blocking == [subset for subset in subsets if all(subset & other for other in quorums)]
    assert min(map(len, blocking)) == fewest


def test_a_joint_quorum_has_parts_and_another_is_its_own_part() -> None:
    old, new = Majority((1, 2)), Unanimous((3,))
    assert parts_of(Joint([old, new])) == (old, new)
    assert parts_of(old) == (old,)
