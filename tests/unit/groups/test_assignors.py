"""Assignments that can be read at a glance."""

from __future__ import annotations

import pytest

from tidelog.groups.assignors import ASSIGNORS, Subscriber, paths

Given = dict[str, tuple[tuple[str, int], ...]]


def text(given: Given) -> str:
    return "  ".join(
        f"{member}:{','.join(f'{topic}{number}' for topic, number in has)}" for member, has in given.items()
    )


def members(subscribed: str, **owned: str) -> list[Subscriber]:
    """Each by its id, with what it owns: `members("ab", m1="a0 a1", m2="")`."""
    return [
        Subscriber(member, tuple(subscribed), tuple((name[0], int(name[1:])) for name in has.split()))
        for member, has in owned.items()
    ]


@pytest.mark.parametrize(
    ("assignor", "expected"),
    [
        ("uniform", "m1:a0,a3,b2  m2:a1,b0,b3  m3:a2,b1"),
        ("roundrobin", "m1:a0,a3,b2  m2:a1,b0,b3  m3:a2,b1"),
        ("range", "m1:a0,a1,b0,b1  m2:a2,b2  m3:a3,b3"),
    ],
)
def test_three_members_share_two_topics(assignor: str, expected: str) -> None:
    assert text(ASSIGNORS[assignor](members("ab", m1="", m2="", m3=""), {"a": 4, "b": 4})) == expected


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_of_nothing_everybody_gets_nothing(assignor: str) -> None:
    assign = ASSIGNORS[assignor]
    assert assign([], {"a": 3}) == {}
    assert assign(members("", m1="", m2=""), {"a": 3}) == {"m1": (), "m2": ()}
    assert assign(members("x", m1="x0"), {"a": 3}) == {"m1": ()}
    assert assign(members("a", m1=""), {"a": 0}) == {"m1": ()}


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_with_more_members_than_partitions_the_last_get_none(assignor: str) -> None:
    assert text(ASSIGNORS[assignor](members("a", m1="", m2="", m3=""), {"a": 2})) == "m1:a0  m2:a1  m3:"


def test_whoever_joins_is_given_its_share_by_who_has_too_much() -> None:
    group = members("a", m1="a0 a1 a2", m2="a3 a4", m3="a5 a6", new="")
    assert text(ASSIGNORS["uniform"](group, {"a": 7})) == "m1:a0,a1  m2:a3,a4  m3:a5,a6  new:a2"


def test_only_the_partitions_of_who_left_move() -> None:
    group = members("a", m1="a0 a1", m3="a4 a5", m4="a6 a7")
    assert text(ASSIGNORS["uniform"](group, {"a": 8})) == "m1:a0,a1,a2  m3:a3,a4,a5  m4:a6,a7"


def test_a_member_gives_away_what_it_has_most_of() -> None:
    group = members("ab", m1="a0 a1 a2 b0 b1 b2", m2="")
    assert text(ASSIGNORS["uniform"](group, {"a": 3, "b": 3})) == "m1:a0,a1,b0  m2:a2,b1,b2"


def test_what_two_claim_to_own_is_one_s() -> None:
    group = members("a", m1="a0 a1", m2="a0 a1")
    assert text(ASSIGNORS["uniform"](group, {"a": 2})) == "m1:a0  m2:a1"


def test_a_grown_topic_s_new_partitions_go_to_who_lacks_them() -> None:
    assert text(ASSIGNORS["uniform"](members("a", m1="a0 a2", m2="a1"), {"a": 5})) == "m1:a0,a2,a3  m2:a1,a4"


def test_partitions_are_handed_on_through_members_that_read_both_topics() -> None:
    """m1 reads only a, m3 only b: what m1 has too much goes to m3 by way of m2."""
    group = [
        Subscriber("m1", ("a",), (("a", 0), ("a", 1), ("a", 2))),
        Subscriber("m2", ("a", "b"), (("b", 0), ("b", 1))),
        Subscriber("m3", ("b",)),
    ]
    assert text(ASSIGNORS["uniform"](group, {"a": 3, "b": 2})) == "m1:a0,a1  m2:a2,b0  m3:b1"


def test_a_search_that_takes_too_long_leaves_what_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "STEPS_PER_ITEM_MAX", 0)
    group = [
        Subscriber("m1", ("a",), (("a", 0), ("a", 1), ("a", 2))),
        Subscriber("m2", ("a", "b"), (("b", 0), ("b", 1))),
        Subscriber("m3", ("b",), (("b", 2),)),
    ]
    uneven = ASSIGNORS["uniform"](group, {"a": 3, "b": 3})
    assert text(uneven) == "m1:a0,a1,a2  m2:b0,b1  m3:b2"


def test_a_range_with_subscriptions_that_differ_counts_each_topic_s_subscribers() -> None:
    group = [Subscriber("m1", ("a",)), Subscriber("m2", ("a", "b")), Subscriber("m3", ("b",))]
    assert text(ASSIGNORS["range"](group, {"a": 3, "b": 3})) == "m1:a0,a1  m2:a2,b0,b1  m3:b2"


def test_round_robin_passes_over_who_does_not_subscribe() -> None:
    group = [Subscriber("m1", ("a",)), Subscriber("m2", ("a", "b")), Subscriber("m3", ("b",))]
    assert text(ASSIGNORS["roundrobin"](group, {"a": 3, "b": 3})) == "m1:a0,a2  m2:a1,b0,b2  m3:b1"
