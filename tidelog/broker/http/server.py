"""Starts and stops the HTTP listener of a broker."""

from __future__ import annotations

import asyncio
import os  # determinism: to duplicate a listening descriptor; no file is opened
import socket  # determinism: to hand that descriptor to the event loop
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Protocol

from prometheus_client import CollectorRegistry, ProcessCollector

from tidelog.broker.face.admission import Admission
from tidelog.broker.face.face import BrokerFace
from tidelog.broker.face.listener import Listener
from tidelog.broker.http.authentication import Authentication
from tidelog.broker.http.broker_metrics import BrokerMetrics
from tidelog.broker.http.cluster_metrics import ClusterMetrics
from tidelog.broker.http.connection import Connection
from tidelog.broker.http.connections import Server
from tidelog.broker.http.context import Context
from tidelog.broker.http.edge import Edge
from tidelog.broker.http.group_metrics import GroupMetrics
from tidelog.broker.http.guard import Guard
from tidelog.broker.http.limits import Limits
from tidelog.broker.http.metrics import RequestMetrics
from tidelog.broker.http.metrics_page import MetricsPage
from tidelog.broker.http.openapi import describe
from tidelog.broker.http.recorded_edge import RecordedEdge
from tidelog.broker.http.route import Route
from tidelog.broker.http.routes import CLIENT, OPS, ROUTES
from tidelog.broker.http.security_metrics import JwtMetrics, TlsMetrics, TlsStatus
from tidelog.broker.http.work_metrics import WorkMetrics
from tidelog.config.schema import BrokerConfig
from tidelog.config.values import split_address
from tidelog.model.certificate_names import parse_rules
from tidelog.model.cluster import HTTP, Endpoint
from tidelog.model.ports import LogLevel

BACKLOG = 1024
"""Length of the kernel's queue of connections that wait to be accepted."""
ACCEPTED_AT_ONCE = 16
"""Connections accepted per turn of the event loop. libuv accepts one per listening descriptor, so a listener has as
many descriptors.
"""
OPERATORS = "ops"
"""The name of the operators' listener in the audit log."""


class Listening(Protocol):
    """A bound socket that accepts connections once `start_serving` was called: a server of an event loop, or another
    implementation.
    """

    @property
    def sockets(self) -> Sequence[socket.socket]: ...

    async def start_serving(self) -> None: ...

    def close(self) -> None: ...


class Encryption(TlsStatus, Protocol):
    """TLS listeners: binds addresses with encryption, and reports the state of the certificate."""

    async def bind(
        self, make: Callable[[], Connection], host: str, port: int, backlog: int, *, is_ops: bool = False
    ) -> Sequence[Listening]:
        """Binds an address at which all connections use TLS, for clients or (`is_ops`) operators. Raises `OSError`."""


class HttpServer:
    """A running HTTP listener. `address` is where it is bound, `advertised` the address given to clients."""

    def __init__(
        self,
        server: Server,
        listeners: Sequence[Listening],
        context: Context,
        busy_s: Callable[[], float] | None = None,
    ) -> None:
        """`busy_s` returns the total seconds that the calling thread has run or waited for a processor."""
        self._busy_s = busy_s
        self._server = server
        self._listeners = listeners
        self.context = context
        self._measuring = asyncio.create_task(self._measure_lag())
        host, port, *_ = listeners[0].sockets[0].getsockname()
        self.address: tuple[str, int] = (host, port)
        self.advertised = context.advertised

    async def _measure_lag(self) -> None:
        """Measures the lag of the event loop, for the brake, and the load of its thread, until the listener stops."""
        now_s, brake = self.context.face.clock.monotonic_s, self.context.admission.shedding.brake
        busy = self.context.busy
        while True:
            wait_s = brake.next_s
            due_s = now_s() + wait_s
            await asyncio.sleep(wait_s)
            brake.measured(max(0.0, now_s() - due_s))
            if self.context.guard is not None:
                self.context.guard.look_again()
            if self._busy_s is not None and busy.is_due(now_s()):
                busy.measured(now_s(), self._busy_s())

    async def stop(self, grace_s: float, *, linger_s: float = 0.0) -> None:
        """Stops the listener: accepts no more connections, ends long polls at once, and for `linger_s` seconds answers
        one more request on each connection. Requests under way have `grace_s` seconds to finish; then they are cut off.
        Idempotent.
        """
        for listener in self._listeners:
            listener.close()
        self.context.admission.close()
        self._server.drain()
        await self._server.wait_for_the_last(linger_s)
        self._measuring.cancel()  # only now: a brake that is left as it was would refuse what comes meanwhile
        self._server.pre_shutdown()
        await self._server.shutdown(grace_s / 2)  # a request gets that long twice: to end, and to be cancelled


def http_listener(config: BrokerConfig) -> Listener[Limits]:
    """Returns the configuration of the HTTP listener from the broker's settings."""
    advertised = config.http_advertised_listener
    return Listener(
        HTTP,
        Endpoint(*split_address(config.http_listener)),
        Limits.of(config),
        None if advertised is None else Endpoint(*split_address(advertised)),
    )


async def start_http(
    face: BrokerFace,
    listener: Listener[Limits],
    machine: str,
    busy_s: Callable[[], float],
    log_level: LogLevel,
    tls: Encryption | None = None,
    *,
    is_encrypted: bool = False,
) -> HttpServer:
    """Opens the HTTP listener for clients. `machine` is the advertised host name if it listens on all addresses;
    `busy_s` returns the total seconds that the calling thread was busy; `log_level` is changed by the settings API.
    With `tls` its state is in the metrics, and if `is_encrypted` clients must use TLS. Raises `OSError` if the address
    cannot be bound.
    """
    server: Server

    def connected() -> Connection:
        return server()  # which is made below, when it is known where clients find it

    at = listener.bind
    bound: Sequence[Listening]
    if tls is not None and is_encrypted:
        bound = await tls.bind(connected, at.host, at.port, BACKLOG)
    else:
        bound = await _bind(connected, at)
    host, port, *_ = bound[0].sockets[0].getsockname()
    metrics, admission, config = RequestMetrics(), face.admission(listener.limits), face.cluster.config
    routes, elsewhere = (ROUTES, ()) if config.http_ops_listener is None else (CLIENT, OPS)
    context = Context(
        face=face,
        admission=admission,
        limits=listener.limits,
        advertised=listener.advertised_at(Endpoint(host, port), machine),
        metrics=metrics,
        metrics_page=MetricsPage(_registry(face, metrics, tls), face),
        log_level=log_level,
        scheme="https" if is_encrypted else "http",
        openapi=cache(partial(describe, routes)),
        guard=_guard(face, admission, config.http_authentication),
    )
    _show_gauges(context)
    metrics.shed = lambda: {(str(kind), cause): count for (kind, cause), count in admission.shedding.shed.items()}
    server = Server(
        _edge(context, routes, HTTP, elsewhere).serve,
        listener.limits,
        admission.connections,
        metrics,
        face.clock.monotonic_s,
        face.shares,
        face.audit,
    )
    for listening in bound:
        await listening.start_serving()
    return HttpServer(server, bound, context, busy_s)


def _guard(face: BrokerFace, admission: Admission, methods: Sequence[str]) -> Guard | None:
    config = face.cluster.config
    if admission.is_open and not methods:
        return None
    authentication = Authentication(methods, face.login, parse_rules(config.ssl_principal_mapping_rules))
    return Guard(authentication, admission, lambda: face.cluster.image.access, face.clock)


async def start_ops(main: HttpServer, at: Endpoint, tls: Encryption | None = None) -> HttpServer:
    """Opens a second listener for health checks and metrics. It has its own connection bound, so that clients cannot
    take its places, and stops being ready when the main listener does. With `tls` it uses TLS. Raises `OSError` if the
    address cannot be bound.
    """
    face = main.context.face
    config = face.cluster.config
    limits = replace(
        main.context.limits,
        connections_max=config.http_ops_connections_max,
        probes_max=0,
        address_connections_max=None,
    )
    admission, metrics = face.admission(limits), main.context.metrics
    admission.waits = main.context.admission.waits
    guard = _guard(face, admission, config.ops_authentication)
    context = replace(main.context, admission=admission, limits=limits, guard=guard)
    edge = _edge(context, OPS, OPERATORS)
    server = Server(edge.serve, limits, admission.connections, metrics, face.clock.monotonic_s)
    bound: Sequence[Listening]
    if tls is not None:
        bound = await tls.bind(server, at.host, at.port, BACKLOG, is_ops=True)
    else:
        loop = asyncio.get_running_loop()
        bound = [await loop.create_server(server, at.host, at.port, backlog=BACKLOG, start_serving=False)]
    for listening in bound:
        await listening.start_serving()
    return HttpServer(server, bound, context)


def _edge(context: Context, routes: tuple[Route, ...], name: str, elsewhere: tuple[Route, ...] = ()) -> Edge:
    audit = context.face.audit
    return Edge(context, routes, elsewhere) if audit is None else RecordedEdge(context, routes, audit, name, elsewhere)


async def _bind(connected: Callable[[], Connection], at: Endpoint) -> list[asyncio.Server]:
    """Binds an address and duplicates its descriptor, so that several connections are accepted per turn of the event
    loop. Serves nobody yet. Raises `OSError`.
    """
    loop = asyncio.get_running_loop()
    bound = [await loop.create_server(connected, at.host, at.port, backlog=BACKLOG, start_serving=False)]
    for listening in bound[0].sockets:
        for _ in range(ACCEPTED_AT_ONCE - 1):
            twin = socket.socket(fileno=os.dup(listening.fileno()))
            bound.append(await loop.create_server(connected, sock=twin, backlog=BACKLOG, start_serving=False))
    return bound


def _registry(face: BrokerFace, metrics: RequestMetrics, tls: TlsStatus | None) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(metrics)
    registry.register(BrokerMetrics(face))
    registry.register(ClusterMetrics(face))
    registry.register(GroupMetrics(face))
    registry.register(WorkMetrics(face))
    if tls is not None:
        registry.register(TlsMetrics(tls))
    if face.login.jwts is not None:
        registry.register(JwtMetrics(face.login.jwts))
    ProcessCollector(registry=registry)
    return registry


def _show_gauges(context: Context) -> None:
    metrics, admission, busy = context.metrics, context.admission, context.busy
    metrics.gauge("tidelog_http_connections", "Open client connections.", lambda: admission.connections.open)
    metrics.gauge("tidelog_http_body_bytes", "Memory taken by request bodies.", lambda: admission.bodies.used)
    metrics.gauge("tidelog_http_answer_bytes", "Memory taken by answers under way.", lambda: admission.answers.used)
    metrics.gauge("tidelog_http_waiting_requests", "Requests that wait for data.", lambda: len(admission.waits))
    metrics.gauge(
        "tidelog_loop_lag_seconds", "How late timers fire: the median of nine.", lambda: admission.shedding.brake.lag_s
    )
    metrics.gauge(
        "tidelog_loop_busy_share",
        "The part of the last ten seconds that the event loop's thread ran, or waited for a processor.",
        lambda: busy.share,
    )
    consumers = context.face.rest_consumers
    metrics.gauge("tidelog_rest_consumers", "REST consumer instances that live here.", lambda: consumers.instances)
    metrics.gauge("tidelog_rest_consumer_bytes", "Memory of reads of REST consumers.", lambda: consumers.read_bytes)
