"""Three whole brokers, and somebody who says on their network what no correct broker says: a process of no cluster,
or a broker that is registered and speaks for another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest

from tests.integration.replication.three_brokers import ThreeBrokers, three_brokers, until
from tidelog.broker.broker import NewTopic
from tidelog.broker.consensus.messages import DescribeQuorum, ElectionFrame, PaxosFrame, QuorumDescribed
from tidelog.broker.http.cluster_metrics import ClusterMetrics
from tidelog.broker.isr.replica_messages import FetchReplicas, FollowerState, ReplicasFlushed
from tidelog.broker.peer_service import MESSAGE_ADDITIONS, PEER_MESSAGES
from tidelog.broker.routing.forwarding_messages import Addressed, ForwardDeletion
from tidelog.controller.commands import BrokerHeartbeat, DeleteTopic
from tidelog.model.errors import BrokerNotRegistered, ForeignSender, InvalidRequest, NotAuthorized, TidelogError
from tidelog.model.ports import Buffer
from tidelog.replication.election_events import LeaseReleased
from tidelog.replication.paxos.messages import PromiseRequest
from tidelog.replication.paxos.numbers import make_number
from tidelog.sim.kit.environment import SimClock, SimEntropy
from tidelog.sim.kit.loop import SimLoop, run
from tidelog.sim.kit.seeds import stream
from tidelog.transport.peer import Answer, Hello, Lane, PeerNode
from tidelog.transport.peer.statistics import NUMBER, REASONS, SENDER, UNREADABLE, UNREGISTERED

HUGE = 2**64 - 1
METRIC = "tidelog_peer_messages_refused"


class Deaf:
    """A `PeerHandler` of nobody who is asked anything."""

    async def handle(self, caller: Hello, message: msgspec.Struct, payload: memoryview) -> Answer:
        return Answer()

    def notified(self, caller: Hello, message: msgspec.Struct, payload: memoryview) -> None:
        """Hears nothing."""


@asynccontextmanager
async def somebody(cluster: ThreeBrokers, node: int, epoch: int = -1) -> AsyncIterator[PeerNode]:
    """A process that says that it is this node, connected to all brokers that it does not say it is."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    theirs = cluster.brokers[1]._introduction.hello
    hello = msgspec.structs.replace(theirs, node_id=node, incarnation="somebody", broker_epoch=epoch)
    peers = PeerNode(
        cluster.network.host("10.0.0.99"),
        lambda: hello,
        PEER_MESSAGES,
        Deaf(),
        SimClock(loop),
        SimEntropy(stream(0, "somebody")),
        additions=MESSAGE_ADDITIONS,
    )
    others = [other for other in cluster.brokers if other != node]
    for other in others:
        peers.know(other, f"10.0.0.{other}", 9192)
    try:
        await until(lambda: len(peers.connected) == len(others))
        yield peers
    finally:
        await peers.close()


def refused(cluster: ThreeBrokers, reason: str) -> int:
    return sum(one._peers.statistics.refused[reason] for one in cluster.brokers.values())


async def elects_and_writes(cluster: ThreeBrokers) -> None:
    """Stops the controller, and demands that another one is found, and that records are taken."""
    controller = next(node for node, one in cluster.brokers.items() if one.is_controller)
    await cluster.stop(controller)
    await until(lambda: any(one.is_controller for one in cluster.brokers.values()))
    await cluster.start(controller)
    await cluster.produce(1, b"afterwards")


def in_cluster(story: Callable[[ThreeBrokers], Awaitable[None]]) -> None:
    async def scenario() -> None:
        async with three_brokers() as cluster:
            await cluster.brokers[1].admin.create_topic(NewTopic("t", assignments={0: (1, 2, 3)}))
            await cluster.produce(1, b"before")
            await story(cluster)

    run(scenario)


@pytest.mark.parametrize("node", [9, 3], ids=["as nobody", "as one of the voters"])
@pytest.mark.parametrize("number", [HUGE, 2**63 - 1, make_number(2**34, 3)], ids=["2^64-1", "2^63-1", "2^34 rounds"])
def test_a_huge_ballot_ends_no_cluster(node: int, number: int) -> None:
    async def story(cluster: ThreeBrokers) -> None:
        voters = {voter.node_id: voter.voter_id for voter in cluster.brokers[1].image.voters}
        async with somebody(cluster, node) as peers:
            for other in peers.connected:
                for frame in (
                    PaxosFrame(voters[3], voters[other], PromiseRequest(number, 0)),
                    ElectionFrame(voters[3], voters[other], LeaseReleased(number)),
                ):
                    assert peers.notify(other, frame)
            await cluster.settle()
        assert refused(cluster, SENDER) + refused(cluster, NUMBER) + refused(cluster, UNREADABLE) >= 4
        for one in cluster.brokers.values():
            assert one._metadata._log.engine.node.replica.metadata.promised < 2**40
        await elects_and_writes(cluster)

    in_cluster(story)


def test_a_registered_broker_votes_for_itself_alone() -> None:
    async def story(cluster: ThreeBrokers) -> None:
        voters = {voter.node_id: voter.voter_id for voter in cluster.brokers[1].image.voters}
        number = make_number(1_000, voters[3])
        for target in (1, 3):
            frame = PaxosFrame(voters[3 if target == 1 else 1], voters[target], PromiseRequest(number, 0))
            cluster.brokers[2]._peers.notify(target, frame)
        await cluster.settle()
        assert refused(cluster, SENDER) == 2
        assert [one._metadata._log.routes.node_of(voters[3]) for one in cluster.brokers.values()] == [3, 3, 3]
        await elects_and_writes(cluster)

    in_cluster(story)


@pytest.mark.parametrize("by", ["a stranger", "a registered broker"])
def test_nobody_reports_a_follower_synced_but_itself(by: str) -> None:
    async def story(cluster: ThreeBrokers) -> None:
        topic_id = cluster.brokers[1].topic("t").topic_id
        cluster.cut_off(3)
        partition = cluster.brokers[1].data.replicas.partitions
        epoch = cluster.brokers[1].image.brokers[cluster.brokers[3].node_id].epoch
        leader_epoch = cluster.info().leader_epoch
        state = FollowerState(topic_id, 0, leader_epoch, 2, leader_epoch, 2, 0)
        fetch = FetchReplicas(3, epoch, "forged", 0, (state,), (), 10, 1 << 20)

        async def forge(peers: PeerNode) -> None:
            peers.notify(1, ReplicasFlushed(3, epoch, (state,)), lane=Lane.DATA)
            with pytest.raises((NotAuthorized, BrokerNotRegistered)):
                await peers.request(1, fetch, deadline_s=1, lane=Lane.DATA)

        (led,) = partition.values()
        before = led.high_watermark
        writing = asyncio.ensure_future(cluster.produce(1, b"alone"))
        await asyncio.sleep(0.05)
        if by == "a stranger":
            async with somebody(cluster, 3, 2**40) as peers:
                await forge(peers)
        else:
            await forge(cluster.brokers[2]._peers)
        assert led.high_watermark == before, "all in sync are waited for, and broker 3 has not got it"
        assert refused(cluster, SENDER) + refused(cluster, UNREGISTERED) >= 2
        cluster.network.heal()
        receipt = await writing
        assert receipt.durability == "fsynced"

    in_cluster(story)


@pytest.mark.parametrize("epoch", [2**40, 2**63 - 1, -1])
def test_a_hello_in_a_brokers_name_keeps_it_neither_out_nor_down(epoch: int) -> None:
    async def story(cluster: ThreeBrokers) -> None:
        async with somebody(cluster, 3, epoch) as peers:
            await cluster.settle()
            assert {1, 2} >= {*peers.connected}
            for one in cluster.brokers.values():
                assert not one.image.brokers[cluster.brokers[3].node_id].is_fenced
            assert {*cluster.info().isr} == {1, 2, 3}
            await cluster.stop(3)
            await cluster.start(3)
            await until(lambda: {*cluster.info().isr} == {1, 2, 3})
        await cluster.produce(3, b"afterwards")

    in_cluster(story)


def test_who_is_not_registered_may_ask_for_little() -> None:
    async def story(cluster: ThreeBrokers) -> None:
        image = cluster.brokers[1].image
        leader = image.topics["t"].partitions[0].leader_epoch
        addressed = Addressed("t", image.topics["t"].topic_id, 0, leader, image.position)
        registered = image.brokers[cluster.brokers[3].node_id]
        controller = next(node for node, one in cluster.brokers.items() if one.is_controller)
        asked: list[tuple[msgspec.Struct, type[TidelogError]]] = [
            (ForwardDeletion(addressed, 1, 1_000), BrokerNotRegistered),
            (DeleteTopic("t"), BrokerNotRegistered),
            (BrokerHeartbeat(3, registered.epoch, 0, wants_shutdown=True), NotAuthorized),
        ]
        async with somebody(cluster, 9) as peers:
            described = (await peers.request(1, DescribeQuorum(), deadline_s=1)).message
            assert isinstance(described, QuorumDescribed) and described.node_id == 1
            for message, error in asked:
                target = 1 if isinstance(message, ForwardDeletion) else controller
                with pytest.raises(error):
                    await peers.request(target, message, deadline_s=1)
        assert "t" in cluster.brokers[1].image.topics
        assert await cluster.values(1) == [b"before"]

    in_cluster(story)


def test_a_number_that_no_field_holds_is_told_to_its_sender() -> None:
    async def story(cluster: ThreeBrokers) -> None:
        payload: list[Buffer] = []
        with pytest.raises(InvalidRequest, match="cannot be understood"):
            await cluster.brokers[2]._peers.request(1, BrokerHeartbeat(2, HUGE, 0), payload, deadline_s=1)
        assert refused(cluster, UNREADABLE) == 1
        (family,) = [one for one in ClusterMetrics(cluster.brokers[1].face).collect() if one.name == METRIC]
        shown = {sample.labels["reason"]: sample.value for sample in family.samples}
        assert shown == {**dict.fromkeys(REASONS, 0), UNREADABLE: 1}
        with pytest.raises(NotAuthorized):
            await cluster.brokers[2]._peers.request(1, BrokerHeartbeat(3, 0, 0), deadline_s=1)
        assert ForeignSender.code == NotAuthorized.code

    in_cluster(story)
