"""Starts and stops the HTTP listener of a broker."""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry, ProcessCollector

from tidelog.broker.face.face import BrokerFace
from tidelog.broker.http.broker_metrics import BrokerMetrics
from tidelog.broker.http.cluster_metrics import ClusterMetrics
from tidelog.broker.http.connection import Server
from tidelog.broker.http.context import Context
from tidelog.broker.http.edge import Edge
from tidelog.broker.http.group_metrics import GroupMetrics
from tidelog.broker.http.limits import Limits
from tidelog.broker.http.metrics import RequestMetrics
from tidelog.broker.http.openapi import describe
from tidelog.broker.http.routes import ROUTES

BACKLOG = 1024
"""Connections that the system completes for us while we are busy."""


class HttpServer:
    """A listener that serves. `address` is where it is bound."""

    def __init__(self, server: Server, listener: asyncio.Server, context: Context) -> None:
        self._server = server
        self._listener = listener
        self._context = context
        self.registry = context.registry
        """What `/metrics` shows."""
        host, port, *_ = listener.sockets[0].getsockname()
        self.address: tuple[str, int] = (host, port)

    async def stop(self, grace_s: float) -> None:
        """Takes no more connections, ends waits at once, gives requests under way `grace_s` to finish, and cuts the
        rest. Idempotent."""
        self._listener.close()
        self._context.admission.close()
        self._server.pre_shutdown()
        await self._server.shutdown(grace_s / 2)  # a request gets that long twice: to end, and to be cancelled


async def start_http(face: BrokerFace, host: str, port: int, *, limits: Limits | None = None) -> HttpServer:
    """Opens the listener; port 0 takes any free one. Raises `OSError` if the address cannot be had."""
    limits = limits or Limits.of(face.cluster.config)
    metrics = RequestMetrics()
    registry = CollectorRegistry(auto_describe=False)
    registry.register(metrics)
    registry.register(BrokerMetrics(face))
    registry.register(ClusterMetrics(face))
    registry.register(GroupMetrics(face))
    ProcessCollector(registry=registry)
    admission = face.admission(limits)
    context = Context(
        face=face,
        admission=admission,
        limits=limits,
        metrics=metrics,
        registry=registry,
        openapi=describe(ROUTES),
    )
    metrics.gauge("tidelog_http_connections", "Open client connections.", lambda: admission.connections.open)
    metrics.gauge("tidelog_http_body_bytes", "Memory taken by request bodies.", lambda: admission.bodies.used)
    metrics.gauge("tidelog_http_answer_bytes", "Memory taken by answers under way.", lambda: admission.answers.used)
    metrics.gauge("tidelog_http_waiting_requests", "Requests that wait for data.", lambda: len(admission.waits))
    consumers = face.rest_consumers
    metrics.gauge("tidelog_rest_consumers", "REST consumer instances that live here.", lambda: consumers.instances)
    metrics.gauge("tidelog_rest_consumer_bytes", "Memory taken by their reads.", lambda: consumers.read_bytes)
    server = Server(Edge(context, ROUTES).serve, limits, admission.connections, metrics)
    listener = await asyncio.get_running_loop().create_server(server, host, port, backlog=BACKLOG)
    return HttpServer(server, listener, context)
