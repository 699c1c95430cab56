"""A broker is believed as far as a correct one could have said what it says: a table of who may say what."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tidelog.broker.consensus.messages import DescribeQuorum, PaxosFrame
from tidelog.broker.isr.replica_messages import FetchReplicas, ReplicasFlushed
from tidelog.broker.peer_claims import CLAIMS, OPEN, ClaimChecks, check_complete
from tidelog.broker.peer_service import PEER_MESSAGES
from tidelog.controller.command_table import NO_CLAIM, WIRE_COMMANDS
from tidelog.controller.commands import (
    AllocateProducerIds,
    BrokerHeartbeat,
    MetadataApplied,
    RegisterBroker,
    ReportSilence,
)
from tidelog.controller.partition_commands import AlterPartition, ElectionType, ElectLeaders
from tidelog.model.cluster import BrokerInfo, ClusterImage
from tidelog.model.errors import BrokerNotRegistered, ForeignSender
from tidelog.model.ids import NodeId
from tidelog.replication.paxos.messages import RecoverRequest
from tidelog.transport.peer import Hello

EPOCH = 41
REGISTERED = BrokerInfo(NodeId(3), {}, None, EPOCH, "process", "10.0.0.3", 9192, "disk")
IMAGE = ClusterImage("c", brokers={NodeId(3): REGISTERED})
THREE = Hello(3, "process", "c", EPOCH)
CHECKS = ClaimChecks(lambda: IMAGE)


def register(node: int, incarnation: str) -> RegisterBroker:
    return RegisterBroker(node, incarnation, "disk", {}, "10.0.0.3", 9192)


IN_NAMES: tuple[Any, ...] = (
    lambda node: FetchReplicas(node, EPOCH, "s", 0, (), (), 100, 100),
    lambda node: ReplicasFlushed(node, EPOCH, ()),
    lambda node: register(node, "process"),
    lambda node: BrokerHeartbeat(node, EPOCH, 50),
    lambda node: MetadataApplied(node, EPOCH, 50),
    lambda node: ReportSilence(node, EPOCH, 2, 7),
    lambda node: AlterPartition(node, EPOCH, ()),
    lambda node: ElectLeaders(ElectionType.UNCLEAN, via=node),
)


@pytest.mark.parametrize("make", IN_NAMES)
def test_a_broker_speaks_for_itself_and_for_nobody_else(make: Any) -> None:
    CHECKS.check(THREE, make(3))
    with pytest.raises(ForeignSender, match=r"node 3 sent .* in the name of node 2"):
        CHECKS.check(THREE, make(2))


@pytest.mark.parametrize("kind", [FetchReplicas, ReplicasFlushed, BrokerHeartbeat, AlterPartition])
def test_no_epoch_is_believed_that_the_metadata_do_not_give(kind: type[msgspec.Struct]) -> None:
    make = next(make for make in IN_NAMES if isinstance(make(3), kind))
    for epoch in (EPOCH + 1, 2**40):
        with pytest.raises(ForeignSender, match=rf"under the epoch {epoch}, .* give its process 41"):
            CHECKS.check(THREE, msgspec.structs.replace(make(3), broker_epoch=epoch))
    CHECKS.check(THREE, msgspec.structs.replace(make(3), broker_epoch=EPOCH - 1))  # whoever acts on it finds it stale


def test_a_process_registers_itself() -> None:
    CHECKS.check(Hello(3, "next"), register(3, "next"))
    with pytest.raises(ForeignSender, match="for another process than its own"):
        CHECKS.check(Hello(3, "next"), register(3, "process"))


@pytest.mark.parametrize(
    "stranger",
    [Hello(4, "new"), Hello(3, "next"), Hello(3, "next", "c", EPOCH), Hello(3, "next", "c", 2**40)],
    ids=["unknown node", "unknown process", "with the epoch of another", "with a huge epoch"],
)
def test_a_process_that_the_metadata_do_not_name_may_found_join_and_describe(stranger: Hello) -> None:
    CHECKS.check(stranger, DescribeQuorum())
    CHECKS.check(stranger, PaxosFrame(1, 2, RecoverRequest()))
    CHECKS.check(stranger, register(stranger.node_id, stranger.incarnation))
    for asked in (
        FetchReplicas(stranger.node_id, stranger.broker_epoch, "s", 0, (), (), 100, 100),
        MetadataApplied(stranger.node_id, EPOCH, 50),
        AllocateProducerIds(),
    ):
        with pytest.raises(BrokerNotRegistered, match="not registered as far as this broker has read"):
            CHECKS.check(stranger, asked)
    CHECKS.check(stranger, AllocateProducerIds(), is_open=True)


def test_an_open_message_is_believed_no_more_than_others() -> None:
    with pytest.raises(ForeignSender):
        CHECKS.check(Hello(4, "new"), BrokerHeartbeat(3, EPOCH, 50))
    with pytest.raises(ForeignSender, match="the metadata give another process 41"):
        CHECKS.check(Hello(3, "next", "c", EPOCH), BrokerHeartbeat(3, EPOCH, 50))
    CHECKS.check(Hello(3, "next"), BrokerHeartbeat(3, EPOCH + 9, 50))  # it may have registered since


def test_every_message_has_a_claim_and_no_message_can_be_forgotten() -> None:
    class Forgotten(msgspec.Struct, tag=True):
        node_id: int

    check_complete(PEER_MESSAGES)
    assert {*CLAIMS} == {*PEER_MESSAGES}
    assert {*OPEN} < {*PEER_MESSAGES}
    with pytest.raises(TypeError, match="Forgotten has no entry in CLAIMS"):
        check_complete((*PEER_MESSAGES, Forgotten))


@pytest.mark.parametrize("message", PEER_MESSAGES, ids=lambda message: message.__name__)
def test_a_message_with_a_field_for_its_sender_has_it_checked(message: type[msgspec.Struct]) -> None:
    """`node_id` of `RemoveBroker` is who is removed; of answers, who is spoken of."""
    is_asked = message in WIRE_COMMANDS or message in (FetchReplicas, ReplicasFlushed)
    names = {"node_id", "replica", "via"} & {*message.__struct_fields__}
    if is_asked and names and message.__name__ != "RemoveBroker":
        assert CLAIMS[message] is not NO_CLAIM
        assert CLAIMS[message].node in names
        assert CLAIMS[message].epoch or "broker_epoch" not in message.__struct_fields__
