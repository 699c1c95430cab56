"""Attacks D1 to D8 of docs/testing.md on real brokers with certificates: nobody gets in, and who is in gets no further.

The attackers speak the shipped protocol, so nothing but who they are is wrong with them: a stranger without a
certificate, one of another CA, a client with the certificate of a client, a broker that was removed, and a registered
broker that speaks for another. After each attack all that was acknowledged is read, nothing is there that nobody asked
for, all brokers are the processes they were, and records are taken by all three.
"""

from __future__ import annotations

import asyncio
import http.client
import os
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import pytest

from tests.e2e.asking import until
from tests.e2e.test_peer_port import peer_port
from tidelog.adapters.system import SystemClock, SystemEntropy
from tidelog.adapters.tcp_network import TcpNetwork, TlsNetwork
from tidelog.adapters.tls_store import TlsStore
from tidelog.admin import AdminClient
from tidelog.broker.consensus.messages import DescribeQuorum, ElectionFrame, PaxosFrame
from tidelog.broker.isr.replica_messages import FetchReplicas, FollowerState, ReplicasFlushed
from tidelog.broker.peer_service import MESSAGE_ADDITIONS, PEER_MESSAGES
from tidelog.broker.routing.forwarding_messages import Addressed, ForwardDeletion
from tidelog.config.schema import BrokerConfig
from tidelog.consumer import Consumer
from tidelog.controller.commands import (
    BrokerHeartbeat,
    ControllerElsewhere,
    CreateTopic,
    DeleteTopic,
    NewTopic,
    RegisterBroker,
    RemoveBroker,
)
from tidelog.model.cluster import HTTP, Endpoint
from tidelog.model.errors import TidelogError
from tidelog.model.levels import SPOKEN_LEVELS
from tidelog.model.ports import Network
from tidelog.producer import Producer
from tidelog.replication.election_events import LeaseReleased
from tidelog.replication.paxos.messages import PromiseRequest
from tidelog.testing import LocalCluster
from tidelog.testing.certificates import ClusterCertificates
from tidelog.testing.commands import HOST
from tidelog.transport.peer import Answer, Hello, PeerNode, PeerRefused, PeerUnreachable
from tidelog.transport.peer.calling import CallingEnd
from tidelog.transport.peer.frames import Kind, MessageCodec, pack, unpack

pytestmark = [pytest.mark.process, pytest.mark.timeout(240)]

HUGE = 2**62
TOPIC = "kept"
T = TypeVar("T")
PATIENCE_S = 20.0
MIB = 1 << 20
CODEC = MessageCodec(PEER_MESSAGES, MESSAGE_ADDITIONS)
VICTIM = 2
"""The broker that attackers say they are."""
IMPOSTOR = 3
"""The broker whose file the attacker has who speaks for another."""


class Deaf:
    """A `PeerHandler` that is asked nothing, and hears nothing."""

    async def handle(self, caller: Hello, message: msgspec.Struct, payload: memoryview) -> Answer:
        raise AssertionError("brokers ask nothing of attackers")

    def notified(self, caller: Hello, message: msgspec.Struct, payload: memoryview) -> None:
        """Brokers may tell whoever is connected what they know."""


class Scene(NamedTuple):
    """A cluster under attack, the records that were acknowledged, and the keys of a client who is nobody special."""

    cluster: LocalCluster
    acknowledged: list[bytes]
    reader: Path

    @property
    def certificates(self) -> ClusterCertificates:
        assert self.cluster.certificates is not None
        return self.cluster.certificates

    def admin(self) -> AdminClient:
        return AdminClient(self.cluster.bootstrap, **self.cluster.security)

    def store(self, made: ClusterCertificates, node_id: int) -> TlsStore:
        return TlsStore(BrokerConfig.model_validate({**made.settings(node_id), "node.id": str(node_id)}))


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    with LocalCluster(3, tls=True, start_timeout_s=120) as cluster:
        assert cluster.certificates is not None
        made = Scene(cluster, [], cluster.certificates.client("reader"))
        run(lambda: begin(made))
        yield made


async def begin(scene: Scene) -> None:
    async with scene.admin() as admin:
        await admin.create_topic(TOPIC, replication_factor=3)
    await write(scene)


async def write(scene: Scene) -> None:
    """Appends a record that all three have before it is acknowledged."""
    value = b"record %d" % len(scene.acknowledged)
    async with Producer(scene.cluster.bootstrap, **scene.cluster.security) as producer:
        await asyncio.wait_for(producer.send_and_wait(TOPIC, value, partition=0), 2 * PATIENCE_S)
    scene.acknowledged.append(value)


async def stored(scene: Scene) -> list[bytes | None]:
    reader = Consumer(
        TOPIC, bootstrap_servers=scene.cluster.bootstrap, auto_offset_reset="earliest", **scene.cluster.security
    )
    async with reader as consumer:
        return [
            (await asyncio.wait_for(anext(aiter(consumer)), PATIENCE_S)).value for _ in range(len(scene.acknowledged))
        ]


async def is_untouched(scene: Scene) -> None:
    """Demands that nothing was lost, changed or added, and that the cluster serves."""
    cluster = scene.cluster
    async with scene.admin() as admin, asyncio.timeout(3 * PATIENCE_S):
        addresses = {node: cluster.broker(node).url for node in cluster.node_ids}
        while await known(admin) != addresses:
            await asyncio.sleep(0.1)
        assert await admin.list_topics() == [TOPIC]
        while sorted((await admin.describe_topics([TOPIC]))[0].partitions[0].isr) != [1, 2, 3]:
            await asyncio.sleep(0.1)
    await write(scene)
    assert await stored(scene) == scene.acknowledged
    assert not any("Traceback" in cluster.broker(node).output for node in cluster.node_ids)


async def known(admin: AdminClient) -> dict[int, str]:
    brokers = (await admin.describe_cluster()).brokers
    return {one.broker_id: "fenced" if one.is_fenced else f"https://{one.host}:{one.port}" for one in brokers}


# -- attackers -------------------------------------------------------------------------------------------------------


def run(attack: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Runs it, and lets its connections end: with TLS that takes an answer of the other side."""

    async def attack_and_leave() -> T:
        before = sockets()
        found = await attack()
        async with asyncio.timeout(PATIENCE_S):
            while sockets() > before:
                await asyncio.sleep(0.01)
        return found

    return asyncio.run(attack_and_leave())


def sockets() -> int:
    """How many this process has open."""
    found = 0
    for path in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found += os.readlink(path).startswith("socket:")
    return found


@asynccontextmanager
async def attacker(network: Network, hello: Hello) -> AsyncIterator[PeerNode]:
    parts = (PEER_MESSAGES, Deaf(), SystemClock(), SystemEntropy())
    peers = PeerNode(network, lambda: hello, *parts, additions=MESSAGE_ADDITIONS)
    try:
        yield peers
    finally:
        await peers.close()


async def over(end: CallingEnd) -> None:
    end.close()
    async with asyncio.timeout(PATIENCE_S):
        await end.wait_lost()


async def hello_of(scene: Scene, node_id: int) -> Hello:
    """Returns what a broker says of itself to somebody with another broker's certificate."""
    other = 1 if node_id != 1 else 2
    mine = Hello(other, "curious", scene.cluster.cluster_id, levels=SPOKEN_LEVELS)
    async with attacker(TlsNetwork(scene.store(scene.certificates, other)), mine) as peers:
        end = await peers.connect(HOST, peer_port(scene.cluster, node_id), deadline_s=PATIENCE_S)
        try:
            await end.request(DescribeQuorum(), (), PATIENCE_S)
            assert end.theirs is not None
            return end.theirs
        finally:
            await over(end)


async def messages(scene: Scene, sender: int) -> dict[str, msgspec.Struct]:
    """D1 to D4: what an attacker says in a broker's name."""
    async with scene.admin() as admin:
        cluster = await admin.describe_cluster()
        [topic] = await admin.describe_topics([TOPIC])
    voters = {one.broker_id: one.voter_id for one in cluster.brokers}
    epochs = {one.broker_id: one.broker_epoch for one in cluster.brokers}
    voter, other = voters[sender] or 0, voters[1] or 0
    led = topic.partitions[0]
    synced = FollowerState(topic.topic_id, 0, led.leader_epoch, HUGE, led.leader_epoch, HUGE, 0)
    epoch = epochs[sender]
    return {
        "D1: a promise that no number can follow": PaxosFrame(voter, other, PromiseRequest(HUGE, 0)),
        "D1: a promise of 2^63 - 1": PaxosFrame(voter, other, PromiseRequest(2**63 - 1, 0)),
        "D1: a promise of 2^64 - 1": PaxosFrame(voter, other, PromiseRequest(2**64 - 1, 0)),
        "D1: an end of a lease": ElectionFrame(voter, other, LeaseReleased(HUGE)),
        "D2: a fetch of a follower that has everything": FetchReplicas(sender, epoch, "x", 0, (synced,), (), 0, MIB),
        "D2: word that all is on its disk": ReplicasFlushed(sender, epoch, (synced,)),
        "D3: a heartbeat of another life": BrokerHeartbeat(sender, epoch + 2**40, 0),
        "D3: a heartbeat that says farewell": BrokerHeartbeat(sender, epoch, 0, wants_shutdown=True),
        "D4: a registration": RegisterBroker(sender, "stranger", "disk", {HTTP: Endpoint(HOST, 1)}, HOST, 1),
    }


def without_a_name(scene: Scene, topic_id: str, leader_epoch: int) -> dict[str, msgspec.Struct]:
    """D4: what brokers ask for others, which only members may."""
    addressed = Addressed(TOPIC, topic_id, 0, leader_epoch, 0)
    return {
        "D4: deleting records": ForwardDeletion(addressed, 1, 1_000),
        "D4: a new topic": CreateTopic(NewTopic("stolen", 1, 1), "f" * 32),
        "D4: deleting a topic": DeleteTopic(TOPIC),
        "D4: removing a broker": RemoveBroker(VICTIM),
    }


async def say_all(scene: Scene, network: Network, hello: Hello, said: Mapping[str, msgspec.Struct]) -> None:
    """Asks and tells all brokers but the one whose name it has: none does what it is asked. (A broker that does not
    decide says who does.)"""
    async with attacker(network, hello) as peers:
        for node in scene.cluster.node_ids:
            if node == hello.node_id:
                continue
            try:
                end = await peers.connect(HOST, peer_port(scene.cluster, node), deadline_s=PATIENCE_S)
            except PeerRefused:
                continue  # nothing more can be said to it
            try:
                for what, message in said.items():
                    with suppress(TidelogError):
                        answer = (await end.request(message, (), PATIENCE_S)).message
                        assert isinstance(answer, ControllerElsewhere), f"{what}, told to broker {node}: {answer}"
                    end.notify(message, ())
            finally:
                await over(end)


def with_keys(store: TlsStore, keystore: Path) -> TlsNetwork:
    """Connections with other keys than a broker would load."""
    store.calling.load_cert_chain(keystore)
    return TlsNetwork(store)


NOBODYS = ("in plain text", "of another CA", "with a client's certificate", "with the certificate of another broker")


def network_of(scene: Scene, who: str, directory: Path) -> Network:
    """How somebody connects who is no broker, or another one than he says."""
    if who == "in plain text":
        return TcpNetwork()
    if who == "of another CA":
        other = scene.store(ClusterCertificates(directory / "other"), VICTIM)
        other.calling.load_verify_locations(scene.certificates.ca)
        return TlsNetwork(other)
    store = scene.store(scene.certificates, VICTIM)
    made = scene.certificates
    return with_keys(store, made.client("mallory") if "client" in who else made.directory / f"broker-{IMPOSTOR}.pem")


@pytest.mark.parametrize(
    "who", [pytest.param(who, marks=[] if "client" in who else pytest.mark.slow) for who in NOBODYS]
)
def test_who_is_no_broker_or_another_one_gets_no_connection(scene: Scene, who: str, tmp_path: Path) -> None:
    """D1 to D4, F101: with whatever is said in the hello, D3's epoch among it."""

    async def attack() -> None:
        theirs, network = await hello_of(scene, VICTIM), network_of(scene, who, tmp_path)
        for hello in (theirs, msgspec.structs.replace(theirs, incarnation="later", broker_epoch=2**40)):
            async with attacker(network, hello) as peers:
                for node in (1, IMPOSTOR):
                    for message in (await messages(scene, VICTIM)).values():
                        with pytest.raises(PeerUnreachable):
                            at = (HOST, peer_port(scene.cluster, node))
                            await peers.request_at(*at, message, deadline_s=PATIENCE_S)
        await is_untouched(scene)

    run(attack)


def test_a_registered_broker_speaks_for_itself_alone(scene: Scene) -> None:
    """D1 to D4, F124: with the file of broker 3, under its own name, all is said in the name of broker 2."""

    async def attack() -> None:
        hello = await hello_of(scene, IMPOSTOR)
        before = await refused(scene)
        network = TlsNetwork(scene.store(scene.certificates, IMPOSTOR))
        said = await messages(scene, VICTIM)
        await say_all(scene, network, hello, said)
        assert await refused(scene) >= before + len(said)
        await is_untouched(scene)

    run(attack)


@pytest.mark.slow
def test_another_life_of_a_registered_broker_is_nobody(scene: Scene) -> None:
    """D3, D4: somebody has the file of broker 3, which runs; what he says puts it neither out nor down."""

    async def attack() -> None:
        theirs = await hello_of(scene, IMPOSTOR)
        for epoch in (-1, theirs.broker_epoch, 2**40, 2**63 - 1):
            hello = msgspec.structs.replace(theirs, incarnation="another life", broker_epoch=epoch)
            said = await requests_without_a_name(scene)
            await say_all(scene, TlsNetwork(scene.store(scene.certificates, IMPOSTOR)), hello, said)
        await is_untouched(scene)

    run(attack)


async def requests_without_a_name(scene: Scene) -> dict[str, msgspec.Struct]:
    async with scene.admin() as admin:
        [topic] = await admin.describe_topics([TOPIC])
    return without_a_name(scene, topic.topic_id, topic.partitions[0].leader_epoch)


@pytest.mark.slow
def test_a_broker_that_was_removed_is_nobody(scene: Scene) -> None:
    """D1 to D4, F101: its certificate is as good as before, so it might join anew, as any broker that has one; until it
    does, all that it says is refused."""
    cluster = scene.cluster
    node = cluster.add()

    async def farewell() -> Hello:
        hello = await hello_of(scene, node)
        async with scene.admin() as admin:
            await admin.remove_broker(node)
        return hello

    hello = run(farewell)
    until(lambda: not cluster.broker(node).is_running)
    cluster.forget(node)

    async def attack() -> None:
        for life in (hello, msgspec.structs.replace(hello, incarnation="another life", broker_epoch=2**40)):
            network = TlsNetwork(scene.store(scene.certificates, node))
            said = {**await messages(scene, VICTIM), **await requests_without_a_name(scene)}
            await say_all(scene, network, life, said)
        await is_untouched(scene)

    run(attack)


@pytest.mark.slow
def test_a_controller_is_elected_after_all_that(scene: Scene) -> None:
    """D1: a restart of all three included."""
    cluster = scene.cluster

    async def outlives_its_controller() -> None:
        async with scene.admin() as admin, asyncio.timeout(3 * PATIENCE_S):
            first = (await admin.describe_cluster()).controller_id
            await asyncio.to_thread(cluster.kill, first)
            while (await admin.describe_cluster()).controller_id in (-1, first):
                await asyncio.sleep(0.1)
            await asyncio.to_thread(cluster.restart, first)
        await is_untouched(scene)

    run(outlives_its_controller)
    cluster.restart(*cluster.node_ids)
    run(lambda: is_untouched(scene))


async def refused(scene: Scene) -> int:
    """How many messages all brokers have refused, for whatever reason."""
    found = 0
    for node in scene.cluster.node_ids:
        page = (await asyncio.to_thread(ask_raw, scene, node, "GET", "/metrics", {}))[1].decode()
        lines = [line for line in page.splitlines() if line.startswith("tidelog_peer_messages_refused_total{")]
        assert lines
        found += sum(int(float(line.split()[-1])) for line in lines if "unregistered" not in line)
    return found


# -- D5 and D6: memory and places ------------------------------------------------------------------------------------


@asynccontextmanager
async def greeted(scene: Scene, keystore: TlsStore, hello: Hello, count: int) -> AsyncIterator[list[Any]]:
    """So many connections that have greeted, and say nothing more."""
    streams: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    port = peer_port(scene.cluster, 1)
    try:
        for _ in range(count):
            streams.append(await asyncio.open_connection(HOST, port, ssl=keystore.calling, server_hostname=""))
            streams[-1][1].write(framed(pack(Kind.HELLO, CODEC.encode_hello(hello))))
        yield streams
    finally:
        for _, writer in streams:
            writer.transport.abort()


def framed(parts: list[Any]) -> bytes:
    body = b"".join(parts)
    return len(body).to_bytes(4, "big") + body


def memory_bytes(pid: int) -> int:
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) * 1024


def test_a_frame_takes_memory_as_it_comes(scene: Scene) -> None:
    """D5: twelve connections say that 64 MiB are coming, and send 70 KB each."""

    async def attack() -> None:
        hello = await hello_of(scene, IMPOSTOR)
        pid = scene.cluster.broker(1).pid
        before = memory_bytes(pid)
        keystore = scene.store(scene.certificates, IMPOSTOR)
        async with greeted(scene, keystore, hello, 12) as streams:
            for reader, writer in streams:
                answer = memoryview(await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big")))
                assert unpack(answer).kind is Kind.HELLO
                writer.write((64 * MIB).to_bytes(4, "big") + bytes(70_000))
            await is_untouched(scene)
            assert memory_bytes(pid) < before + 64 * MIB
        await is_untouched(scene)

    run(attack)


@pytest.mark.slow
def test_idle_connections_keep_no_broker_out(scene: Scene) -> None:
    """D6: with a broker's certificate and without one."""

    async def attack() -> None:
        hello = await hello_of(scene, IMPOSTOR)
        keystore = scene.store(scene.certificates, IMPOSTOR)
        silent = [await asyncio.open_connection(HOST, peer_port(scene.cluster, 1)) for _ in range(150)]
        try:
            async with greeted(scene, keystore, hello, 300):
                await asyncio.to_thread(scene.cluster.restart, VICTIM)
                await is_untouched(scene)
        finally:
            for _, writer in silent:
                writer.transport.abort()

    run(attack)


# -- D7 and D8: web pages --------------------------------------------------------------------------------------------


def ask_raw(
    scene: Scene, node: int, method: str, target: str, headers: Mapping[str, str], body: bytes | None = None
) -> tuple[int, bytes]:
    """Sends one request with a client's certificate, as a browser does for any page."""
    context = ssl.create_default_context(cafile=scene.certificates.ca)
    context.load_cert_chain(scene.reader)
    address = scene.cluster.broker(node).url.removeprefix("https://")
    connection = http.client.HTTPSConnection(address, context=context, timeout=PATIENCE_S)
    try:
        connection.request(method, target, body, dict(headers))
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_a_web_page_and_a_rebound_name_do_nothing(scene: Scene) -> None:
    """D7 and D8, at each broker, though the browser has a client's certificate."""
    v3 = f"/v3/clusters/{scene.cluster.cluster_id}"
    record = b'{"records": [{"value": "ZXZpbA=="}]}'
    changes = [
        ("POST", f"/topics/{TOPIC}", record),
        ("POST", f"/topics/{TOPIC}/partitions/0", record),
        ("POST", f"{v3}/topics", b'{"topic_name": "stolen"}'),
        ("POST", f"{v3}/topics/{TOPIC}/partitions/0/records:delete", b'{"before_offset": 1}'),
        ("DELETE", f"{v3}/topics/{TOPIC}", None),
        ("DELETE", f"{v3}/brokers/{VICTIM}", None),
    ]
    pages = ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"})
    for node in scene.cluster.node_ids:
        for method, target, body in changes:
            for page, media in zip(pages, ({}, {"Content-Type": "*/*"}, {"Content-Type": "text/plain"}), strict=True):
                status, _ = ask_raw(scene, node, method, target, {**page, **media}, body)
                assert status == 403, (node, method, target, page, media)
        for target in ("/topics", "/metadata", f"/topics/{TOPIC}/partitions/0/records?offset=0", v3):
            status, answer = ask_raw(scene, node, "GET", target, {"Host": "evil.example"})
            assert status == 421
            assert not any(value in answer for value in scene.acknowledged)
    run(lambda: is_untouched(scene))
