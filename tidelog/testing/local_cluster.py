"""A cluster of real broker processes on this machine, in a temporary directory, for tests.

    with LocalCluster(brokers=3) as cluster:
        cluster.kill(2)         # SIGKILL
        cluster.restart(2)      # the same data, the same addresses

Everything here is synchronous, and quick except starting and stopping (about half a second). In async code enter it
with `async with`, and call methods that start or stop brokers as `await asyncio.to_thread(cluster.restart, 2)`.
"""

from __future__ import annotations

import asyncio
import secrets
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tidelog.testing.broker_process import START_TIMEOUT_S, STOP_TIMEOUT_S, BrokerFailed, BrokerProcess
from tidelog.testing.certificates import ClusterCertificates
from tidelog.testing.commands import HOST, voters_setting
from tidelog.testing.ports import HeldPorts
from tidelog.testing.private_network import HTTP_PORT, KAFKA_PORT, PEER_PORT, PrivateNetwork


class LocalCluster:
    """A cluster of `brokers` child processes with node ids from 1; `settings` (dotted names) apply to each.

    `data_dir` keeps the data after the end. Methods name brokers by node id, by default 1. With a `network` each broker
    is a node of it, and links between brokers can be cut. With a `secret`, and always in a network, brokers accept as
    peers only processes that know the content of `secret_file`. With `tls` all connections use TLS, with certificates
    made for this cluster (this needs the extra `tidelog[security]`). With `login` requests need a token, and ACLs
    authorize them. Clients are given `**cluster.security` beside their bootstrap addresses; with `login` that makes
    them the super user. With `kafka` each broker has a listener for Kafka's clients as well.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        settings: Mapping[str, str] | None = None,
        data_dir: str | Path | None = None,
        start_timeout_s: float = START_TIMEOUT_S,
        network: PrivateNetwork | None = None,
        secret: bool = False,
        tls: bool = False,
        login: bool = False,
        kafka: bool = False,
    ) -> None:
        if not 1 <= brokers <= 9:
            raise ValueError(f"a cluster of {brokers} brokers; 1 to 9 are possible here")
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        if data_dir is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="tidelog-test-")
            data_dir = self._temporary.name
        self._start_timeout_s = start_timeout_s
        self._data_dir, self._settings, self._network = Path(data_dir), dict(settings or {}), network
        self.secret_file = self._data_dir / "cluster.secret"
        if secret or network is not None:
            _draw_secret(self.secret_file)
            self._settings = {"cluster.secret.file": str(self.secret_file), **self._settings}
        if network is not None and not tls:  # nobody but the test reaches it
            self._settings = {"security.allow.insecure": "true", **self._settings}
        self.token_file = self._data_dir / "admin.token" if login else None
        if self.token_file is not None:
            _draw_secret(self.token_file, "admin.")
            self._settings = {**_login_settings(self.token_file), **self._settings}
        self.certificates = ClusterCertificates(self._data_dir / "tls") if tls else None
        self._ports = HeldPorts()
        self._has_kafka = kafka
        self._brokers = self._made(brokers)

    # -- life ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts all brokers and waits until they are ready. Raises `BrokerFailed`, and leaves none behind."""
        try:
            self._start([*self._brokers.values()])
        except BaseException:
            self._kill_all()
            raise

    def _start(self, brokers: list[BrokerProcess]) -> None:
        for broker in brokers:
            broker.begin()
        deadline_s = time.monotonic() + self._start_timeout_s
        for broker in brokers:
            broker.wait_until_ready(deadline_s)

    def _stop(self, brokers: list[BrokerProcess]) -> None:
        for broker in brokers:
            broker.begin_stop()
        deadline_s = time.monotonic() + STOP_TIMEOUT_S
        for broker in brokers:
            broker.wait_until_stopped(deadline_s)

    def close(self) -> None:
        """Stops all brokers gracefully, and removes the data unless it was given a directory."""
        try:
            self._stop([*self._brokers.values()])
        finally:
            self._kill_all()

    def _kill_all(self) -> None:
        for broker in self._brokers.values():
            broker.kill()
        self._ports.release()
        if self._temporary is not None:
            self._temporary.cleanup()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except BrokerFailed:
            if error is None:  # the test's own failure says more
                raise

    async def __aenter__(self) -> Self:
        starting = asyncio.create_task(asyncio.to_thread(self.__enter__))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            # A thread cannot be cancelled: nobody else would stop the brokers that it starts.
            await asyncio.wait([starting])
            if starting.exception() is None:
                await asyncio.to_thread(self.close)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, trace)

    # -- looking -------------------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """Value of `bootstrap` for clients: the base URLs of all brokers, separated by commas."""
        return ",".join(broker.url for broker in self._brokers.values())

    @property
    def kafka_bootstrap(self) -> str:
        """Value of `bootstrap.servers` for Kafka's clients; empty without a listener for them."""
        return ",".join(broker.kafka for broker in self._brokers.values() if broker.kafka is not None)

    @property
    def security(self) -> dict[str, Any]:
        """Arguments for clients beside `bootstrap`: certificates and token, if the cluster needs them."""
        given = {}
        if self.certificates is not None:
            given["ssl_ca_location"] = str(self.certificates.ca)
        if self.token_file is not None:
            given["token_file"] = str(self.token_file)
        return given

    @property
    def node_ids(self) -> list[int]:
        """Node ids in order: 1 to the number of brokers, plus those that were added, without those that were
        removed."""
        return list(self._brokers)

    @property
    def cluster_id(self) -> str:
        """Id of the cluster, as the brokers printed it."""
        return self.broker().cluster_id

    def broker(self, node_id: int = 1) -> BrokerProcess:
        """Returns the process of a broker, with its pid, addresses, data directory and output."""
        return self._brokers[node_id]

    # -- breaking ------------------------------------------------------------------------------------------------

    def kill(self, *node_ids: int) -> None:
        """Kills one or several brokers (SIGKILL). `restart` starts them again."""
        for broker in self._chosen(node_ids):
            broker.kill()

    def pause(self, node_id: int = 1) -> None:
        """Suspends a broker (SIGSTOP): its connections stay open, and it answers nothing."""
        self.broker(node_id).pause()

    def resume(self, node_id: int = 1) -> None:
        """Resumes a broker after `pause`."""
        self.broker(node_id).resume()

    def stop(self, *node_ids: int) -> None:
        """Stops brokers gracefully; the others and all data stay."""
        self._stop(self._chosen(node_ids))

    def restart(self, *node_ids: int, settings: Mapping[str, str] | None = None) -> None:
        """Starts brokers again at their old addresses, on their old data, after stopping gracefully what runs;
        `settings` replace the brokers' settings of the same names from now on.

        Brokers that cannot become ready without each other, such as most of a cluster, must be named together.
        """
        brokers = self._chosen(node_ids)
        self._stop(brokers)
        for broker in brokers:
            broker.change_settings(settings or {})
        self._start(brokers)

    def add(self) -> int:
        """Starts one more broker, which joins the cluster, and returns its node id. Not possible in a `network`."""
        if self._network is not None:
            raise ValueError("brokers of a private network are chosen when it is made")
        node_id = max(self._brokers) + 1
        http, peer = self._ports.take(2)
        broker = BrokerProcess(
            node_id,
            self._data_dir / f"broker-{node_id}",
            {**self._settings, **self._encrypted(node_id), "cluster.join": self._running().url},
            http=f"{HOST}:{http}",
            peer=f"{HOST}:{peer}",
            kafka=self._kafka_address(node_id),
        )
        self._start([broker])
        self._brokers[node_id] = broker
        return node_id

    def forget(self, node_id: int) -> None:
        """Waits for the end of a broker that was removed from the cluster, and will not be started again. Raises
        `BrokerFailed` if it does not stop, or not in good order."""
        self.broker(node_id).wait_until_stopped(time.monotonic() + STOP_TIMEOUT_S)
        del self._brokers[node_id]

    def _running(self) -> BrokerProcess:
        return next(broker for broker in self._brokers.values() if broker.is_running)

    def wipe(self, *node_ids: int) -> None:
        """Kills brokers and removes their data, as if their disks had been replaced by empty ones."""
        for broker in self._chosen(node_ids):
            broker.wipe()

    def _chosen(self, node_ids: tuple[int, ...]) -> list[BrokerProcess]:
        return [self._brokers[node_id] for node_id in node_ids or (1,)]

    def _made(self, brokers: int) -> dict[int, BrokerProcess]:
        """Returns the brokers, not started yet. Their addresses are chosen here, because the brokers must know each
        other's."""
        network = self._network
        http, peer = self._addresses(brokers) if network is None else _network_addresses(brokers, network)
        shared = {"cluster.voters": voters_setting(peer), **self._settings}
        return {
            node_id: BrokerProcess(
                node_id,
                self._data_dir / f"broker-{node_id}",
                {**self._encrypted(node_id), **shared},
                http=http[node_id - 1],
                peer=peer[node_id - 1],
                kafka=self._kafka_address(node_id),
                prefix=() if network is None else network.words(node_id),
            )
            for node_id in range(1, brokers + 1)
        }

    def _kafka_address(self, node_id: int) -> str | None:
        if not self._has_kafka:
            return None
        if self._network is not None:
            return f"{self._network.host(node_id)}:{KAFKA_PORT}"
        return f"{HOST}:{self._ports.take(1)[0]}"

    def _encrypted(self, node_id: int) -> Mapping[str, str]:
        return {} if self.certificates is None else self.certificates.settings(node_id)

    def _addresses(self, brokers: int) -> tuple[list[str], list[str]]:
        """Returns the HTTP and the peer addresses of the brokers, on loopback."""
        addresses = [f"{HOST}:{port}" for port in self._ports.take(2 * brokers)]
        return addresses[:brokers], addresses[brokers:]


def _login_settings(token_file: Path) -> dict[str, str]:
    return {
        "http.authentication": "token",
        "authorizer.enabled": "true",
        "super.users": "User:admin",
        "http.bootstrap.token.file": str(token_file),
        "cluster.token.file": str(token_file),
    }


def _draw_secret(file: Path, prefix: str = "") -> None:
    """Writes a random secret to a file, unless the file exists from an earlier cluster on this data."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600)
        file.write_text(prefix + secrets.token_hex(32))


def _network_addresses(brokers: int, network: PrivateNetwork) -> tuple[list[str], list[str]]:
    """Returns the HTTP and the peer addresses of the brokers in a network of their own, where all ports are free."""
    hosts = [network.host(node_id) for node_id in range(1, brokers + 1)]
    return [f"{host}:{HTTP_PORT}" for host in hosts], [f"{host}:{PEER_PORT}" for host in hosts]
