"""A coordinator's batches in order: from where each needs the log unbroken."""

from __future__ import annotations

import pytest

from tests.golden.paxos.stage import Stage
from tidelog.replication.paxos.events import Append, Proposed, Truncate
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
