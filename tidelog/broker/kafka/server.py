"""Start and stop of the listener for Kafka clients."""

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
from tidelog.model.ports import ClientConnection, ClientReceiver, LogLevel

SWEEP_S: Final = 5.0
COMPLAINT_S: Final = 60.0
COMPLAINTS_MAX: Final = 64

logger = structlog.get_logger("tidelog.kafka")


class Bound(Protocol):
    """A bound address, which accepts connections after `start_serving`."""

    address: tuple[str, int]

    async def start_serving(self) -> None: ...

    def close(self) -> None: ...


class Network(Protocol):
    """The network adapter, which cuts TCP streams into frames."""

    async def bind(
        self,
        host: str,
        port: int,
        receiver: Callable[[ClientConnection], ClientReceiver],
        *,
        frame_bytes_max: int,
    ) -> Bound:
        """Binds an address without accepting connections yet. Raises `OSError`."""


class Refused:
    """Receiver of a refused connection, which is closed at once: it ignores all events."""

    def may_begin(self, length: int, begun: bytes) -> bool:
        """Returns False: no frame is read."""
        return False

    def frame_received(self, frame: memoryview) -> None:
        """Ignores the frame."""

    def unclogged(self) -> None:
        """Does nothing: a refused connection sends nothing that could wait."""

    def broken_off(self, why: str) -> None:
        """Does nothing."""

    def connection_lost(self, error: Exception | None) -> None:
        """Does nothing."""


class KafkaServer:
    """The Kafka listener on one address. Call `open` first, `serve` when the broker is ready, and `stop` once at the
    end."""

    def __init__(
        self, face: BrokerFace, listener: Listener[KafkaLimits], machine: str, brake: Brake, log_level: LogLevel
    ) -> None:
        """`machine` is the host name to advertise if the listener is bound to all addresses. `brake` is the overload
        protection of the HTTP listener, which measures the lag of the event loop. Operators change `log_level`."""
        limits = listener.limits
        self.metrics = KafkaMetrics()
        self.parts = Parts(face, face.admission(limits), limits, self.metrics, log_level)
        self.parts.admission.shedding.brake = brake
        self.advertised: Endpoint
        self.address: tuple[str, int]
        self._listener = listener
        self._machine = machine
        self._handlers = Handlers(self.parts, self.refused, self.lost)
        self._connections: dict[Connection, None] = {}
        self._complaints: dict[str, float] = {}
        self._bound: Bound
        self._tasks: list[asyncio.Task[None]] = []
        self._connection_closed = asyncio.Event()

    async def open(self, network: Network) -> None:
        """Binds the address. Raises `OSError` if that fails."""
        at, limits = self._listener.bind, self.parts.limits
        frame_bytes_max = max(limits.produce_bytes_max, limits.request_bytes_max)
        self._bound = await network.bind(at.host, at.port, self._connected, frame_bytes_max=frame_bytes_max)
        self.address = self._bound.address
        self.advertised = self._listener.advertised_at(Endpoint(*self.address), self._machine)
        self._show_gauges()

    @property
    def bound(self) -> Endpoint:
        """The address that the listener is bound to."""
        return Endpoint(self._listener.bind.host, self.address[1])

    async def serve(self) -> None:
        """Begins to accept connections."""
        await self._bound.start_serving()
        self._tasks.append(asyncio.create_task(self._sweep(), name="kafka-idle"))

    async def stop(self, grace_s: float, *, linger_s: float = 0.0) -> None:
        """Stops accepting connections, serves the open ones for `linger_s` seconds, ends waiting requests, gives the
        others `grace_s` seconds to finish, and closes all connections. May be called again."""
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
                    self._connection_closed.clear()
                    await self._connection_closed.wait()
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
        """Removes a closed connection."""
        if self._connections.pop(connection, connection) is None:
            self.parts.admission.connections.leave(connection.address)
            self._connection_closed.set()

    def refused(self, reason: str, remote: str, why: str) -> None:
        """Counts a connection that was refused or closed by the broker, and logs it, at most once a minute per client
        host."""
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
        """Closes idle connections, until cancelled."""
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
    """Returns the Kafka listener that the settings describe; None if there is none."""
    if config.kafka_address is None:
        return None
    advertised = config.kafka_advertised_listener
    return Listener(
        KAFKA,
        Endpoint(*split_address(config.kafka_address)),
        KafkaLimits.of(config),
        None if advertised is None else Endpoint(*split_address(advertised)),
    )
