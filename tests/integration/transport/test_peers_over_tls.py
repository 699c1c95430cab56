"""Brokers that prove to each other who they are; and what those get who cannot. On both event loops."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest
import uvloop
from structlog.testing import capture_logs

from tests.integration.sockets import sockets_closed
from tests.unit.adapters.certificates import Kind, issued
from tidelog.adapters.system import SystemClock, SystemEntropy
from tidelog.adapters.tcp_network import TcpNetwork, TlsNetwork
from tidelog.adapters.tls_frames import TlsFrameProtocol
from tidelog.adapters.tls_listener import TlsTerms, tls_listeners
from tidelog.adapters.tls_store import TlsStore
from tidelog.config.schema import BrokerConfig
from tidelog.model.ports import FrameConnection, Network
from tidelog.testing.certificates import ClusterCertificates
from tidelog.transport.peer import Answer, ClusterSecret, Hello, Lane, PeerNode, PeerUnreachable

HOST = "127.0.0.1"
PATIENCE_S = 30.0


class Echo(msgspec.Struct, tag=True):
    number: int


class Echoing:
    async def handle(self, caller: Hello, message: msgspec.Struct, payload: memoryview) -> Answer:
        return Answer(message, (payload,))

    def notified(self, caller: Hello, message: msgspec.Struct, payload: memoryview) -> None: ...


def store(made: ClusterCertificates, node_id: int, *, keystore: Path | None = None) -> TlsStore:
    settings = {**made.settings(node_id), "node.id": str(node_id)}
    if keystore is not None:
        settings["ssl.keystore.location"] = str(keystore)
    return TlsStore(BrokerConfig.model_validate(settings))


class Brokers:
    def __init__(self, made: ClusterCertificates) -> None:
        self.made = made
        self._nodes: list[PeerNode] = []

    def node(self, node_id: int, network: Network, secret: ClusterSecret | None = None) -> PeerNode:
        hello = Hello(node_id, f"life of {node_id}", "c")
        node = PeerNode(network, lambda: hello, [Echo], Echoing(), SystemClock(), SystemEntropy(), secret=secret)
        self._nodes.append(node)
        return node

    async def listening(self, node_id: int = 1, network: Network | None = None) -> tuple[PeerNode, tuple[str, int]]:
        node = self.node(node_id, network or TlsNetwork(store(self.made, node_id)))
        return node, await node.listen(HOST, 0)

    async def why_not(self, caller: PeerNode, address: tuple[str, int], node_id: int = 1) -> str:
        """Returns the error of a broker that calls another one in vain."""
        caller.know(node_id, *address)
        async with asyncio.timeout(PATIENCE_S):
            while True:
                with pytest.raises(PeerUnreachable) as raised:
                    await caller.request(node_id, Echo(1), deadline_s=PATIENCE_S)
                if "does not answer" not in raised.value.message:  # in time, on a machine that is busy
                    return raised.value.message

    async def close(self) -> None:
        for node in self._nodes:
            await node.close()


Scenario = Callable[[Brokers], Coroutine[Any, Any, None]]


@pytest.fixture(params=["asyncio", "uvloop"])
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Scenario], None]:
    """Runs a scenario; afterwards no task is left, and no callback has failed."""

    def run(scenario: Scenario) -> None:
        failures: list[dict[str, Any]] = []

        async def main() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
            brokers = Brokers(ClusterCertificates(tmp_path / "tls"))
            async with sockets_closed():
                try:
                    await scenario(brokers)
                finally:
                    await brokers.close()
            assert asyncio.all_tasks() == {asyncio.current_task()}

        factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(main())
        assert failures == []

    return run


def test_brokers_of_one_ca_talk_and_large_payloads_go_into_buffers_of_their_own(
    play: Callable[[Scenario], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    large: list[int] = []
    get_buffer = TlsFrameProtocol.get_buffer

    def noting(protocol: TlsFrameProtocol, sizehint: int) -> memoryview:
        buffer = get_buffer(protocol, sizehint)
        large.append(len(buffer))
        return buffer

    monkeypatch.setattr(TlsFrameProtocol, "get_buffer", noting)

    async def scenario(brokers: Brokers) -> None:
        _, address = await brokers.listening()
        two = brokers.node(2, TlsNetwork(store(brokers.made, 2)))
        two.know(1, *address)
        payload = SystemEntropy().token_hex(1 << 10).encode() * (8 << 10)
        answer = await two.request(1, Echo(1), [payload], deadline_s=PATIENCE_S, lane=Lane.DATA)
        assert answer.body == payload
        assert max(large) > 1 << 20  # the frame's own buffer is offered for what comes, not the chunk

    play(scenario)


# -- who is refused --------------------------------------------------------------------------------------------------


def test_who_has_no_certificate_is_told_that_one_is_required(play: Callable[[Scenario], None]) -> None:
    """F101."""

    async def scenario(brokers: Brokers) -> None:
        _, address = await brokers.listening()
        context = ssl.create_default_context(cafile=brokers.made.ca)
        context.check_hostname = False
        reader, writer = await asyncio.open_connection(*address, ssl=context)
        with pytest.raises(ssl.SSLError, match=r"(?i)certificate.required"):
            await reader.read()
        writer.close()

    play(scenario)


def test_a_broker_of_another_ca_is_refused_by_either_end(play: Callable[[Scenario], None], tmp_path: Path) -> None:
    """F101."""

    async def scenario(brokers: Brokers) -> None:
        _, address = await brokers.listening()
        stranger = brokers.node(2, TlsNetwork(store(ClusterCertificates(tmp_path / "other"), 2)))
        assert "its certificate is not accepted" in await brokers.why_not(stranger, address)
        half = ClusterCertificates(tmp_path / "half")
        believer = store(half, 2)
        assert believer.contexts.calling is not None
        believer.contexts.calling.load_verify_locations(brokers.made.ca)
        refused = brokers.node(3, TlsNetwork(believer))
        async with asyncio.timeout(PATIENCE_S):
            while "unknown ca" not in (await brokers.why_not(refused, address)).lower():
                pass  # a reset took the alert away, which comes behind the handshake in TLS 1.3

    play(scenario)


def test_the_certificate_of_another_node_is_refused(play: Callable[[Scenario], None]) -> None:
    """F101, F118."""

    async def scenario(brokers: Brokers) -> None:
        _, address = await brokers.listening()
        impostor = brokers.node(3, TlsNetwork(store(brokers.made, 2)))
        assert "the certificate of node 3 is that of node 2" in await brokers.why_not(impostor, address)
        _, of_impostor = await brokers.listening(3, TlsNetwork(store(brokers.made, 2)))
        caller = brokers.node(4, TlsNetwork(store(brokers.made, 4)))
        assert "the certificate of node 3 is that of node 2" in await brokers.why_not(caller, of_impostor, 3)

    play(scenario)


def test_a_broker_of_another_cluster_of_the_same_ca_is_refused(
    play: Callable[[Scenario], None], tmp_path: Path
) -> None:
    async def scenario(brokers: Brokers) -> None:
        _, address = await brokers.listening(2)
        file = issued(brokers.made, tmp_path / "other.pem", Kind.OTHER_CLUSTER)
        stranger = brokers.node(1, TlsNetwork(store(brokers.made, 1, keystore=file)))
        assert "is of cluster other" in await brokers.why_not(stranger, address, 2)

    play(scenario)


def test_a_clients_certificate_opens_no_peer_connection(play: Callable[[Scenario], None]) -> None:
    """F101."""

    async def scenario(brokers: Brokers) -> None:
        _, address = await brokers.listening()
        client = store(brokers.made, 2)
        assert client.contexts.calling is not None
        client.contexts.calling.load_cert_chain(brokers.made.client())
        why = await brokers.why_not(brokers.node(2, TlsNetwork(client)), address)
        assert "names no broker" in why

    play(scenario)


def test_an_expired_certificate_opens_no_peer_connection(play: Callable[[Scenario], None], tmp_path: Path) -> None:
    """F101."""

    async def scenario(brokers: Brokers) -> None:
        _, address = await brokers.listening()
        late = store(brokers.made, 2)
        assert late.contexts.calling is not None
        late.contexts.calling.load_cert_chain(issued(brokers.made, tmp_path / "old.pem", Kind.BROKER, days=-1))
        assert "certificate expired" in (await brokers.why_not(brokers.node(2, TlsNetwork(late)), address)).lower()

    play(scenario)


def test_plain_text_and_tls_do_not_mix_and_each_side_says_so(play: Callable[[Scenario], None]) -> None:
    """F102."""

    async def scenario(brokers: Brokers) -> None:
        _, encrypted = await brokers.listening(1)
        _, plain = await brokers.listening(2, TcpNetwork())
        with capture_logs() as logs:
            await brokers.why_not(brokers.node(3, TcpNetwork()), encrypted)
            why = await brokers.why_not(brokers.node(4, TlsNetwork(store(brokers.made, 4))), plain, 2)
        assert "security.inter.broker.protocol" in why
        reasons = [str(entry.get("reason")) for entry in logs]
        assert "it speaks no TLS" in reasons
        assert any("it speaks TLS, and this port plain text" in reason for reason in reasons)

    play(scenario)


def test_older_versions_of_tls_are_refused(play: Callable[[Scenario], None]) -> None:
    """F102."""

    async def scenario(brokers: Brokers) -> None:
        _, address = await brokers.listening()
        context = ssl.create_default_context(cafile=brokers.made.ca)
        context.check_hostname = False
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(ssl.SSLError, match=r"(?i)protocol.version"):
            await asyncio.open_connection(*address, ssl=context)

    play(scenario)


def test_silent_strangers_give_way_to_those_who_speak(
    play: Callable[[Scenario], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.adapters.tls_listener.HANDSHAKES_MAX", 8)

    async def scenario(brokers: Brokers) -> None:
        keys = store(brokers.made, 1)
        _, address = await brokers.listening(1, TlsNetwork(keys))
        silent = [await asyncio.open_connection(*address) for _ in range(20)]
        two = brokers.node(2, TlsNetwork(store(brokers.made, 2)))
        two.know(1, *address)
        await two.request(1, Echo(1), deadline_s=PATIENCE_S)
        assert keys.refused["peer", "too many handshakes"] >= 12
        for _, one in silent:
            one.close()

    play(scenario)


def test_a_connection_that_is_taken_as_the_listener_closes_is_closed(play: Callable[[Scenario], None]) -> None:
    """The task of its handshake is cancelled before its first step."""

    async def scenario(brokers: Brokers) -> None:
        keys = store(brokers.made, 1)
        terms = TlsTerms("peer", lambda: keys.answering, keys.note_refused, 1.0)
        (listener,) = await tls_listeners(asyncio.Protocol, HOST, 0, terms, backlog=1)
        await listener.start_serving()
        with socket.create_connection(listener.sockets[0].getsockname()[:2]) as caller:
            caller.setblocking(False)
            listener._accept()
            listener.close()
            async with asyncio.timeout(PATIENCE_S):
                assert await asyncio.get_running_loop().sock_recv(caller, 1) == b""

    play(scenario)


# -- loading again ---------------------------------------------------------------------------------------------------


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


def test_what_changes_is_loaded_and_what_is_bad_is_not(play: Callable[[Scenario], None], tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        keys = store(brokers.made, 1)
        watching = asyncio.create_task(keys.watch())
        file, first = brokers.made.broker(1), keys.contexts
        keys.reload()
        await until(lambda: keys.reloads["done"] == 1)
        assert keys.contexts.answering is not first.answering
        second = keys.contexts
        with capture_logs() as logs:
            shutil.copy(brokers.made.broker(2), file)  # noticed without being told
            await until(lambda: keys.reloads["refused"] == 1)
        assert any("is that of node 2" in str(entry.get("reason")) for entry in logs)
        assert keys.contexts is second
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

    play(scenario)


def test_a_ca_that_is_taken_out_vouches_for_nobody_who_comes_later(
    play: Callable[[Scenario], None], tmp_path: Path
) -> None:
    async def scenario(brokers: Brokers) -> None:
        newer = ClusterCertificates(tmp_path / "newer")
        trusted = tmp_path / "trusted.pem"
        trusted.write_text(brokers.made.ca.read_text() + newer.ca.read_text())
        settings = {**newer.settings(1), "ssl.truststore.location": str(trusted)}
        keys = TlsStore(BrokerConfig.model_validate(settings))
        watching = asyncio.create_task(keys.watch())
        _, address = await brokers.listening(1, TlsNetwork(keys))
        both = shutil.copy(trusted, tmp_path / "both.pem")
        old = {**brokers.made.settings(2), "ssl.truststore.location": str(both), "node.id": "2"}
        caller = brokers.node(2, TlsNetwork(TlsStore(BrokerConfig.model_validate(old))))
        caller.know(1, *address)
        await caller.request(1, Echo(1), deadline_s=PATIENCE_S)
        shutil.copy(newer.ca, trusted)
        keys.reload()
        await until(lambda: keys.reloads["done"])
        await caller.request(1, Echo(2), deadline_s=PATIENCE_S)  # on the connection that there is
        later = brokers.node(2, TlsNetwork(TlsStore(BrokerConfig.model_validate(old))))
        assert "unknown ca" in (await brokers.why_not(later, address)).lower()
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

    play(scenario)


class Relay:
    """Somebody between two brokers, with certificates of the CA for both, who passes on what each of them says."""

    def __init__(self, callee: tuple[str, int], network: Network) -> None:
        self.passed = 0
        self._callee, self._network = callee, network
        self._ends: list[RelayEnd] = []
        self._tasks: list[asyncio.Task[None]] = []

    def accept(self, connection: FrameConnection) -> RelayEnd:
        end = self._end(connection)
        self._tasks.append(asyncio.get_running_loop().create_task(self._call(end)))
        return end

    def _end(self, connection: FrameConnection) -> RelayEnd:
        self._ends.append(RelayEnd(self, connection))
        return self._ends[-1]

    async def _call(self, end: RelayEnd) -> None:
        made: list[RelayEnd] = []

        def receive(connection: FrameConnection) -> RelayEnd:
            made.append(self._end(connection))
            return made[0]

        await self._network.connect(*self._callee, receive, timeout_s=PATIENCE_S)
        end.join(made[0])

    async def close(self) -> None:
        for end in self._ends:
            end.connection.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class RelayEnd:
    """One end of a relayed connection."""

    def __init__(self, relay: Relay, connection: FrameConnection) -> None:
        self.connection = connection
        self._relay = relay
        self._other: RelayEnd | None = None
        self._early: list[bytes] = []

    def join(self, other: RelayEnd) -> None:
        self._other, other._other = other, self
        for frame in self._early:
            other.connection.send([frame])

    def frame_received(self, frame: memoryview) -> None:
        self._relay.passed += 1
        if self._other is None:
            self._early.append(bytes(frame))
        else:
            self._other.connection.send([bytes(frame)])

    def connection_lost(self, error: Exception | None) -> None:
        if self._other is not None:
            self._other.connection.close()


def test_a_proof_is_good_for_the_two_certificates_that_it_was_made_between(
    play: Callable[[Scenario], None], tmp_path: Path
) -> None:
    async def scenario(brokers: Brokers) -> None:
        secret = ClusterSecret(b"known to the brokers, and not to who stands between them")
        one = brokers.node(1, TlsNetwork(store(brokers.made, 1)), secret)
        address = await one.listen(HOST, 0)
        two = brokers.node(2, TlsNetwork(store(brokers.made, 2)), secret)
        two.know(1, *address)
        answer = await two.request(1, Echo(1), deadline_s=PATIENCE_S)
        assert answer.message == Echo(1) and one.statistics.unproved == 0
        stolen = issued(brokers.made, tmp_path / "as-one.pem", Kind.BROKER)
        relay = Relay(address, TlsNetwork(store(brokers.made, 2)))
        listening = await TlsNetwork(store(brokers.made, 1, keystore=stolen)).listen(HOST, 0, relay.accept)
        victim = brokers.node(2, TlsNetwork(store(brokers.made, 2)), secret)
        why = await brokers.why_not(victim, listening.address)
        assert "another cluster secret" in why and "somebody stands between them" in why
        assert relay.passed >= 3 and one.statistics.unproved >= 1
        assert victim.statistics.connects == 0
        await relay.close()
        await listening.close()

    play(scenario)


def test_certificates_that_change_under_a_connection_change_nothing_for_it(play: Callable[[Scenario], None]) -> None:
    async def scenario(brokers: Brokers) -> None:
        secret = ClusterSecret(b"known to all brokers of this cluster")
        stores = [store(brokers.made, node) for node in (1, 2)]
        one, two = (brokers.node(node, TlsNetwork(stores[node - 1]), secret) for node in (1, 2))
        address = await one.listen(HOST, 0)
        two.know(1, *address)
        await two.request(1, Echo(1), deadline_s=PATIENCE_S)
        for node in (1, 2):
            brokers.made.broker(node)
            await stores[node - 1]._load()
        await two.request(1, Echo(2), deadline_s=PATIENCE_S)
        assert one.statistics.accepts == 2
        two.forget(1)
        two.know(1, *address)
        await two.request(1, Echo(3), deadline_s=PATIENCE_S)
        assert one.statistics.unproved == two.statistics.unproved == 0

    play(scenario)
