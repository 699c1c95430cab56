"""Connections with large bodies take turns: who is read, who waits, and that nobody waits for a slow one."""

from __future__ import annotations

import asyncio

from tidelog.broker.http.large_bodies import AT_ONCE, TURN_S, LargeBodies


class Receiver:
    """Notes whether its reading is held, and how often it was its turn."""

    def __init__(self) -> None:
        self.is_held = False
        self.turns = 0

    def hold(self) -> None:
        assert not self.is_held
        self.is_held = True

    def release(self) -> None:
        assert self.is_held
        self.is_held = False
        self.turns += 1


def joined(bodies: LargeBodies, count: int) -> list[Receiver]:
    receivers = [Receiver() for _ in range(count)]
    for receiver in receivers:
        bodies.join(receiver)
        bodies.join(receiver)
    return receivers


def reading(receivers: list[Receiver]) -> list[int]:
    return [number for number, receiver in enumerate(receivers) if not receiver.is_held]


async def test_a_few_are_read_and_nothing_is_done_about_it() -> None:
    bodies = LargeBodies(asyncio.get_running_loop())
    receivers = joined(bodies, AT_ONCE)
    for receiver in receivers:
        bodies.end_turn(receiver)
    assert bodies._timer is None
    assert reading(receivers) == [*range(AT_ONCE)]


async def test_of_many_all_have_their_turn_though_nobody_ends_one() -> None:
    bodies = LargeBodies(asyncio.get_running_loop())
    receivers = joined(bodies, 5 * AT_ONCE)
    assert reading(receivers) == [*range(AT_ONCE)]
    while not all(receiver.turns for receiver in receivers):
        await asyncio.sleep(TURN_S)
        assert len(reading(receivers)) == AT_ONCE
    for receiver in receivers:
        bodies.leave(receiver)
    assert reading(receivers) == [*range(5 * AT_ONCE)]


async def test_a_turn_that_ends_goes_to_the_next_one() -> None:
    bodies = LargeBodies(asyncio.get_running_loop())
    receivers = joined(bodies, AT_ONCE + 2)
    bodies.end_turn(receivers[1])
    assert reading(receivers) == [0, 2, 3]
    while reading(receivers) == [0, 2, 3]:
        await asyncio.sleep(TURN_S)
    assert set(reading(receivers)) & {AT_ONCE, AT_ONCE + 1} == {AT_ONCE, AT_ONCE + 1}


async def test_those_that_leave_make_room() -> None:
    bodies = LargeBodies(asyncio.get_running_loop())
    receivers = joined(bodies, AT_ONCE + 1)
    for receiver in receivers[:AT_ONCE]:
        bodies.leave(receiver)
        bodies.leave(receiver)
    while receivers[-1].is_held:
        await asyncio.sleep(TURN_S)
    await asyncio.sleep(3 * TURN_S)
    assert bodies._timer is None
