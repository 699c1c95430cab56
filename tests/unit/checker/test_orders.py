"""Anomalies of order: a history that has exactly this one, and one that only nearly has it."""

from __future__ import annotations

from tests.unit.checker.story import K, Story, in_order
from tidelog.checker.operations import Poll


def sent(values: str = "abcdef") -> Story:
    """Sent and read once, by somebody else."""
    return in_order(Story(), values)


def test_a_poll_leaves_a_record_out() -> None:
    story = sent()
    story.poll("second", (0, "a"), (2, "c"))
    assert story.kinds() == {"int-poll-skip": 1}


def test_a_gap_that_nobody_can_see_is_none() -> None:
    story = Story()
    story.send("producer", 0, "a")
    story.send("producer", 2, "c")
    story.poll("reader", (0, "a"), (2, "c"))
    assert not story.kinds()


def test_a_poll_goes_backwards() -> None:
    story = sent()
    story.poll("second", (0, "a"), (1, "b"), (1, "b"))
    story.poll("third", (1, "b"), (0, "a"))
    assert story.kinds() == {"int-nonmonotonic-poll": 2}


def test_a_subscriber_may_begin_elsewhere_while_it_is_rebalanced() -> None:
    story = sent()
    story.tell("subscribe", "t", process="second")
    story.poll("second", (0, "a"), (2, "c"), (1, "b"), rebalanced=(K,))
    assert not story.kinds()


def test_the_next_poll_leaves_a_record_out() -> None:
    story = sent()
    story.poll("second", (0, "a"))
    story.poll("second", (2, "c"))
    assert story.kinds() == {"poll-skip": 1}


def test_the_next_poll_goes_backwards() -> None:
    story = sent()
    story.poll("second", (0, "a"), (1, "b"))
    story.poll("second", (1, "b"))
    assert story.kinds() == {"nonmonotonic-poll": 1}


def test_a_failed_poll_moves_nothing() -> None:
    story = sent()
    story.poll("second", (0, "a"))
    story.poll("second", (1, "b"), type_="info")
    story.poll("second", (1, "b"))
    assert not story.kinds()
    story.poll("second", (2, "c"), type_="fail")
    story.poll("second", (3, "d"))
    assert story.kinds() == {"poll-skip": 1}


def test_each_process_has_a_position_of_its_own() -> None:
    story = sent()
    story.poll("second", (0, "a"))
    story.poll("third", (2, "c"))
    story.poll("second", (1, "b"))
    assert not story.kinds()


def test_a_position_is_kept_where_the_assignment_still_covers_it() -> None:
    story = sent()
    story.tell("assign", K, process="second")
    story.poll("second", (0, "a"))
    story.tell("assign", K, "t-1", process="second")
    story.poll("second", (2, "c"))
    assert story.kinds() == {"poll-skip": 1}


def test_a_position_is_given_up_with_the_partition() -> None:
    story = sent()
    story.tell("assign", K, process="second")
    story.poll("second", (0, "a"))
    story.tell("assign", "t-1", process="second")
    story.tell("assign", K, process="second")
    story.poll("second", (2, "c"))
    assert not story.kinds()


def test_a_seek_and_a_crash_give_the_position_up() -> None:
    story = sent()
    story.poll("second", (3, "d"))
    story.tell("seek", K, process="second")
    story.poll("second", (0, "a"))
    story.tell("crash", process="second")
    story.poll("second", (4, "e"))
    assert not story.kinds()


def test_a_seek_elsewhere_gives_nothing_up() -> None:
    story = sent()
    story.poll("second", (3, "d"))
    story.tell("seek", "t-1", process="second")
    story.poll("second", (0, "a"))
    assert story.kinds() == {"nonmonotonic-poll": 1}


def test_a_subscriber_goes_on_in_order_unless_it_is_rebalanced() -> None:
    story = sent()
    story.tell("subscribe", "t", process="second")
    story.poll("second", (0, "a"))
    story.poll("second", (3, "d"), rebalanced=(K,))
    story.poll("second", (1, "b"))
    assert not story.kinds(), "what it was given before a rebalance within the poll says nothing about the next"
    story.poll("second", (3, "d"))
    assert story.kinds() == {"poll-skip": 1}


def test_who_is_assigned_is_not_excused_by_a_rebalance() -> None:
    story = sent()
    story.tell("assign", K, process="second")
    story.poll("second", (0, "a"))
    story.poll("second", (3, "d"), rebalanced=(K,))
    assert story.kinds() == {"poll-skip": 1}


def test_polls_of_one_operation_follow_one_another() -> None:
    story = sent()
    begun = story.recorder.invoke("second", "poll")
    story.recorder.complete(begun, "ok", [Poll({K: [(0, "a")]}), Poll({K: [(2, "c")]})])
    assert story.kinds() == {"int-poll-skip": 1}


# -- sends -----------------------------------------------------------------------------------------------------------


def test_a_stranger_within_a_batch() -> None:
    story = Story()
    batch, stranger = story.begin("producer", "a", "c"), story.begin("other", "b")
    story.end(stranger, 1)
    story.recorder.complete(batch, "info")
    story.poll("reader", (0, "a"), (1, "b"), (2, "c"))
    assert story.kinds() == {"int-send-skip": 1, "G0": 1}, "and each comes before the other"


def test_a_batch_in_one_piece_between_strangers() -> None:
    story = Story()
    batch, stranger = story.begin("producer", "a", "b"), story.begin("other", "c")
    story.end(stranger, 2)
    story.recorder.complete(batch, "info")
    story.poll("reader", (0, "a"), (1, "b"), (2, "c"))
    assert not story.kinds()


def test_a_batch_in_another_order() -> None:
    story = Story()
    story.send("producer", None, "b", "a", type_="info")
    story.poll("reader", (0, "a"), (1, "b"))
    assert story.kinds() == {"int-nonmonotonic-send": 1}


def test_batches_of_a_producer_in_another_order() -> None:
    story = Story()
    story.send("producer", None, "b", type_="info")
    story.send("producer", 0, "a")
    story.poll("reader", (0, "a"), (1, "b"))
    assert story.kinds() == {"nonmonotonic-send": 1}


def test_strangers_between_the_batches_of_a_producer() -> None:
    story = Story()
    story.send("producer", 0, "a")
    story.send("other", 1, "x")
    story.send("producer", 2, "b")
    story.poll("reader", (0, "a"), (1, "x"), (2, "b"))
    assert not story.kinds()


def test_a_pipelining_producer_keeps_its_order() -> None:
    story = Story()
    first, second = story.begin("producer", "a"), story.begin("producer", "b")
    story.end(second, 0)
    story.end(first, 1)
    story.poll("reader", (0, "b"), (1, "a"))
    assert story.kinds() == {"nonmonotonic-send": 1}


def test_keyed_requests_under_way_at_once_may_overtake_each_other() -> None:
    story = Story()
    first, second = story.begin("client", "a", guarantee="key"), story.begin("client", "b", guarantee="key")
    story.end(second, 0)
    story.end(first, 1)
    story.poll("reader", (0, "b"), (1, "a"))
    assert not story.kinds()


def test_a_client_that_waits_for_its_answer_is_in_order() -> None:
    story = Story()
    story.send("client", 1, "a", guarantee="key")
    story.send("client", 0, "b", guarantee="key")
    story.poll("reader", (0, "b"), (1, "a"))
    assert story.kinds() == {"nonmonotonic-send": 1, "G0-process": 1}
