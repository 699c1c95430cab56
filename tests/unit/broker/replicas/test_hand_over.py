"""A broker that stops decides what it does about the partitions that it leads, step by step."""

from __future__ import annotations

from tidelog.broker.replicas.hand_over import HAND_OVER_S_MAX, HELD_MAX, HOLD_S_MAX, RETRY_S, HandOver, Led, Step
from tidelog.model.ids import PartitionId, TopicId

NOTHING = Step((), (), ())


def name(number: int) -> PartitionId:
    return PartitionId(TopicId("t"), number)


def led(number: int = 0, *, heir: bool = True, hope: bool = True, settled: bool = True) -> Led:
    return Led(name(number), 7, heir, hope, settled)


def test_what_is_settled_is_held_and_given_on_at_once() -> None:
    core = HandOver(10.0)
    assert core.step([led()], 10.0) == Step((), (name(0),), (led(),))
    assert core.is_over([], 10.0), "another broker leads it now"


def test_what_is_appended_is_committed_first() -> None:
    core = HandOver(0.0)
    assert core.step([led(settled=False)], 0.0) == Step((), (name(0),), ())
    assert core.step([led(settled=False)], 0.1) == NOTHING, "held already"
    assert core.step([led()], 0.2) == Step((), (), (led(),))


def test_requests_are_not_held_for_ever_and_it_is_tried_again() -> None:
    core, slow = HandOver(0.0), led(settled=False)
    core.step([slow], 0.0)
    assert core.step([slow], HOLD_S_MAX) == Step((name(0),), (), ())
    assert core.step([slow], HOLD_S_MAX + RETRY_S / 2) == NOTHING
    assert core.step([slow], HOLD_S_MAX + RETRY_S) == Step((), (name(0),), ())


def test_a_partition_whose_last_heir_leaves_goes_on_here() -> None:
    core = HandOver(0.0)
    core.step([led(settled=False)], 0.0)
    assert core.step([led(heir=False, settled=False)], 0.1) == Step((name(0),), (), ())


def test_a_replica_that_lives_is_waited_for_and_none_is_not() -> None:
    core = HandOver(0.0)
    assert core.is_over([led(heir=False, hope=False)], 0.0)
    behind = [led(heir=False)]
    assert not core.is_over(behind, 0.0)
    assert core.step(behind, 0.0) == NOTHING
    assert core.step([led()], 1.0).ask == (led(),), "it has caught up"


def test_when_all_others_stop_too_there_is_nothing_to_wait_for() -> None:
    core = HandOver(0.0)
    core.step([led(0), led(1)], 0.0)
    assert core.refused([name(0)], 0.1) == (name(0),)
    assert not core.is_over([led(0), led(1)], 0.1)
    assert core.step([led(0), led(1)], 5 * RETRY_S) != NOTHING
    assert core.is_over([led(0)], 0.1)


def test_only_so_many_are_held_at_one_time() -> None:
    core, many = HandOver(0.0), [led(number) for number in range(HELD_MAX + 2)]
    first = core.step(many, 0.0)
    assert len(first.hold) == len(first.ask) == HELD_MAX
    rest = many[HELD_MAX:]
    assert core.step(rest, 0.1) == Step((), (name(HELD_MAX), name(HELD_MAX + 1)), tuple(rest))


def test_it_all_ends_and_what_is_held_then_goes_on() -> None:
    core = HandOver(0.0)
    core.step([led(settled=False)], 0.0)
    assert not core.is_over([led()], HAND_OVER_S_MAX - 0.01)
    assert core.is_over([led()], HAND_OVER_S_MAX)
    assert core.end() == (name(0),)
