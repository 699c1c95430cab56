"""A coordinator's batches in order: from where each needs the log unbroken."""

from __future__ import annotations

import pytest

from tests.golden.paxos.stage import Stage
from tidelog.replication.paxos.events import Append, Chosen, Proposed, Reason, Refused, Released, Timer, Truncate
from tidelog.replication.paxos.predecessors import named_at
from tidelog.replication.paxos.state import Kind


def begins(stage: Stage, *events: Append | Truncate) -> list[tuple[int, int]]:
    """Position and `begin` of what an elected coordinator proposes."""
    effects = [effect for event in events for effect in stage.do(1, event)]
    return [(effect.position, effect.value.begin) for effect in effects if isinstance(effect, Proposed)]


@pytest.fixture
def stage() -> Stage:
    made = Stage(window=16)
    made.elect(1)
    made.run()
    return made


def in_order(digest: bytes) -> Append:
    return Append(1, digest, is_in_order=True)


def test_batches_in_order_need_the_log_unbroken_from_the_first_of_them(stage: Stage) -> None:
    assert begins(stage, in_order(b"a"), in_order(b"b"), in_order(b"c")) == [(1, 1), (2, 1), (3, 1)]


def test_what_may_be_lost_after_it_was_chosen_is_needed_by_none(stage: Stage) -> None:
    lazy = Append(1, b"lazy", is_lazy=True)
    assert begins(stage, in_order(b"a"), lazy, in_order(b"b"), in_order(b"c")) == [(1, 1), (2, 0), (3, 3), (4, 3)]


def test_a_truncation_between_them_is_one_of_them(stage: Stage) -> None:
    assert begins(stage, in_order(b"a"), Truncate(0), in_order(b"b")) == [(1, 1), (2, 0), (3, 1)]


def test_only_what_is_chosen_on_disk_can_be_in_order(stage: Stage) -> None:
    with pytest.raises(AssertionError):
        stage.do(1, Append(1, b"a", is_lazy=True, is_in_order=True))
    with pytest.raises(AssertionError):
        stage.do(1, Append(0, b"1,2", Kind.VOTERS, is_in_order=True))


def by_key(digest: bytes, *keys: int) -> Append:
    return Append(1, digest, keys=frozenset(keys))


def test_batches_by_key_name_the_last_with_their_keys_and_are_released_with_them(stage: Stage) -> None:
    begun = begins(stage, by_key(b"a", 1), by_key(b"b", 2), Truncate(0), by_key(b"c", 1, 3), by_key(b"d"))
    assert [begin for _, begin in begun[:3]] == [0, 0, 0] and begun[4] == (5, 0)
    assert named_at(4, begun[3][1]) == [1]
    # Of the writes to node 2 the first gets lost, and node 3 hears of none.
    stage.drop(1, 2, 1)
    stage.drop(1, 3)
    stage.deliver(1, 2)
    stage.deliver(2, 1)
    news = [effect for _, effect in stage.effects if isinstance(effect, (Chosen, Released))]
    assert [effect.position for effect in news if isinstance(effect, Chosen)] == [0, 2, 3, 4, 5]
    assert [effect.position for effect in news if isinstance(effect, Released)] == [2, 5]
    stage.fire(1, Timer.RESEND)
    stage.run()
    released = [effect.position for _, effect in stage.effects if isinstance(effect, Released)]
    assert released == [2, 5, 1, 4]


def test_a_wider_window_counts_at_once(stage: Stage) -> None:
    node = stage.nodes[1]
    node.set_window(1)
    assert begins(stage, by_key(b"a")) == [(1, 0)]
    refused = [effect for effect in stage.do(1, by_key(b"b")) if isinstance(effect, Refused)]
    assert [effect.reason for effect in refused] == [Reason.WINDOW_FULL]
    node.set_window(2)
    assert begins(stage, by_key(b"b")) == [(2, 0)]
    stage.nodes[2].set_window(5)
