"""Three brokers that have a secret, and strangers who speak their protocol, but do not know it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable, Iterator
from functools import partial

import msgspec
import pytest

from tests.e2e.asking import JSON_RECORDS, Asked, ask, controller_of, until
from tests.e2e.asking import Answer as Reply
from tests.e2e.test_cluster_watching import metrics
from tests.e2e.test_peer_port import peer_port
from tidelog.adapters.system import SystemClock, SystemEntropy
from tidelog.adapters.tcp_network import TcpNetwork
from tidelog.broker.consensus.messages import DescribeQuorum, PaxosFrame
from tidelog.broker.isr.replica_messages import FetchReplicas, ReplicasFlushed
from tidelog.broker.peer_service import MESSAGE_ADDITIONS, PEER_MESSAGES
from tidelog.controller.commands import CreateTopic, NewTopic, RegisterBroker, RemoveBroker
from tidelog.model.cluster import HTTP, Endpoint
from tidelog.model.levels import SPOKEN_LEVELS
from tidelog.replication.paxos.messages import PromiseRequest
from tidelog.testing import LocalCluster
from tidelog.testing.commands import HOST
from tidelog.transport.peer import Answer, ClusterSecret, Hello, PeerNode, PeerRefused
from tidelog.transport.peer.frames import Kind, MessageCodec, pack
from tidelog.transport.peer.proof import Challenge, Role

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

HUGE = 2**62
GUESS = ClusterSecret(b"correct horse battery staple")
CODEC = MessageCodec(PEER_MESSAGES, MESSAGE_ADDITIONS)
EVIL = Endpoint("127.0.0.1", 1)
TIMEOUT_S = 10.0

MESSAGES: dict[str, msgspec.Struct] = {
    "a promise that no other number can follow": PaxosFrame(3, 1, PromiseRequest(HUGE, 0)),
    "a fetch in the name of a follower": FetchReplicas(3, HUGE, "mine", 0, (), (), 0, 1 << 20),
    "a follower's word that all is on its disk": ReplicasFlushed(3, HUGE, ()),
    "a registration": RegisterBroker(3, "stranger", "disk", {HTTP: EVIL}, EVIL.host, EVIL.port),
    "a new topic": CreateTopic(NewTopic("stolen", 1, 1), "f" * 32),
    "a removal": RemoveBroker(2),
    "a question": DescribeQuorum(),
}


class Nobody:
    """A stranger answers nothing."""

    async def handle(self, caller: Hello, message: msgspec.Struct, payload: memoryview) -> Answer:
        raise AssertionError("brokers ask nothing of strangers")

    def notified(self, caller: Hello, message: msgspec.Struct, payload: memoryview) -> None:
        raise AssertionError("brokers tell strangers nothing")


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=3, secret=True, start_timeout_s=90) as cluster:
        yield cluster


def node_3(cluster: LocalCluster) -> Hello:
    """How a stranger greets who says that it is broker 3, in a life long after that of the real one."""
    level = ask(Asked(cluster, 1).v3).body["feature_level"]
    return Hello(3, "stranger", cluster.cluster_id, 2**40, levels=SPOKEN_LEVELS, cluster_level=level)


def unproved(cluster: LocalCluster, node_id: int) -> int:
    """How many connections a broker has refused for want of a proof."""
    return int(metrics(cluster.broker(node_id).url)["tidelog_peer_unproved_total"])


def answered(work: Callable[[], Reply]) -> Reply:
    """Asks until a broker answers for good: one that was not given the processor for a while is not ready, or leads
    nothing, for another while."""
    answers: list[Reply] = []

    def is_answered() -> bool:
        answers.append(work())
        return answers[-1].status < 500

    until(is_answered)
    return answers[-1]


def live(asked: Asked) -> dict[int, str]:
    """Returns which brokers are live, and where."""
    found = answered(lambda: ask(f"{asked.v3}/brokers")).body["data"]
    return {one["broker_id"]: f"http://{one['host']}:{one['port']}" for one in found if not one["is_fenced"]}


def create(asked: Asked, topic: str) -> None:
    """Creates a topic with three replicas; 400 says that one attempt before has done it after all."""
    assert answered(lambda: asked.create(topic, partitions=1, replicas=3)).status in (201, 400)


def produce(asked: Asked, topic: str, value: str) -> None:
    assert answered(lambda: asked.produce(topic, 0, value)).status == 200


def is_untouched(cluster: LocalCluster) -> None:
    """All three are live in their own lives, nothing was decided that nobody asked for, and deciding goes on."""
    asked = Asked(cluster, 1)
    addresses = {node_id: cluster.broker(node_id).url for node_id in cluster.node_ids}
    until(lambda: live(asked) == addresses)
    topics = answered(lambda: ask(f"{asked.url}/topics")).body
    assert "stolen" not in topics
    create(asked, topic := f"topic-{len(topics):03}")
    produce(asked, topic, "a")


def test_a_cluster_with_a_secret_is_a_cluster_as_any(cluster: LocalCluster) -> None:
    asked = Asked(cluster, 1)
    create(asked, "copied")
    produce(asked, "copied", "before")
    victim = next(node for node in cluster.node_ids if node != controller_of(cluster))
    cluster.kill(victim)
    produce(Asked(cluster, next(node for node in cluster.node_ids if node != victim)), "copied", "meanwhile")
    cluster.restart(victim)
    until(lambda: sorted(live(Asked(cluster, victim))) == cluster.node_ids)
    url = f"{cluster.broker(victim).url}/topics/copied/partitions/0/records?offset=0"
    records = answered(lambda: ask(url, media=JSON_RECORDS)).body
    assert {record["value"] for record in records} == {"before", "meanwhile"}
    assert [unproved(cluster, node) for node in cluster.node_ids] == [0, 0, 0]


@pytest.mark.parametrize("secret", [None, GUESS], ids=["without a secret", "with another one"])
def test_a_stranger_who_keeps_to_the_protocol_asks_in_vain(cluster: LocalCluster, secret: ClusterSecret | None) -> None:
    hello = node_3(cluster)

    async def ask_all(message: msgspec.Struct) -> None:
        parts = (PEER_MESSAGES, Nobody(), SystemClock(), SystemEntropy())
        peers = PeerNode(TcpNetwork(), lambda: hello, *parts, additions=MESSAGE_ADDITIONS, secret=secret)
        for node_id in (1, 2):
            with pytest.raises(PeerRefused, match="must name a file with the same content on all of them"):
                await peers.request_at(HOST, peer_port(cluster, node_id), message, deadline_s=TIMEOUT_S)
        await peers.close()

    before = unproved(cluster, 1)
    for message in MESSAGES.values():
        asyncio.run(ask_all(message))
    assert unproved(cluster, 1) == before + len(MESSAGES)
    is_untouched(cluster)


@pytest.mark.parametrize("begins_with", ["hello", "challenge", "challenge and a guess"])
def test_a_stranger_who_does_not_wait_for_answers_is_not_heard_either(cluster: LocalCluster, begins_with: str) -> None:
    hello, challenge = CODEC.encode_hello(node_3(cluster)), CODEC.encode(Challenge(3, bytes(32)))
    proof = GUESS.proof(Role.CALLER, [challenge, challenge, hello])
    frames = [pack(Kind.HELLO, hello, [proof] if "guess" in begins_with else [])]
    if "challenge" in begins_with:
        frames.insert(0, pack(Kind.CHALLENGE, challenge))
    for number, message in enumerate(MESSAGES.values(), start=1):
        header = CODEC.encode(message)
        frames += [pack(Kind.NOTIFY, header), pack(Kind.REQUEST, header, correlation=number, timeout_ms=10_000)]
    sent = b"".join(struct.pack("!I", len(frame)) + frame for frame in map(b"".join, frames))
    for node_id in cluster.node_ids:
        with socket.create_connection((HOST, peer_port(cluster, node_id)), TIMEOUT_S) as stranger:
            stranger.sendall(sent)
            with contextlib.suppress(ConnectionError):
                heard = b"".join(iter(partial(stranger.recv, 65_536), b""))
                assert cluster.cluster_id.encode() not in heard
    is_untouched(cluster)


def test_elections_go_on_after_all_that(cluster: LocalCluster) -> None:
    first = controller_of(cluster)
    cluster.kill(first)
    other = Asked(cluster, next(node for node in cluster.node_ids if node != first))
    until(lambda: other.controller not in (0, first))
    cluster.restart(first)
    is_untouched(cluster)
    assert not any("Traceback" in cluster.broker(node).output for node in cluster.node_ids)


def says_that_secrets_differ(cluster: LocalCluster, node_id: int) -> bool:
    return "has another cluster secret than" in cluster.broker(node_id).output


def test_a_broker_with_another_secret_does_not_join_and_says_why(cluster: LocalCluster) -> None:
    secret = cluster.secret_file.read_text()
    other = cluster.secret_file.with_name("other.secret")
    other.touch(mode=0o600)
    other.write_text("another secret of another cluster")
    cluster.stop(3)
    cluster.broker(3).change_settings({"cluster.secret.file": str(other)})
    cluster.broker(3).begin()
    for node_id in cluster.node_ids:
        until(partial(says_that_secrets_differ, cluster, node_id))
    cluster.broker(3).kill()
    cluster.restart(3, settings={"cluster.secret.file": str(cluster.secret_file)})
    is_untouched(cluster)
    shown = [cluster.broker(node).output for node in cluster.node_ids]
    shown += [ask(f"{Asked(cluster, 1).v3}/brokers/1/configs").body, ask(Asked(cluster, 1).v3).body]
    assert not any(secret in str(text) for text in shown)


def test_a_new_broker_joins_with_the_secret(cluster: LocalCluster) -> None:
    node_id = cluster.add()
    until(lambda: sorted(live(Asked(cluster, 1))) == [1, 2, 3, node_id])
