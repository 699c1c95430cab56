"""What replicas hold in the end, and how fresh reads are: histories with exactly one anomaly, and near misses."""

from __future__ import annotations

import pytest

from tests.unit.checker.story import K, Story, in_order
from tidelog.checker import judge
from tidelog.checker.operations import Damage, Prefix


def viewed(*views: str) -> Story:
    """The letters from a to d, and what each node has of them."""
    story = in_order(Story(), "abcd")
    for node, values in enumerate(views, 1):
        story.view(values, replica=node)
    return story


def test_all_replicas_hold_what_was_acknowledged() -> None:
    assert not viewed("abcd", "abcd", "abcd").kinds()


def test_a_replica_lacks_the_end() -> None:
    assert viewed("abcd", "abc").kinds() == {"acknowledged-missing": 1, "unequal-replicas": 1}


def test_a_replica_has_something_else() -> None:
    kinds = viewed("abcd", "abxd").kinds()
    assert kinds == {"acknowledged-missing": 1, "unequal-replicas": 1, "inconsistent-offsets": 1, "phantom": 1}


def test_a_replica_has_a_hole() -> None:
    assert viewed("abcd", "a cd").kinds() == {"acknowledged-missing": 1, "gap": 1, "int-poll-skip": 1}


def test_a_gap_in_what_nobody_was_promised() -> None:
    story = Story()
    story.send("producer", 0, "a")
    story.send("producer", 2, "c")
    story.poll("reader", (0, "a"), (2, "c"))
    story.view("a c")
    assert story.kinds() == {"gap": 1}


@pytest.mark.parametrize(("second", "expected"), [("a c", {}), ("abc", {"gap": 1, "int-poll-skip": 2})])
def test_in_a_sparse_log_a_gap_is_what_another_replica_has(second: str, expected: dict[str, int]) -> None:
    story = Story()
    story.send("producer", 0, "a")
    story.send("producer", 1, "b", type_="info")
    story.send("producer", 2, "c")
    story.poll("reader", (0, "a"), (2, "c"))
    story.view("a c", replica=1, is_sparse=True)
    story.view(second, replica=2, is_sparse=True)
    assert story.kinds() == expected


def test_damage_that_somebody_did() -> None:
    story = viewed("a?cd")
    story.tell("damage", Damage(K, [1]))
    assert not story.kinds()


def test_damage_that_nobody_did() -> None:
    assert viewed("a?cd").kinds() == {"acknowledged-missing": 1, "false-damage": 1, "int-poll-skip": 1}


def test_damage_that_spreads() -> None:
    story = viewed("a??d")
    story.tell("damage", Damage(K, [1]))
    assert story.kinds() == {"acknowledged-missing": 1, "false-damage": 1, "int-poll-skip": 1}


def test_what_is_damaged_is_never_another_value() -> None:
    story = viewed("axcd")
    story.tell("damage", Damage(K, [1]))
    assert story.kinds() == {"acknowledged-missing": 1, "phantom": 1}


@pytest.mark.parametrize(("start", "expected"), [(1, {"wrong-start": 1}), (2, {}), (3, {}), (4, {"wrong-start": 1})])
def test_a_log_starts_where_it_was_asked_to(start: int, expected: dict[str, int]) -> None:
    story = in_order(Story(), "abcdef")
    story.tell("prefix", Prefix(K, 2, 2))
    story.tell("prefix", Prefix(K, 3, 0))
    story.view("abcdef"[start:], start=start)
    assert story.kinds() == expected


def test_nobody_asked_for_a_deletion() -> None:
    story = in_order(Story(), "abcd")
    story.view("cd", start=2)
    assert story.kinds() == {"wrong-start": 1}


def test_a_log_that_is_not_at_rest() -> None:
    story = in_order(Story(), "abcd")
    story.view("abcd", end=5)
    assert story.kinds() == {"unsettled": 1}


def test_an_acknowledgement_without_an_offset_is_somewhere() -> None:
    story = viewed("abcd")
    story.send("producer", None, "old")
    assert story.kinds() == {"acknowledged-missing": 1, "unseen": 1}


def test_what_only_a_replica_shows_was_read() -> None:
    story = in_order(Story(), "abcd")
    story.send("producer", 4, "e")
    story.view("abcde", replica=1)
    assert not story.kinds()


def test_what_was_seen_is_gone() -> None:
    story = in_order(Story(), "ab")
    begun = story.begin("producer", "c")
    story.poll("reader", (2, "c"))
    story.end(begun, None, "info")
    story.view("ab")
    assert story.kinds() == {"vanished": 1}
    story.tell("loss", K)
    assert not story.kinds()


# -- freshness -------------------------------------------------------------------------------------------------------


def stale(*, epoch: int = 1, replica: int | None = None, end: int = 1) -> Story:
    story = Story()
    story.send("producer", 0, "a", epoch=1)
    story.send("producer", 1, "b", epoch=1)
    story.poll("reader", (0, "a"), end=end, epoch=epoch, replica=replica)
    story.poll("reader", (1, "b"))
    return story


def test_a_leader_does_not_show_what_it_has_acknowledged() -> None:
    assert stale().kinds() == {"stale-read": 1}


def test_a_partition_with_holes_shows_later_what_it_has_acknowledged() -> None:
    story = stale()
    story.tell("holes", K)
    assert not story.kinds()


def test_a_poll_that_says_that_there_is_more_is_not_stale() -> None:
    assert not stale(end=2).kinds()


def test_a_new_leader_and_a_copy_may_learn_late() -> None:
    assert not stale(epoch=2).kinds()
    assert not stale(replica=3).kinds()


def test_what_the_leader_alone_acknowledged_need_not_be_shown() -> None:
    story = Story()
    story.send("producer", 0, "a")
    story.send("producer", 1, "b", durability="leader")
    story.poll("reader", (0, "a"), end=1)
    story.poll("reader", (1, "b"))
    assert not story.kinds()


def test_what_is_acknowledged_while_a_poll_is_under_way_may_be_left_out() -> None:
    story = Story()
    story.send("producer", 0, "a")
    under_way = story.begin("producer", "b")
    story.poll("reader", (0, "a"), end=1)
    story.end(under_way, 1)
    story.poll("reader", (1, "b"))
    assert not story.kinds()


def test_how_far_polls_lag() -> None:
    story = Story()
    for offset, value in enumerate("abc"):
        story.send("producer", offset, value)
    story.poll("reader", (0, "a"))
    story.poll("reader", (1, "b"), (2, "c"))
    lag = judge(story.recorder.operations).lag
    assert (lag.seconds, lag.key, lag.offset) == (3.0, K, 1), "b was there at 3, and was not polled at 6"
