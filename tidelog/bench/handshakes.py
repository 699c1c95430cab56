"""Benchmark of new connections: how many a broker accepts per CPU second, in plain text, with TLS, and with TLS and a
client certificate.

Each connection carries one request, so that only handshakes that are complete on both sides count. The clients are in
this process, and a handshake costs them as much; so the figure is the CPU time of the broker's process, not connections
per second. The TLS broker requests client certificates, and accepts connections without one.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from tidelog.bench.costs import cpu_of
from tidelog.bench.secured import Level, secured_cluster
from tidelog.testing import BrokerProcess
from tidelog.transport.security import Security

AT_ONCE: Final = 8
WARM_UP: Final = 50
SETTLE_S: Final = 0.2
ANSWER_S_MAX: Final = 30.0
REQUEST: Final = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
ASKING: Final = {"ssl.client.auth": "requested"}


async def measure_handshakes(connections: int, rounds: int) -> dict[str, float]:
    """Returns, for each kind of connection, the broker's CPU milliseconds per connection, and the connections per CPU
    second."""
    async with secured_cluster(Level.PLAIN) as plain, secured_cluster(Level.TLS, settings=ASKING) as closed:
        made = closed.cluster.certificates
        assert made is not None
        contexts = {
            "plain": None,
            "tls": Security(ssl_ca_location=str(made.ca)).context(),
            "mtls": Security(ssl_ca_location=str(made.ca), ssl_keystore_location=str(made.client())).context(),
        }
        spent: dict[str, list[float]] = {name: [] for name in contexts}
        for _ in range(rounds):
            for name, context in contexts.items():
                broker = (plain if context is None else closed).cluster.broker()
                spent[name].append(await _cpu_s_each(broker, context, connections))
    return {key: value for name, seconds in spent.items() for key, value in _figures(name, seconds).items()}


def _figures(name: str, seconds: Sequence[float]) -> dict[str, float]:
    median_s = sorted(seconds)[len(seconds) // 2]
    figures = {f"{name}_connection_broker_cpu_ms": 1000 * median_s}
    if median_s:  # 0 if the connections were too few for the system's clock of processes to move
        figures[f"{name}_connections_per_core_s"] = 1 / median_s
    return figures


async def _cpu_s_each(broker: BrokerProcess, context: ssl.SSLContext | None, connections: int) -> float:
    """Returns the CPU seconds of the broker's process per connection."""
    await _connect_all(broker.url, context, WARM_UP)
    before = cpu_of(broker.pid)
    await _connect_all(broker.url, context, connections)
    await asyncio.sleep(SETTLE_S)
    return cpu_of(broker.pid).since(before).total_s / connections


async def _connect_all(url: str, context: ssl.SSLContext | None, connections: int) -> None:
    parts = urlsplit(url)
    pending = iter(range(connections))

    async def connect() -> None:
        for _ in pending:  # shared: each number is one connection
            async with asyncio.timeout(ANSWER_S_MAX):
                await _ask_once(parts.hostname or "", parts.port or 0, context)

    await asyncio.gather(*(connect() for _ in range(AT_ONCE)))


async def _ask_once(host: str, port: int, context: ssl.SSLContext | None) -> None:
    reader, writer = await asyncio.open_connection(host, port, ssl=context)
    try:
        writer.write(REQUEST)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
