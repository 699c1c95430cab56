"""Starts and stops the listener for Kafka's clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

import structlog

from tidelog.broker.face.brake import Brake
from tidelog.broker.face.face import BrokerFace
from tidelog.broker.face.listener import Listener
from tidelog.broker.kafka.connection import Connection
from tidelog.broker.kafka.handlers import Handlers
from tidelog.broker.kafka.limits import KafkaLimits
from tidelog.broker.kafka.listener_parts import Parts
from tidelog.broker.kafka.metrics import KafkaMetrics
from tidelog.config.schema import BrokerConfig
from tidelog.config.values import split_address
from tidelog.model.cluster import KAFKA, Endpoint
from tidelog.model.ports import ClientConnection, ClientReceiver

SWEEP_S: Final = 5.0
COMPLAINT_S: Final = 60.0
COMPLAINTS_MAX: Final = 64

logger = structlog.get_logger("tidelog.kafka")


class Bound(Protocol):
    """An address that is bound, and takes connections once it was told to."""

    address: tuple[str, int]

    async def start_serving(self) -> None: ...

    def close(self) -> None: ...


class Network(Protocol):
    """Cuts the streams of clients into frames, as an adapter does it."""

    async def bind(
        self,
        host: str,
        port: int,
        receiver: Callable[[ClientConnection], ClientReceiver],
        *,
        frame_bytes_max: int,
    ) -> Bound:
        """Binds an address; takes no connections yet. Raises `OSError`."""
        ...


class Refused:
    """A `ClientReceiver` of a connection that is closed as it comes."""

    def may_begin(self, length: int, begun: bytes) -> bool:
        """See the port."""
        return False

    def frame_received(self, frame: memoryview) -> None:
        """See the port."""

    def unclogged(self) -> None:
        """See the port."""

    def broken_off(self, why: str) -> None:
        """See the port."""

    def connection_lost(self, error: Exception | None) -> None:
        """See the port."""


class KafkaServer:
    """Serves one address. `open` comes first, then `serve` when the broker is ready, and `stop` once at the end."""

    def __init__(self, face: BrokerFace, listener: Listener[KafkaLimits], machine: str, brake: Brake) -> None:
        """`machine` is the name that clients are told if it listens on all addresses. The `brake` is that of the HTTP
        listener, which measures how late the event loop runs."""
        limits = listener.limits
        self.metrics = KafkaMetrics()
        self.parts = Parts(face, face.admission(limits), limits, self.metrics)
        self.parts.admission.shedding.brake = brake
        self.advertised: Endpoint
        self.address: tuple[str, int]
        self._listener = listener
        self._machine = machine
        self._handlers = Handlers(self.parts, self)
        self._connections: dict[Connection, None] = {}
        self._complaints: dict[str, float] = {}
        self._bound: Bound
        self._tasks: list[asyncio.Task[None]] = []
        self._one_left = asyncio.Event()

    async def open(self, network: Network) -> None:
        """Binds the address. Raises `OSError` if it cannot be had."""
        at, limits = self._listener.bind, self.parts.limits
        frame_bytes_max = max(limits.produce_bytes_max, limits.request_bytes_max)
        self._bound = await network.bind(at.host, at.port, self._connected, frame_bytes_max=frame_bytes_max)
        self.address = self._bound.address
        self.advertised = self._listener.advertised_at(Endpoint(*self.address), self._machine)
        self._show_gauges()

    @property
    def bound(self) -> Endpoint:
        """Returns the address that it listens at."""
        return Endpoint(self._listener.bind.host, self.address[1])

    async def serve(self) -> None:
        """Takes connections from now on."""
        await self._bound.start_serving()
        self._tasks.append(asyncio.create_task(self._sweep(), name="kafka-idle"))

    async def stop(self, grace_s: float, *, linger_s: float = 0.0) -> None:
        """Takes no more connections, ends waits at once, serves what comes for `linger_s`, gives requests under way
        `grace_s` to finish, and closes all. Idempotent."""
        self._bound.close()
        await asyncio.sleep(linger_s)
        self.parts.admission.close()
        for task in self._tasks:
            task.cancel()
        for connection in list(self._connections):
            connection.drain()
        try:
            async with asyncio.timeout(grace_s):
                while self._connections:
                    self._one_left.clear()
                    await self._one_left.wait()
        except TimeoutError:
            logger.warning("requests are cut off: they take too long", connections=len(self._connections))
        for connection in list(self._connections):
            connection.close()

    # -- connections -------------------------------------------------------------------------------------------------

    def _connected(self, stream: ClientConnection) -> ClientReceiver:
        address, shares = stream.remote.rpartition(":")[0], self.parts.face.shares
        if shares.are_set and not shares.admits_connection(address):
            return self._turn_away(stream, "connection rate")
        if not self.parts.admission.connections.admit(address):
            return self._turn_away(stream, "connections")
        connection = Connection(self.parts, self._handlers, stream, address)
        self._connections[connection] = None
        return connection

    def _turn_away(self, stream: ClientConnection, reason: str) -> Refused:
        self.refused(reason, stream.remote, f"there is no place for it: {reason}")
        asyncio.get_running_loop().call_soon(stream.close)
        return Refused()

    def lost(self, connection: Connection) -> None:
        """Forgets a connection, which is no more."""
        if self._connections.pop(connection, connection) is None:
            self.parts.admission.connections.leave(connection.address)
            self._one_left.set()

    def refused(self, reason: str, remote: str, why: str) -> None:
        """Counts a connection that is turned away, or broken off; says so, but not again and again of one machine."""
        self.metrics.refused[reason] += 1
        audit = self.parts.face.audit
        if audit is not None:
            audit.refused_connection(KAFKA, remote, why)
        host, now_s = remote.rpartition(":")[0], self.parts.face.clock.monotonic_s()
        if now_s < self._complaints.get(host, now_s):
            return
        self._complaints.pop(host, None)
        self._complaints[host] = now_s + COMPLAINT_S
        if len(self._complaints) > COMPLAINTS_MAX:
            del self._complaints[next(iter(self._complaints))]
        logger.warning("a connection of a Kafka client is closed", remote=remote, cause=reason, reason=why)

    async def _sweep(self) -> None:
        """Closes connections on which nothing happens."""
        while True:
            await asyncio.sleep(SWEEP_S)
            since_s = self.parts.face.clock.monotonic_s() - self.parts.limits.idle_s
            for connection in [idle for idle in self._connections if idle.heard_s < since_s and not idle.is_busy]:
                connection.close()

    def _show_gauges(self) -> None:
        admission, metrics = self.parts.admission, self.metrics
        metrics.gauge("tidelog_kafka_connections", "Open connections.", lambda: admission.connections.open)
        metrics.gauge("tidelog_kafka_request_bytes", "Memory taken by requests.", lambda: admission.bodies.used)
        metrics.gauge("tidelog_kafka_waiting_requests", "Requests that wait for data.", lambda: len(admission.waits))


def kafka_listener(config: BrokerConfig) -> Listener[KafkaLimits] | None:
    """Returns the listener as the settings describe it; None if there is none."""
    if config.kafka_address is None:
        return None
    advertised = config.kafka_advertised_listener
    return Listener(
        KAFKA,
        Endpoint(*split_address(config.kafka_address)),
        KafkaLimits.of(config),
        None if advertised is None else Endpoint(*split_address(advertised)),
    )
