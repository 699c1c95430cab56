"""Assignors against what every assignment must be, against lower bounds, and against all assignments there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tidelog.groups.assignors import ASSIGNORS, Subscriber

Assigned = Mapping[str, tuple[tuple[str, int], ...]]
UNIFORM = ASSIGNORS["uniform"]


@st.composite
def topic_counts(draw: st.DrawFn, partitions_max: int = 8) -> dict[str, int]:
    counts = draw(st.lists(st.integers(0, partitions_max), min_size=1, max_size=4))
    return dict(zip("abcd", counts, strict=False))


@st.composite
def groups(draw: st.DrawFn, topics: Mapping[str, int], *, is_equal: bool, members_max: int = 7) -> list[Subscriber]:
    """Members of which some own something from before, in any order; no partition has two owners."""
    names = sorted([*topics, "gone"])
    subscriptions = st.lists(st.sampled_from(names), unique=True, max_size=5 if is_equal else 2).map(tuple)
    common = draw(subscriptions)
    owned = dict[int, list[tuple[str, int]]]()
    count = draw(st.integers(1, members_max))
    for topic in names:
        for partition in range(topics.get(topic, 1) + 1):  # one more than there is now
            owned.setdefault(draw(st.integers(-3, count - 1)), []).append((topic, partition))
    members = [
        Subscriber(f"m{number}", common if is_equal else draw(subscriptions), tuple(owned.get(number, ())))
        for number in range(count)
    ]
    return draw(st.permutations(members))


@st.composite
def cases(draw: st.DrawFn, *, is_equal: bool) -> tuple[dict[str, int], list[Subscriber]]:
    topics = draw(topic_counts())
    return topics, draw(groups(topics, is_equal=is_equal))


anything = st.booleans().flatmap(lambda is_equal: cases(is_equal=is_equal))


def usable(member: Subscriber, topics: Mapping[str, int]) -> set[tuple[str, int]]:
    return {(topic, number) for topic in member.topics if topic in topics for number in range(topics[topic])}


def moved(members: Sequence[Subscriber], assigned: Assigned, topics: Mapping[str, int]) -> int:
    """How many partitions that could have stayed did not."""
    return sum(
        len((set(member.owned) & usable(member, topics)) - set(assigned[member.member_id])) for member in members
    )


def after(members: Sequence[Subscriber], assigned: Assigned) -> list[Subscriber]:
    return [member._replace(owned=assigned[member.member_id]) for member in members]


@given(anything, st.sampled_from(sorted(ASSIGNORS)), st.randoms(use_true_random=False))
def test_every_partition_goes_to_exactly_one_subscriber_whatever_the_order(
    case: tuple[dict[str, int], list[Subscriber]], assignor: str, dice: Random
) -> None:
    topics, members = case
    assigned = ASSIGNORS[assignor](members, topics)
    every = [partition for has in assigned.values() for partition in has]
    assert len(set(every)) == len(every)
    assert set(every) == set().union(*(usable(member, topics) for member in members))
    assert all(set(assigned[member.member_id]) <= usable(member, topics) for member in members)
    assert all(list(has) == sorted(has) for has in assigned.values())
    dice.shuffle(members)
    assert ASSIGNORS[assignor](members, topics) == assigned


@given(anything, st.sampled_from(sorted(ASSIGNORS)))
def test_what_was_assigned_stays_so(case: tuple[dict[str, int], list[Subscriber]], assignor: str) -> None:
    topics, members = case
    assigned = ASSIGNORS[assignor](members, topics)
    assert ASSIGNORS[assignor](after(members, assigned), topics) == assigned


@given(cases(is_equal=True))
def test_uniform_is_even_and_moves_no_more_than_it_must(case: tuple[dict[str, int], list[Subscriber]]) -> None:
    topics, members = case
    assigned = UNIFORM(members, topics)
    counts = [len(has) for has in assigned.values()]
    assert max(counts) - min(counts) <= 1
    had = [len(set(member.owned) & usable(member, topics)) for member in members]
    share, longer = divmod(sum(counts), len(members))
    may_stay = sum(min(count, share) for count in had) + min(longer, sum(count > share for count in had))
    assert moved(members, assigned, topics) == sum(had) - may_stay


@given(cases(is_equal=True))
def test_of_who_leaves_only_its_own_partitions_move(case: tuple[dict[str, int], list[Subscriber]]) -> None:
    topics, members = case
    settled = after(members, UNIFORM(members, topics))
    rest = settled[1:]
    assert moved(rest, UNIFORM(rest, topics), topics) == 0


@st.composite
def lopsided(draw: st.DrawFn) -> tuple[dict[str, int], list[Subscriber]]:
    """Each topic is one subscriber's: much has to move, some of it by way of others."""
    topics = draw(topic_counts())
    members = draw(groups(topics, is_equal=False))
    owned = dict[str, list[tuple[str, int]]]()
    for topic, count in topics.items():
        subscribers = [member.member_id for member in members if topic in member.topics]
        if subscribers:
            owner = draw(st.sampled_from(subscribers))
            owned.setdefault(owner, []).extend((topic, number) for number in range(count))
    return topics, [member._replace(owned=tuple(owned.get(member.member_id, ()))) for member in members]


@given(st.one_of(cases(is_equal=False), lopsided()))
def test_no_cost_reducing_path_is_left_where_subscriptions_differ(
    case: tuple[dict[str, int], list[Subscriber]],
) -> None:
    topics, members = case
    assigned = UNIFORM(members, topics)
    reach = {
        (giver.member_id, taker.member_id)
        for giver, taker in product(members, members)
        if {topic for topic, _ in assigned[giver.member_id]} & set(taker.topics)
    }
    ids = list(assigned)
    for middle, giver, taker in product(ids, ids, ids):
        if (giver, middle) in reach and (middle, taker) in reach:
            reach.add((giver, taker))
    assert all(len(assigned[giver]) - len(assigned[taker]) <= 1 for giver, taker in reach)


@st.composite
def tiny(draw: st.DrawFn) -> tuple[dict[str, int], list[Subscriber]]:
    topics = draw(topic_counts(partitions_max=2))
    return topics, draw(groups(topics, is_equal=False, members_max=3))


@given(tiny())
def test_none_of_all_assignments_is_more_even(case: tuple[dict[str, int], list[Subscriber]]) -> None:
    topics, members = case
    counts = sorted(len(has) for has in UNIFORM(members, topics).values())
    takers = [
        [number for number, member in enumerate(members) if topic in member.topics]
        for topic in sorted(topics)
        for _ in range(topics[topic])
    ]
    every = [sorted(map(chosen.count, range(len(members)))) for chosen in product(*filter(None, takers))]
    assert sum(count**2 for count in counts) == min(sum(count**2 for count in other) for other in every)


@given(st.integers(0, 40), st.integers(1, 9))
def test_ranges_of_topics_of_one_size_are_aligned(partitions: int, members: int) -> None:
    group = [Subscriber(f"m{number}", ("orders", "payments")) for number in range(members)]
    for has in ASSIGNORS["range"](group, {"orders": partitions, "payments": partitions}).values():
        runs = {topic: [number for name, number in has if name == topic] for topic in ("orders", "payments")}
        assert runs["orders"] == runs["payments"]
        assert runs["orders"] == list(range(partitions))[min(runs["orders"], default=0) :][: len(runs["orders"])]
