"""Circular flow of information, and what only looks like it."""

from __future__ import annotations

import pytest

from tests.unit.checker.story import K, Story
from tidelog.checker.components import components, way
from tidelog.checker.operations import Poll, Send

L = "t-1"


def read(story: Story, key: str, values: str) -> None:
    story.poll(f"reader of {key}", *enumerate(values), key=key)


def test_transactions_in_different_orders() -> None:
    story = Story()
    story.txn("one", Send(K, 0, "a"), Send(L, 1, "b"))
    story.txn("two", Send(K, 1, "c"), Send(L, 0, "d"))
    read(story, K, "ac")
    read(story, L, "db")
    assert story.kinds() == {"G0": 1}


def test_transactions_in_one_order() -> None:
    story = Story()
    story.txn("one", Send(K, 0, "a"), Send(L, 0, "b"))
    story.txn("two", Send(K, 1, "c"), Send(L, 1, "d"))
    read(story, K, "ac")
    read(story, L, "bd")
    assert not story.kinds()


def test_batches_promise_nothing_over_several_partitions() -> None:
    story = Story()
    begun: list[tuple[int, list[Send]]] = []
    for process, offsets in (("one", (0, 1)), ("two", (1, 0))):
        sends = [Send(key, offset, f"{process} {key}") for key, offset in zip((K, L), offsets, strict=True)]
        begun.append((story.recorder.invoke(process, "send", sends), sends))
    for invocation, sends in begun:
        story.recorder.complete(invocation, "ok", sends)
    story.poll("reader", (0, f"one {K}"), (1, f"two {K}"))
    story.poll("reader", (0, f"two {L}"), (1, f"one {L}"), key=L)
    assert not story.kinds()


def test_two_transactions_that_see_each_other() -> None:
    story = Story()
    story.txn("one", Send(K, 0, "a"), Poll({L: [(0, "b")]}))
    story.txn("two", Send(L, 0, "b"), Poll({K: [(0, "a")]}))
    assert story.kinds() == {"G1c": 1}


def test_a_transaction_that_sees_another() -> None:
    story = Story()
    story.txn("one", Send(K, 0, "a"), Poll({L: []}))
    story.txn("two", Send(L, 0, "b"), Poll({K: [(0, "a")]}))
    read(story, L, "b")
    assert not story.kinds()


def test_a_process_writes_before_what_it_wrote() -> None:
    story = Story()
    story.send("client", 1, "a", guarantee="none")
    story.send("client", 0, "b", guarantee="none")
    read(story, K, "ba")
    assert story.kinds() == {"nonmonotonic-send": 1, "G0-process": 1}


def test_a_process_writes_before_what_it_has_read() -> None:
    story = Story()
    story.send("other", 1, "a")
    story.poll("client", (1, "a"))
    late = story.begin("client", "b")
    story.end(late, 0)
    read(story, K, "ba")
    assert story.kinds() == {"G1c-process": 1}


def test_a_process_writes_after_what_it_has_read() -> None:
    story = Story()
    story.send("other", 0, "a")
    story.poll("client", (0, "a"))
    story.send("client", 1, "b")
    read(story, K, "ab")
    assert not story.kinds()


def test_somebody_writes_before_what_was_acknowledged() -> None:
    story = Story()
    story.send("one", 1, "a")
    story.send("two", 0, "b")
    read(story, K, "ba")
    assert story.kinds() == {"G0-realtime": 1}


def test_somebody_writes_before_what_was_read() -> None:
    story = Story()
    first = story.begin("one", "a")
    story.poll("reader", (1, "a"))
    story.send("two", 0, "b")
    story.end(first, 1)
    read(story, K, "ba")
    assert story.kinds() == {"G1c-realtime": 1}


def test_those_who_write_at_once_may_come_in_any_order() -> None:
    story = Story()
    first, second = story.begin("one", "a"), story.begin("two", "b")
    story.end(first, 1)
    story.end(second, 0)
    read(story, K, "ba")
    assert not story.kinds()


def test_what_is_unknown_may_be_written_at_any_time() -> None:
    story = Story()
    story.send("one", None, "a", type_="info")
    story.send("two", 0, "b")
    read(story, K, "ba")
    assert not story.kinds()


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        ([[]], []),
        ([[0]], [[0]]),
        ([[1], [2], []], []),
        ([[1], [2], [0]], [[0, 1, 2]]),
        ([[1], [0], [1, 3], [2]], [[0, 1], [2, 3]]),
        ([[1, 2], [3], [3], [0]], [[0, 1, 2, 3]]),
        ([[1], [2], [1], [0]], [[1, 2]]),
    ],
)
def test_components(graph: list[list[int]], expected: list[list[int]]) -> None:
    assert sorted(map(sorted, components(graph))) == expected


def test_a_long_cycle_needs_no_deep_stack() -> None:
    length = 50_000
    graph = [[(node + 1) % length] for node in range(length)]
    assert [len(component) for component in components(graph)] == [length]
    assert way(graph, 1, 0) == [*range(1, length), 0]
