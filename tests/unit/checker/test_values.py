"""Anomalies of single values: a history that has exactly this one, and one that only nearly has it."""

from __future__ import annotations

import pytest

from tests.unit.checker.story import K, Story, in_order
from tidelog.checker import judge
from tidelog.checker.operations import Damage, Poll, Prefix, Send, Unread


def test_what_is_as_it_should_be_is_valid() -> None:
    assert not in_order(Story()).kinds()


def test_two_values_at_one_offset() -> None:
    story = in_order(Story(), "ab")
    story.send("other", 1, "x", type_="info")
    story.poll("second", (0, "a"), (1, "x"))
    story.poll("second", (2, "y"))
    story.send("late", 2, "y")
    assert story.kinds()["inconsistent-offsets"] == 1


def test_the_same_value_is_read_twice_at_one_offset() -> None:
    story = in_order(Story())
    story.poll("second", (0, "a"), (1, "b"))
    assert not story.kinds()


def test_a_value_at_two_offsets() -> None:
    story = in_order(Story(), "abcd")
    story.poll("reader", (4, "d"))
    assert story.kinds() == {"duplicate": 1}


def test_a_plain_clients_request_is_delivered_twice() -> None:
    story = Story()
    story.send("plain", 0, "a", guarantee="none")
    story.poll("reader", (0, "a"), (1, "a"))
    assert story.kinds() == {"duplicate": 1}
    story.tell("repeats")
    assert not story.kinds()


def test_a_request_is_delivered_again_when_what_it_did_is_deleted() -> None:
    """Then nobody may know any more that it was done."""
    story = in_order(Story(), "ab")
    story.poll("reader", (2, "a"))
    story.tell("repeats")
    assert story.kinds()["duplicate"] == 1
    story.tell("prefix", Prefix(K, 1, 1))
    story.view("ba", start=1)
    assert not story.kinds()["duplicate"]


def lost_and_repeated(*unread: int) -> Story:
    """The record at 1 is at 4, too; so much the history names as offsets that a log went on behind."""
    story = in_order(Story(), "abcd")
    story.tell("unread", Unread(K, [*unread]))
    story.send("producer", 5, "e")
    story.poll("reader", (4, "b"), (5, "e"))
    return story


@pytest.mark.parametrize("unread", [(1,), (4,), (1, 4), (0, 1, 2)])
def test_what_nobody_could_read_when_the_log_went_on_is_repeated_and_comes_back(unread: tuple[int, ...]) -> None:
    verdict = judge(lost_and_repeated(*unread).recorder.operations)
    assert (verdict.anomalies, verdict.excused) == ((), 1)


@pytest.mark.parametrize("unread", [(), (0,), (2, 3), (5,)])
def test_a_value_at_two_other_offsets_than_those_that_nobody_could_read(unread: tuple[int, ...]) -> None:
    story = lost_and_repeated(*unread)
    assert story.kinds() == {"duplicate": 1}
    assert judge(story.recorder.operations).excused == 0


def test_what_came_back_is_there_once_more_and_not_twice() -> None:
    story = lost_and_repeated(1)
    story.poll("reader", (6, "b"))
    assert story.kinds() == {"duplicate": 1}


def test_what_nobody_could_read_is_of_one_partition() -> None:
    story = lost_and_repeated()
    story.tell("unread", Unread("t-1", [1]))
    assert story.kinds() == {"duplicate": 1}


@pytest.mark.parametrize("type_", ["ok", "info", "fail"])
def test_what_was_refused_is_seen_by_anybody(type_: str) -> None:
    story = in_order(Story(), "ab")
    story.send("producer", None, "c", type_="fail")
    story.poll("reader", (2, "c"), type_=type_)  # type: ignore[arg-type]  # a parameter is a str
    assert story.kinds() == {"G1a": 1}


def test_what_nobody_knows_the_fate_of_is_seen() -> None:
    story = in_order(Story(), "ab")
    story.send("producer", None, "c", type_="info")
    story.begin("producer", "d")
    story.poll("reader", (2, "c"), (3, "d"))
    assert not story.kinds()


@pytest.mark.parametrize("type_", ["ok", "info"])
def test_readers_get_past_a_value_that_nobody_saw(type_: str) -> None:
    story = Story()
    story.send("producer", 0, "a", "b", "c", type_=type_)  # type: ignore[arg-type]  # a parameter is a str
    story.poll("reader", (0, "a"))
    story.poll("second", (2, "c"))
    assert story.kinds() == {"lost-write": 1}
    story.poll("reader", (1, "b"))
    assert not story.kinds()


def test_of_what_is_unknown_nobody_can_say_where_it_was() -> None:
    story = in_order(Story())
    story.send("other", None, "x", type_="info")
    story.send("second", None, "y", "z", type_="info")
    story.poll("reader", (6, "y"))
    assert not story.kinds()


def test_an_overwritten_value_is_lost() -> None:
    story = in_order(Story(), "abc")
    story.send("other", 1, "x")
    assert story.kinds() == {"inconsistent-offsets": 1, "lost-write": 1}


def test_what_is_beyond_all_that_was_read_is_unseen_and_not_lost() -> None:
    story = in_order(Story())
    story.send("producer", 6, "g")
    assert story.kinds() == {"unseen": 1}
    story.poll("reader", (6, "g"))
    assert not story.kinds()


def test_an_acknowledgement_without_an_offset() -> None:
    story = in_order(Story())
    story.send("producer", None, "old")
    assert story.kinds() == {"unseen": 1}
    story.poll("reader", (6, "old"))
    assert not story.kinds()


def test_what_nobody_vouched_for_may_be_lost() -> None:
    story = in_order(Story(), "ab")
    story.send("careless", 2, "x", durability="none")
    story.send("producer", 2, "c")
    story.poll("reader", (2, "c"))
    assert not story.kinds()


def test_a_value_that_nobody_sent() -> None:
    story = in_order(Story())
    begun = story.begin("late", "g")
    story.poll("reader", (6, "g"))
    story.end(begun, None, "info")
    assert not story.kinds()
    story.poll("reader", (7, "ghost"))
    assert story.kinds() == {"phantom": 1}


def test_a_value_that_was_sent_to_another_partition() -> None:
    story = in_order(Story())
    story.send("producer", 0, "stray", key="t-1")
    story.poll("reader", (0, "stray"), key="t-1")
    assert not story.kinds()
    story.poll("reader", (6, "stray"))
    assert story.kinds() == {"phantom": 1}


def test_a_transaction_that_sees_its_own_value() -> None:
    story = Story()
    story.send("producer", 0, "a")
    story.txn("t", Poll({K: [(0, "a")]}), Send(K, 1, "b"))
    story.poll("reader", (0, "a"), (1, "b"))
    assert not story.kinds()
    story.txn("u", Send(K, 2, "c"), Poll({K: [(2, "c")]}))
    assert story.kinds() == {"precommitted-read": 1}


# -- what excuses ----------------------------------------------------------------------------------------------------


def test_what_is_deleted_is_not_lost() -> None:
    story = Story()
    for offset, value in enumerate("abcd"):
        story.send("producer", offset, value)
    story.poll("reader", (2, "c"), (3, "d"))
    assert story.kinds() == {"lost-write": 2}
    story.tell("prefix", Prefix(K, 2, 2))
    assert not story.kinds()


def test_what_is_damaged_is_left_out_and_not_lost() -> None:
    story = Story()
    for offset, value in enumerate("abc"):
        story.send("producer", offset, value)
    story.poll("reader", (0, "a"))
    story.poll("reader", (2, "c"))
    assert story.kinds() == {"lost-write": 1, "poll-skip": 1}
    story.tell("damage", Damage(K, [1]))
    assert not story.kinds()


@pytest.mark.parametrize("durability", ["fsynced", "replicated", "leader"])
def test_a_loss_of_memory_excuses_what_was_only_there(durability: str) -> None:
    story = Story()
    story.send("producer", 0, "a")
    story.send("producer", 1, "b", durability=durability)  # type: ignore[arg-type]  # a parameter is a str
    story.poll("reader", (0, "a"), (1, "b"))
    story.tell("loss", K)
    story.send("other", 1, "x")
    story.poll("second", (0, "a"), (1, "x"))
    expected = {"inconsistent-offsets": 1, "lost-write": 1} if durability == "fsynced" else {}
    assert story.kinds() == expected


def test_what_is_acknowledged_after_a_loss_counts() -> None:
    story = in_order(Story(), "ab")
    story.tell("loss", K)
    story.send("producer", 2, "c", durability="replicated")
    assert story.kinds()["unseen"] >= 1


def test_what_is_gone_is_gone() -> None:
    story = in_order(Story())
    story.send("producer", 6, "g")
    story.tell("gone", K)
    assert not story.kinds()
