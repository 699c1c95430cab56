"""Three whole brokers, one of which hears nothing new of the metadata: what it still allows, the controller refuses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import msgspec
import pytest

from tests.integration.replication.three_brokers import three_brokers, until
from tidelog.broker.broker import Broker, NewTopic
from tidelog.broker.consensus.messages import PaxosFrame
from tidelog.controller.access_commands import AddAcls, RemoveAcls
from tidelog.controller.commands import CreateTopic, TopicPlaced
from tidelog.controller.partition_commands import ElectionType, ElectLeaders
from tidelog.model.access import Acl, Caller, Operation, Principal, Resource
from tidelog.model.errors import BrokerNotRegistered, NotAuthorized
from tidelog.sim.kit.loop import run
from tidelog.transport.peer import Hello
from tidelog.transport.peer.statistics import SENDER

ROOT = Caller(Principal("User", "root"), "10.1.1.1")
ALICE = Caller(Principal("User", "alice"), "10.1.1.2")
MAY_CREATE = Acl("Topic", "Prefixed", "a", "User:alice", "*", "Create", "Allow")
SECURE = {"authorizer_enabled": True, "super_users": "User:root"}


def with_rights(story: Callable[[Broker, Broker], Awaitable[None]]) -> None:
    async def scenario() -> None:
        async with three_brokers(**SECURE) as cluster:
            await until(lambda: any(one.is_controller for one in cluster.brokers.values()))
            controller = next(one for one in cluster.brokers.values() if one.is_controller)
            other = next(one for one in cluster.brokers.values() if not one.is_controller)
            await controller.admin.by(ROOT).change_access(AddAcls([MAY_CREATE]))
            await until(lambda: other.image.access.acls == (MAY_CREATE,))
            await story(controller, other)

    run(scenario)


@contextmanager
def held_back(broker: Broker) -> Iterator[None]:
    """The broker hears who leads, and nothing of what is decided."""
    metadata, hear = broker._metadata, broker._metadata.notified

    def deaf(node_id: int, message: msgspec.Struct, payload: memoryview) -> None:
        if not isinstance(message, PaxosFrame):
            hear(node_id, message, payload)

    metadata.notified = deaf  # type: ignore[method-assign]  # the network is reliable here, and this is what loses
    try:
        yield
    finally:
        metadata.notified = hear  # type: ignore[method-assign]  # as it was


def test_a_right_that_was_taken_away_is_gone_also_by_way_of_a_broker_that_has_not_heard_of_it() -> None:
    async def story(controller: Broker, other: Broker) -> None:
        await other.admin.by(ALICE).create_topic(NewTopic("a1", 1))
        with held_back(other):
            await controller.admin.by(ROOT).change_access(RemoveAcls([MAY_CREATE]))
            resource = Resource("Topic", "a2")
            assert other.face.authorizer.may(ALICE, Operation.CREATE, resource)
            assert not controller.face.authorizer.may(ALICE, Operation.CREATE, resource)
            with pytest.raises(NotAuthorized, match="User:alice may not Create Cluster"):
                await other.admin.by(ALICE).create_topic(NewTopic("a2", 1))
            assert "a2" not in controller.image.topics
            assert other.face.authorizer.may(ALICE, Operation.CREATE, resource)
        with pytest.raises(NotAuthorized):
            await controller.admin.by(ALICE).create_topic(NewTopic("a2", 1))

    with_rights(story)


def test_a_right_that_the_broker_has_not_heard_of_is_not_needed_there() -> None:
    async def story(_controller: Broker, other: Broker) -> None:
        with pytest.raises(NotAuthorized):
            await other.admin.by(ALICE).elect_leaders(ElectLeaders(ElectionType.PREFERRED))
        with held_back(other):
            await other.admin.by(ROOT).change_access(AddAcls([MAY_CREATE._replace(resource_name="b")]))
            command = CreateTopic(NewTopic("b1", 1), "b" * 32, caller=ALICE)
            await other._channel.submit(command, TopicPlaced, seconds_max=15)

    with_rights(story)


def test_a_client_without_a_name_gets_nothing_and_is_counted() -> None:
    async def story(controller: Broker, other: Broker) -> None:
        nameless = other.admin
        with pytest.raises(NotAuthorized, match="CreateTopic came without the caller"):
            await nameless.create_topic(NewTopic("a3", 1))
        assert controller._peers.statistics.refused[SENDER] == 1
        assert "a3" not in controller.image.topics
        await nameless.allocate_producer_id()  # is the broker's own affair
        assert (await nameless.create_offsets_topic()).name == "__consumer_offsets"

    with_rights(story)


def test_nobody_but_a_member_is_asked_for_whom_a_command_is() -> None:
    async def story(controller: Broker, other: Broker) -> None:
        stranger = Hello(9, "somebody", controller.cluster_id, 7)
        command = CreateTopic(NewTopic("a4", 1), "d" * 32, caller=ROOT)
        with pytest.raises(BrokerNotRegistered, match="node 9 is not registered"):
            await controller._peers._handler.handle(stranger, command, memoryview(b""))
        assert "a4" not in other.image.topics

    with_rights(story)
