"""Numbers that no field of the cluster can hold are refused when a message is decoded, with the error that says so."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import structs

from tidelog.broker.consensus.messages import ElectionFrame, PaxosFrame
from tidelog.broker.isr.replica_messages import FetchReplicas, FollowerState, ReplicasFlushed
from tidelog.broker.paxos.messages import AppliedDurable, PartitionFrame, ReadApplied
from tidelog.broker.peer_service import MESSAGE_ADDITIONS, PEER_MESSAGES
from tidelog.broker.repair.repair_messages import RecoverQuery, RequestedBatch
from tidelog.broker.routing.forwarding_messages import Addressed, ForwardRead
from tidelog.controller.commands import (
    BrokerHeartbeat,
    CreateOffsetsTopic,
    CreateTopic,
    MetadataApplied,
    NewTopic,
    RegisterBroker,
)
from tidelog.controller.partition_commands import AlterPartition, IsrAsked, IsrMember
from tidelog.model.cluster import HTTP, Endpoint
from tidelog.replication.election_events import Heartbeat
from tidelog.replication.paxos.messages import (
    Learned,
    LearnRequest,
    PromiseRequest,
    PromiseResponse,
    Reply,
    WriteRequest,
)
from tidelog.replication.paxos.state import NOP, Kind, Slot, Value
from tidelog.transport.peer.frames import BadFrame, MessageCodec

CODEC = MessageCodec(PEER_MESSAGES, MESSAGE_ADDITIONS)
TOPIC = "0" * 32
MESSAGES: tuple[msgspec.Struct, ...] = (
    PaxosFrame(1, 2, PromiseRequest(7, 8)),
    PaxosFrame(1, 2, WriteRequest(7, 8, Value(Kind.APPEND, 7, 9, 1, b"d")), (5,), (Learned(6, NOP),)),
    PartitionFrame(TOPIC, 0, PaxosFrame(1, 2, PromiseResponse(Reply.ACCEPT, 7, 7, 3, (Slot(8, 7, NOP),)))),
    PaxosFrame(1, 2, LearnRequest(8)),
    ElectionFrame(1, 2, Heartbeat(7, 1, 8)),
    AppliedDurable(TOPIC, 0, (1,), 9),
    ReadApplied(TOPIC, 0, 9, 100),
    FetchReplicas(1, 41, "s", 0, (FollowerState(TOPIC, 0, 1, 9, 1, 9, 0, (3,)),), (), 100, 100),
    ReplicasFlushed(1, 41, (FollowerState(TOPIC, 0, 1, 9, 1, 9, 0),)),
    ForwardRead(Addressed("t", TOPIC, 0, 1, 50), 9, 100, 1_000),
    RecoverQuery(TOPIC, 0, (RequestedBatch(9, 1, b""),)),
    BrokerHeartbeat(1, 41, 50),
    MetadataApplied(1, 41, 50),
    AlterPartition(1, 41, (IsrAsked(TOPIC, 0, 1, 1, (IsrMember(1, 41),)),)),
)


def replaced(whole: Any, number: int) -> Any:
    """Yields a copy for each number in a decoded message, with another one in its place."""
    if isinstance(whole, int) and not isinstance(whole, bool):
        yield number
    elif isinstance(whole, dict):
        for name, part in whole.items():
            if name == "kind":  # of a value, one of a few
                continue
            yield from ({**whole, name: other} for other in replaced(part, number))
    elif isinstance(whole, list):
        for at, part in enumerate(whole):
            yield from ([*whole[:at], other, *whole[at + 1 :]] for other in replaced(part, number))


@pytest.mark.parametrize("number", [2**63, 2**64 - 1])
@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_number_over_64_signed_bits_is_refused_wherever_it_stands(message: msgspec.Struct, number: int) -> None:
    whole = msgspec.msgpack.decode(CODEC.encode(message))
    mutants = list(replaced(whole, number))
    assert mutants
    for mutant in mutants:
        with pytest.raises(BadFrame):
            CODEC.message(memoryview(msgspec.msgpack.encode(mutant)))


@pytest.mark.parametrize(
    "message",
    [message for message in MESSAGES if not isinstance(message, ForwardRead)],
    ids=lambda message: type(message).__name__,
)
def test_a_negative_number_is_refused_where_there_can_be_none(message: msgspec.Struct) -> None:
    whole = msgspec.msgpack.decode(CODEC.encode(message))
    for mutant in replaced(whole, -2):
        with pytest.raises(BadFrame):
            CODEC.message(memoryview(msgspec.msgpack.encode(mutant)))


@pytest.mark.parametrize(
    "topic_id", ["", "x" * 32, "0" * 32, "a" * 31, "A" * 32, "../../../../../../../../../../etc", f"{'a' * 32}\n"]
)
def test_a_topic_id_that_is_none_names_no_directory_of_any_broker(topic_id: str) -> None:
    for command in (CreateTopic(NewTopic("t"), topic_id), CreateOffsetsTopic(topic_id)):
        with pytest.raises(BadFrame):
            CODEC.message(memoryview(CODEC.encode(command)))
    CODEC.message(memoryview(CODEC.encode(CreateTopic(NewTopic("t"), f"{1:032x}"))))


@pytest.mark.parametrize(
    "field", ["incarnation", "storage", "peer_host", "rack", "cluster_id", "lost_storage", "listeners"]
)
def test_what_all_brokers_keep_of_one_is_bounded(field: str) -> None:
    command = RegisterBroker(1, "process", "disk", {HTTP: Endpoint("localhost", 8082)}, "localhost", 9192)
    CODEC.message(memoryview(CODEC.encode(command)))
    large = dict.fromkeys(map(str, range(65)), Endpoint("h", 1)) if field == "listeners" else "x" * 1_025
    with pytest.raises(BadFrame):
        CODEC.message(memoryview(CODEC.encode(structs.replace(command, **{field: large}))))


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_the_largest_number_passes_and_what_acts_on_it_judges_it(message: msgspec.Struct) -> None:
    whole = msgspec.msgpack.decode(CODEC.encode(message))
    for mutant in replaced(whole, 2**63 - 1):
        CODEC.message(memoryview(msgspec.msgpack.encode(mutant)))
