"""Assembly of a broker process: builds and wires its parts, and decides the order of start and stop.

Start: disk, broker, listener (so that port 0 becomes a number), then the broker joins its cluster under that address
and is ready; until then it may be stopped as at any time. Stop: the broker hands over what it leads, and serves
meanwhile; the listener takes no more connections, ends its waits and finishes the requests under way; the broker leaves
its cluster and flushes what is appended, the logs are marked clean, the disk threads end.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import structlog
import uvloop

from tidelog.adapters.descriptors import raise_open_files_limit
from tidelog.adapters.disk_threads import DiskThreads
from tidelog.adapters.heap import keep_freed_memory
from tidelog.adapters.log_lines import LogLevel, log_to_standard_error
from tidelog.adapters.secret_files import read_secret
from tidelog.adapters.signals import stop_on_signals
from tidelog.adapters.system import SystemClock, SystemEntropy, host_name, thread_busy_s
from tidelog.adapters.tcp_network import TcpNetwork
from tidelog.broker.auditing import Auditing
from tidelog.broker.broker import STEP_ASIDE_S_MAX, Broker
from tidelog.broker.face.login import first_token
from tidelog.broker.http.server import HttpServer, http_listener, start_http, start_ops
from tidelog.broker.joining import peer_contacts
from tidelog.broker.membership.registration import SHUTDOWN_S_MAX
from tidelog.broker.metadata.bootstrap import Contacts, no_contacts
from tidelog.broker.replicas.hand_over import HAND_OVER_S_MAX, HOLD_S_MAX
from tidelog.broker.runtime.descriptors import share
from tidelog.broker.runtime.progress import IN_FORCE_S_MAX
from tidelog.config.errors import ConfigError
from tidelog.config.schema import BrokerConfig
from tidelog.config.values import split_address
from tidelog.model.cluster import Endpoint
from tidelog.model.credentials import Token
from tidelog.model.errors import InvalidRequest, OldDirectory
from tidelog.model.passwords import check_library
from tidelog.model.ports import Entropy
from tidelog.storage.disk_files import DiskFiles
from tidelog.transport.credentials import bearer
from tidelog.transport.peer.node import DEFAULT_BOUNDS as PEER_BOUNDS

STOP_GRACE_S = 5.0
"""How long requests may take to end once the broker has handed over what it leads."""
LINGER_S = 0.5
"""Connections without a request stay open for so long, if there are other brokers: the client may be just about to send
one, and learns with the answer that it is the last. Clients of a lone broker have nowhere to go."""
CLOSE_S_MAX = 20.0
"""How long it may take to flush and close what is open, after that and after the cluster was told: many logs, on a busy
machine. Who kills earlier loses nothing but time at the next start."""
LEAVE_S_MAX = HAND_OVER_S_MAX + HOLD_S_MAX + IN_FORCE_S_MAX + STEP_ASIDE_S_MAX
"""How long it may take to hand over; a hundredth of that is usual."""
STOP_S_MAX = LEAVE_S_MAX + STOP_GRACE_S + SHUTDOWN_S_MAX + CLOSE_S_MAX
GC_THRESHOLDS = (20_000, 50, 50)

logger = structlog.get_logger("tidelog.broker")


def run(config: BrokerConfig, announce: Callable[[str], None]) -> int:
    """Runs one broker until SIGTERM or SIGINT; `announce` gets the ready line once requests are served.

    Returns the process's exit status: 0 after a graceful stop, 1 if a fault stopped it. Raises `TidelogError` or
    `OSError` if the broker cannot start.
    """
    log_to_standard_error(config.log_level, config.log_format)
    keep_freed_memory()
    limit = raise_open_files_limit()
    descriptors = share(limit, config.http_connections_max, PEER_BOUNDS.connections_max)
    if descriptors.clients < config.http_connections_max:
        logger.warning(
            "few files may be open, so fewer clients may connect than http.connections.max says; raise the limit "
            "(ulimit -n, LimitNOFILE=)",
            limit=limit,
            clients=descriptors.clients,
            files=descriptors.files,
        )
        config = config.model_copy(update={"http_connections_max": descriptors.clients})
    first = _first_token(config)
    _settle_memory()
    while True:
        try:
            return uvloop.run(_serve(config, descriptors.files, first, announce))
        except OldDirectory as error:  # noted on the disk by now, so that it does not come twice
            logger.error("beginning anew on the data directory", reason=str(error))


def _first_token(config: BrokerConfig) -> Token | None:
    """Returns the first administrator's token. Raises `ConfigError` for it, or if passwords cannot be verified here."""
    problem = check_library() if "basic" in config.http_authentication else ""
    if problem:
        raise ConfigError(f"http.authentication: {problem}")
    if config.http_bootstrap_token_file is None:
        return None
    try:
        return first_token(read_secret(config.http_bootstrap_token_file), config.super_users)
    except InvalidRequest as error:
        raise ConfigError(f"http.bootstrap.token.file: {error}") from None


def _contacts(config: BrokerConfig, entropy: Entropy) -> Contacts:
    """Returns how to find the cluster that this broker is to join. Raises `InvalidRequest` for its token."""
    if config.cluster_join is None:
        return no_contacts
    file = config.cluster_join_token_file
    credentials = None if file is None else bearer(read_secret(file))
    return partial(peer_contacts, config.cluster_join, entropy, credentials)


async def _serve(
    config: BrokerConfig, open_files_max: int, first: Token | None, announce: Callable[[str], None]
) -> int:
    log_level = LogLevel(config.log_level)
    stop_requested = stop_on_signals(log_level.switch)
    disk, entropy = DiskThreads(), SystemEntropy()
    worker, hasher = DiskThreads(1, name="tidelog-codecs"), DiskThreads(1, name="tidelog-passwords")
    contacts = _contacts(config, entropy)
    network = TcpNetwork(http_address=lambda: config.http_listener)
    files = DiskFiles(config.log_dir)
    broker = Broker(config, files, SystemClock(), entropy, disk, network, contacts, open_files_max, worker, hasher)
    broker.face.login.first_token = first
    servers: list[HttpServer] = []
    auditing = Auditing(config)
    try:
        listener = http_listener(config)
        server = await start_http(auditing.open(broker), listener, host_name(), thread_busy_s, log_level)
        servers.append(server)
        if config.http_ops_listener is not None:
            servers.append(await start_ops(server, Endpoint(*split_address(config.http_ops_listener))))
        if not await _start(broker, {listener.name: server.advertised}, stop_requested):
            return _status(broker)
        await auditing.note_recoveries(broker)
        _settle_memory()
        bound = Endpoint(listener.bind.host, server.address[1])
        announce(f"tidelog: ready http://{bound} cluster={broker.cluster_id} node={broker.node_id}")
        await _first_of(stop_requested, broker.failed)
    finally:
        has_stopped = await _stop(servers, broker, disk, worker, hasher)
        await auditing.close()
    return _status(broker) if has_stopped else 1


async def _stop(servers: Sequence[HttpServer], broker: Broker, *threads: DiskThreads) -> bool:
    """Stops in order; False if that takes too long. Then the process ends as if it were killed."""
    try:
        async with asyncio.timeout(STOP_S_MAX):
            await broker.hand_over()
            linger_s = LINGER_S if broker.others else 0.0
            await asyncio.gather(*(server.stop(STOP_GRACE_S, linger_s=linger_s) for server in servers))
            await broker.stop()
            for each in threads:
                each.close()
    except TimeoutError:
        logger.critical(
            "the broker could not stop in time; the next start reads what was not closed", stage=broker.stage
        )
        return False
    return True


def _status(broker: Broker) -> int:
    """A broker that its cluster removed has ended well: whatever restarts one that failed would have it join again.
    Raises `OldDirectory` if it has to begin anew."""
    if broker.failed.is_set() and broker.is_old:
        raise OldDirectory("the data directory is an old copy")
    return 1 if broker.failed.is_set() and not broker.is_removed else 0


async def _start(broker: Broker, listeners: Mapping[str, Endpoint], stop_requested: asyncio.Event) -> bool:
    """Starts the broker; False if it was stopped, or failed, before it was ready."""
    started = asyncio.Event()
    starting = asyncio.ensure_future(broker.start(listeners))
    starting.add_done_callback(lambda _: started.set())
    await _first_of(started, stop_requested, broker.failed)
    if starting.done():
        starting.result()
        return True
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    return False


async def _first_of(*events: asyncio.Event) -> None:
    happened = asyncio.Event()

    async def watch(event: asyncio.Event) -> None:
        await event.wait()
        happened.set()

    watchers = [asyncio.ensure_future(watch(event)) for event in events]
    await happened.wait()
    for watcher in watchers:
        watcher.cancel()


def _settle_memory() -> None:
    """Takes all objects that exist now out of garbage collection: first the modules, then those of the start. They
    stay, so looking through them again and again would only delay the start and stall requests. They are not collected
    even once: of 66,000 objects 2,000 are garbage, not worth an eighth of the time that a start takes."""
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
