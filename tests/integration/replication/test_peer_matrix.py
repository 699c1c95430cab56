"""Every message of brokers, sent by everybody: by those without the secret, with another one, with a client's
certificate, by a broker that was removed, a process that never registered, a broker that speaks for another, and one
that speaks for itself. The sister of the matrix of routes: a new message without a line here fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec import structs

from tests.integration.replication.three_brokers import ThreeBrokers, three_brokers, until
from tests.unit.broker.samples import sample
from tidelog.broker.broker import Broker
from tidelog.broker.consensus.messages import ElectionFrame, PaxosFrame
from tidelog.broker.peer_answers import ANSWERED_BY, NOTICED
from tidelog.broker.peer_claims import CLAIMS, OPEN
from tidelog.broker.peer_service import MESSAGE_ADDITIONS, PEER_MESSAGES
from tidelog.controller.command_table import WIRE_COMMANDS
from tidelog.controller.commands import (
    ControllerElsewhere,
    CreateOffsetsTopic,
    CreateTopic,
    RegisterBroker,
    RemoveBroker,
)
from tidelog.model.cluster import BrokerInfo
from tidelog.model.errors import BrokerNotRegistered, ForeignSender, InvalidRequest, TidelogError
from tidelog.model.ids import NodeId
from tidelog.model.levels import SPOKEN_LEVELS
from tidelog.replication.election_events import LeaseReleased
from tidelog.replication.paxos.messages import RecoverRequest
from tidelog.replication.paxos.numbers import make_number
from tidelog.sim.kit.environment import SimClock, SimEntropy
from tidelog.sim.kit.loop import SimLoop, run
from tidelog.sim.kit.network_pipe import SimConnection
from tidelog.sim.kit.patching import patched
from tidelog.sim.kit.seeds import stream
from tidelog.transport.peer import Answer, Hello, PeerNode, PeerRefused
from tidelog.transport.peer.proof import ClusterSecret
from tidelog.transport.peer.statistics import SENDER, UNREADABLE, UNREGISTERED

SECRET: Final = ClusterSecret(b"of all brokers of this cluster")
GIVEN: Final[dict[type[msgspec.Struct], dict[str, object]]] = {
    RemoveBroker: {"node_id": 77},
    CreateTopic: {"topic_id": "b" * 32},
    CreateOffsetsTopic: {"topic_id": "c" * 32},
}
"""The smallest of these would take a broker out, or be about the topic that the others are about."""
RIGHT: Final[dict[str, str | int]] = {
    "DescribeQuorum": "QuorumDescribed",
    "DescribeSnapshots": "SnapshotsDescribed",
    "FetchSnapshot": 40400,
    "CreateTopic": "TopicPlaced",
    "AddPartitions": 40002,
    "DeleteTopic": "Done",
    "AlterTopicConfigs": 40401,
    "AlterQuotas": 40002,
    "RemoveBroker": 40400,
    "RaiseLevel": "LevelAnswered",
    "ElectLeaders": "LeadersElected",
    "AlterReassignments": "Done",
    "AcceptLoss": 40401,
    "RegroupPartition": 40002,
    "StoreUser": 40400,
    "RemoveUser": "Done",
    "StoreToken": 40002,
    "RemoveTokens": "Done",
    "AddAcls": "Done",
    "RemoveAcls": "Done",
    "CreateOffsetsTopic": "TopicPlaced",
    "AllocateProducerIds": "ProducerIdBlock",
    "RegisterBroker": "BrokerAdmitted",
    "BrokerHeartbeat": "HeartbeatAnswered",
    "MetadataApplied": "Done",
    "ReportSilence": "Done",
    "ReportRemoved": "Done",
    "AlterPartition": "PartitionsAltered",
    "HandOver": "LeadersElected",
    "ReportUnfitReplicas": "Done",
    "ReportLostReplicas": "Done",
    "AlterMembers": "MembersAltered",
    "ReportLostVotes": "Done",
    "ReportPaxosLeader": "Done",
    "ForwardProduce": 40401,
    "ForwardDeletion": 40401,
    "ForwardRead": 40401,
    "ForwardDataWait": 40401,
    "ForwardChangeWait": "NoneType",
    "ForwardOffsets": "OffsetsFound",
    "ForwardFingerprints": "Fingerprints",
    "FetchReplicas": "ReplicasFetched",
    "RecoverQuery": "RecoverReply",
    "VerifyQuery": 40400,
    "DamageQuery": 40400,
    "ReplicaStateQuery": 40400,
    "VerifyFilesQuery": "VerifyFilesReply",
    "ReadApplied": 40400,
    "ReadValue": 40002,
    "ForwardGroup": 40401,
    "OpenInstance": 50309,
    "CloseInstance": 50309,
    "Subscribe": 50309,
    "Assign": 50309,
    "ShowReading": 50309,
    "Seek": 50309,
    "SeekToEdge": 50309,
    "ReadRecords": 50309,
    "CommitPositions": 50309,
    "FetchCommitted": 50309,
}
"""A registered broker that sends the smallest message of each kind in its own name gets these: the kind of the answer,
or the code of an error."""
NEWCOMERS: Final[dict[str, str | int]] = {
    "DescribeQuorum": "QuorumDescribed",
    "DescribeSnapshots": "SnapshotsDescribed",
    "FetchSnapshot": 40400,
    "RegisterBroker": 40920,
    "BrokerHeartbeat": 40910,
}
"""A process that the metadata do not name, or not any more, gets these to what it may ask."""


class Deaf:
    """A `PeerHandler` of nobody who is asked anything."""

    async def handle(self, caller: Hello, message: msgspec.Struct, payload: memoryview) -> Answer:
        return Answer()

    def notified(self, caller: Hello, message: msgspec.Struct, payload: memoryview) -> None:
        """Hears nothing."""


@dataclass
class Sender:
    """A sender of messages to one broker, and what that broker counts of them."""

    peers: PeerNode
    to: Broker
    hello: Hello
    info: BrokerInfo
    """The node that it claims to be, where a message has a field for that."""

    async def ask(self, message: msgspec.Struct) -> tuple[str | int, dict[str, int]]:
        """Returns the kind of the answer, or the code of the error; and how often what was refused."""
        before = dict(self.to._peers.statistics.refused)
        told: str | int
        try:
            answer = await self.peers.request_at(f"10.0.0.{self.to.node_id}", 9192, message, deadline_s=60)
            told = type(answer.message).__name__
        except TidelogError as error:
            told = error.code
        return told, self._refused_since(before)

    async def tell(self, message: msgspec.Struct) -> dict[str, int]:
        """Returns how often what was refused of a notification."""
        before = dict(self.to._peers.statistics.refused)
        end = await self.peers.connect(f"10.0.0.{self.to.node_id}", 9192, deadline_s=60)
        assert end.notify(message, ())
        await asyncio.sleep(0.01)
        end.close()
        return self._refused_since(before)

    def _refused_since(self, before: dict[str, int]) -> dict[str, int]:
        after = self.to._peers.statistics.refused
        return {reason: after[reason] - before[reason] for reason in after if after[reason] != before[reason]}

    def _voter_id(self, node: int) -> int:
        """Returns its id in the voter set; one that no set has named, if it has none."""
        voters = {voter.node_id: voter.voter_id for voter in self.to.image.voters}
        return voters.get(node, 90 + node)

    def message(self, kind: type[msgspec.Struct], node: int | None = None) -> Any:
        """Returns a message in a node's name, its own by default."""
        claim, fields = CLAIMS[kind], dict(GIVEN.get(kind, {}))
        if claim.node:
            fields[claim.node] = self.hello.node_id if node is None else node
        if claim.epoch:
            fields[claim.epoch] = self.info.epoch
        if kind in (PaxosFrame, ElectionFrame):
            engine_id = self._voter_id(self.hello.node_id if node is None else node)
            said = RecoverRequest() if kind is PaxosFrame else LeaseReleased(make_number(1, engine_id))
            fields |= {"sender": engine_id, "message": said}
        if kind is RegisterBroker:
            fields["incarnation"] = self.hello.incarnation
        if (
            kind is RegisterBroker
            and self.info.node_id in self.to.image.brokers
            and self.hello.node_id == self.info.node_id
        ):
            fields |= {"storage": self.info.storage, "levels": SPOKEN_LEVELS, "listeners": dict(self.info.listeners)}
            fields |= {"peer_host": self.info.peer_host, "peer_port": self.info.peer_port}
        return sample(kind, **fields)


@asynccontextmanager
async def somebody(
    cluster: ThreeBrokers,
    to: Broker,
    address: str,
    hello: Hello,
    info: BrokerInfo,
    secret: ClusterSecret | None = SECRET,
) -> AsyncIterator[Sender]:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    peers = PeerNode(
        cluster.network.host(address),
        lambda: hello,
        PEER_MESSAGES,
        Deaf(),
        SimClock(loop),
        SimEntropy(stream(0, address)),
        additions=MESSAGE_ADDITIONS,
        secret=secret,
    )
    try:
        yield Sender(peers, to, hello, info)
    finally:
        await peers.close()


def in_cluster(story: Callable[[ThreeBrokers, Broker, Broker, BrokerInfo], Any]) -> None:
    """Runs a story with the controller, another broker, and that one as the metadata have it."""

    async def scenario() -> None:
        async with three_brokers(SECRET) as cluster:
            await until(lambda: any(one.is_controller for one in cluster.brokers.values()))
            controller = next(one for one in cluster.brokers.values() if one.is_controller)
            other = next(one for one in cluster.brokers.values() if not one.is_controller)
            await story(cluster, controller, other, controller.image.brokers[other.node_id])

    run(scenario)


def asked_of(kinds: Any = PEER_MESSAGES) -> list[type[msgspec.Struct]]:
    return [kind for kind in kinds if kind in ANSWERED_BY]


def test_a_registered_broker_gets_its_answers_and_none_in_anothers_name() -> None:
    async def story(cluster: ThreeBrokers, controller: Broker, other: Broker, info: BrokerInfo) -> None:
        told: dict[str, str | int] = {}
        async with somebody(cluster, controller, "10.0.0.90", other._introduction.hello, info) as right:
            for kind in asked_of():
                if CLAIMS[kind].node:
                    answer = await right.ask(right.message(kind, controller.node_id))
                    assert answer == (ForeignSender.code, {SENDER: 1}), kind
                told[kind.__name__], refused = await right.ask(right.message(kind))
                assert refused == {}, kind
            for kind in NOTICED:
                if CLAIMS[kind].node or kind in (PaxosFrame, ElectionFrame):
                    assert await right.tell(right.message(kind, controller.node_id)) == {SENDER: 1}, kind
                assert await right.tell(right.message(kind)) == {}, kind
        assert told == RIGHT
        assert len(controller.image.brokers) == 3 and controller.is_controller

    in_cluster(story)


def test_what_is_no_request_or_no_notification_is_neither_whoever_sends_it() -> None:
    async def story(cluster: ThreeBrokers, controller: Broker, other: Broker, info: BrokerInfo) -> None:
        async with somebody(cluster, controller, "10.0.0.90", other._introduction.hello, info) as right:
            for kind in PEER_MESSAGES:
                if kind not in ANSWERED_BY:
                    assert await right.ask(right.message(kind)) == (InvalidRequest.code, {UNREADABLE: 1}), kind
                if kind not in NOTICED:
                    assert await right.tell(right.message(kind)) == {UNREADABLE: 1}, kind

    in_cluster(story)


def test_a_process_that_is_not_registered_may_found_join_vote_and_describe() -> None:
    async def story(cluster: ThreeBrokers, controller: Broker, other: Broker, info: BrokerInfo) -> None:
        hello = structs.replace(other._introduction.hello, node_id=9, incarnation="nobody", broker_epoch=-1)
        async with somebody(cluster, controller, "10.0.0.91", hello, info) as newcomer:
            told = await _told_newcomer(newcomer)
        assert told == NEWCOMERS
        async with somebody(cluster, other, "10.0.0.92", hello, info) as newcomer:
            for kind in asked_of(WIRE_COMMANDS):
                assert await newcomer.ask(newcomer.message(kind)) == (ControllerElsewhere.__name__, {}), kind

    in_cluster(story)


async def _told_newcomer(newcomer: Sender) -> dict[str, str | int]:
    """Returns what it is told where it may ask; all else is to be refused."""
    told: dict[str, str | int] = {}
    for kind in asked_of():
        answer, refused = await newcomer.ask(newcomer.message(kind))
        if kind in OPEN:
            assert refused == {}, kind
            told[kind.__name__] = answer
        else:
            assert (answer, refused) == (BrokerNotRegistered.code, {UNREGISTERED: 1}), kind
    for kind in NOTICED:
        refused = await newcomer.tell(newcomer.message(kind))
        assert refused == ({} if kind in OPEN else {UNREGISTERED: 1}), kind
    return told


def test_a_broker_that_was_removed_is_a_stranger() -> None:
    async def story(cluster: ThreeBrokers, controller: Broker, other: Broker, info: BrokerInfo) -> None:
        hello = other._introduction.hello
        await cluster.stop(other.node_id)
        await until(lambda: not controller.image.is_live(other.node_id))
        await controller.admin.remove_broker(NodeId(other.node_id))
        await until(lambda: len(controller.image.voters) == 2)
        await cluster.settle()  # taking a voter out may end a term
        controller = next(one for one in cluster.brokers.values() if one.is_controller)
        async with somebody(cluster, controller, "10.0.0.93", hello, info) as removed:
            assert await _told_newcomer(removed) == NEWCOMERS

    in_cluster(story)


@contextmanager
def with_names(names: dict[str, str]) -> Iterator[None]:
    """Connections have certificates: a broker's own by its address, or as is said here."""

    def name(address: str) -> str:
        return names.get(address, f"broker://sim/{address.rpartition('.')[2]}")

    with (
        patched(SimConnection, "own_name", property(lambda end: name(end.host.address))),
        patched(SimConnection, "peer_name", property(lambda end: name(end.remote.rpartition(":")[0]))),
    ):
        yield


def test_who_does_not_prove_to_be_a_broker_gets_nothing_whatever_it_asks() -> None:
    async def story(cluster: ThreeBrokers, controller: Broker, other: Broker, info: BrokerInfo) -> None:
        statistics, asked = controller._peers.statistics, asked_of()
        stranger = structs.replace(other._introduction.hello, node_id=94, incarnation="stranger")
        for address, secret, unproved in (
            ("10.0.0.94", None, len(asked)),
            ("10.0.0.94", ClusterSecret(b"of another cluster's brokers"), len(asked)),
            ("10.0.0.95", SECRET, 0),
        ):
            before = (statistics.unproved, statistics.refusals, statistics.accepts, statistics.served)
            async with somebody(cluster, controller, address, stranger, info, secret) as sender:
                for kind in asked:
                    assert await sender.ask(sender.message(kind)) == (PeerRefused.code, {}), kind
            await asyncio.sleep(0.1)
            after = (statistics.unproved, statistics.refusals, statistics.accepts, statistics.served)
            assert [now - then for now, then in zip(after, before, strict=True)][:2] == [unproved, len(asked)]

    with with_names({"10.0.0.95": ""}):
        in_cluster(story)
