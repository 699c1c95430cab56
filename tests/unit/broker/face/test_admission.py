"""Admission refuses what has no room, no right, or no broker that serves it."""

from __future__ import annotations

import asyncio

import pytest

from tidelog.broker.face.access import EverybodyMay
from tidelog.broker.face.admission import Admission, ConnectionCount, ListenerLimits
from tidelog.model.access import ANONYMOUS, Caller, Operation, Principal, Resource
from tidelog.model.errors import LeaderNotAvailable, NotAuthorized, Overloaded, ShuttingDown

TOPIC = Resource("Topic", "t")
NOBODY = Caller(ANONYMOUS, "127.0.0.1")


class Stage:
    """A broker that starts; it is ready when the test says so."""

    def __init__(self) -> None:
        self.is_ready, self.is_leaving = False, False
        self.stage = "it is looking at its disk"


class OnlyReaders:
    """Lets everybody read, and nobody do anything else."""

    def may(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        return operation is Operation.READ and resource == TOPIC and caller == NOBODY


def test_a_broker_that_starts_refuses_and_says_why() -> None:
    stage = Stage()
    admission = Admission(stage, ListenerLimits(), EverybodyMay())
    with pytest.raises(LeaderNotAvailable, match="not ready: it is looking at its disk"):
        admission.refuse_unready()
    stage.is_ready = True
    admission.refuse_unready()


def test_the_authorizer_is_asked_for_everything_that_is_not_open_to_everybody() -> None:
    admission = Admission(Stage(), ListenerLimits(), OnlyReaders())
    assert not admission.is_open
    admission.refuse_unauthorized(NOBODY, Operation.READ, TOPIC)
    admission.refuse_unauthorized(NOBODY, Operation.NONE, Resource("Cluster", "kafka-cluster"))
    with pytest.raises(NotAuthorized, match="User:ANONYMOUS may not Write Topic t"):
        admission.refuse_unauthorized(NOBODY, Operation.WRITE, TOPIC)
    with pytest.raises(NotAuthorized, match="User:alice may not Read Topic t"):
        admission.refuse_unauthorized(Caller(Principal("User", "alice"), ""), Operation.READ, TOPIC)


def test_without_access_control_everybody_may() -> None:
    admission = Admission(Stage(), ListenerLimits(), EverybodyMay())
    assert admission.is_open
    for operation in Operation:
        admission.refuse_unauthorized(NOBODY, operation, TOPIC)


def test_connections_are_counted_up_to_their_bound() -> None:
    connections = ConnectionCount(2)
    assert [connections.admit() for _ in range(3)] == [True, True, False]
    assert connections.open == 2
    connections.leave()
    assert connections.admit()


def test_one_address_leaves_places_for_others() -> None:
    connections = ConnectionCount(10, 1, address_max=2)
    assert [connections.admit("a") for _ in range(3)] == [True, True, False]
    assert connections.admit("b")
    assert connections.admit("a", probe=True), "who asks for health is not counted"
    connections.leave("a")
    assert connections.admit("a") and not connections.admit("a")


def test_one_listener_takes_nothing_from_another() -> None:
    limits = ListenerLimits(connections_max=1, body_budget_bytes=100, answer_budget_bytes=10)
    one, other = (Admission(Stage(), limits, EverybodyMay()) for _ in range(2))
    one.bodies.take(100)
    with pytest.raises(Overloaded, match="request bodies"):
        one.bodies.take(1)
    one.answers.take(10)
    with pytest.raises(Overloaded, match="answers"):
        one.answers.take(1)
    assert one.connections.admit()
    other.bodies.take(100)
    other.answers.take(10)
    assert other.connections.admit()


async def test_a_listener_that_closes_ends_its_waits_and_refuses() -> None:
    admission = Admission(Stage(), ListenerLimits(), EverybodyMay())
    admission.refuse_if_ending()
    loop = asyncio.get_running_loop()
    loop.call_soon(admission.close)
    async with admission.waits.until(loop.time() + 60):
        await asyncio.Event().wait()
    with pytest.raises(ShuttingDown):
        admission.refuse_if_ending()
