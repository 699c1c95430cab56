"""Assembly of a broker process: builds and connects its parts, and defines the order of start and stop.

Start: disk, broker, listener (so that a configured port 0 gets its number); then the broker joins its cluster under
that address and is ready. It may be stopped at any time before. Stop: the broker hands over its leaderships while it
still serves; the listeners accept no more connections, end waiting requests and finish those in progress; pending audit
events are written to their topic; the broker leaves its cluster, flushes appended records, marks the logs as clean, and
the disk threads end.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import structlog
import uvloop

from tidelog.adapters.client_network import ClientNetwork
from tidelog.adapters.descriptors import raise_open_files_limit
from tidelog.adapters.disk_threads import DiskThreads
from tidelog.adapters.frame_protocol import PortWords
from tidelog.adapters.heap import collect_seldom, keep_freed_memory
from tidelog.adapters.jwt_store import JwtStore
from tidelog.adapters.log_lines import LogLevel, log_to_standard_error
from tidelog.adapters.secret_file import read_secret, read_shared_secret
from tidelog.adapters.signals import stop_on_signals
from tidelog.adapters.system import SystemClock, SystemEntropy, addresses_of, host_name, thread_busy_s
from tidelog.adapters.tcp_network import TcpNetwork, TlsNetwork
from tidelog.adapters.tls_listener import HANDSHAKES_MAX
from tidelog.adapters.tls_store import TlsStore
from tidelog.broker.auditing import Auditing
from tidelog.broker.broker import Broker
from tidelog.broker.face.brake import Brake
from tidelog.broker.face.face import BrokerFace
from tidelog.broker.face.jwt_login import JwtLogin, terms_of
from tidelog.broker.face.login import first_token
from tidelog.broker.http.server import HttpServer, http_listener, start_http, start_ops
from tidelog.broker.joining import peer_contacts
from tidelog.broker.membership.registration import SHUTDOWN_S_MAX
from tidelog.broker.metadata.bootstrap import Contacts, no_contacts
from tidelog.broker.replicas.hand_over import HAND_OVER_S_MAX, HOLD_S_MAX
from tidelog.broker.replicas.handing_over import STEP_ASIDE_S_MAX
from tidelog.broker.runtime.descriptors import share
from tidelog.broker.runtime.progress import IN_FORCE_S_MAX
from tidelog.config.errors import ConfigError
from tidelog.config.exposure import exposed, not_allowed, token_in_plain_text
from tidelog.config.schema import BrokerConfig
from tidelog.config.values import split_address
from tidelog.model.cluster import KAFKA, Endpoint
from tidelog.model.credentials import Token
from tidelog.model.errors import InvalidRequest, OldDirectory
from tidelog.model.passwords import check_library
from tidelog.model.ports import Entropy
from tidelog.storage.disk_files import DiskFiles
from tidelog.transport.peer import ClusterSecret, PeerBounds
from tidelog.transport.security import Security

if TYPE_CHECKING:
    from tidelog.broker.kafka.server import KafkaServer

STOP_GRACE_S = 5.0
"""Seconds that requests may take to end once the broker has handed over its leaderships."""
LINGER_S = 0.5
"""Seconds that connections without a request stay open at a stop, if there are other brokers: a client that is about to
send a request learns from the answer that the connection closes. The clients of a single broker have no other broker to
go to."""
CLOSE_S_MAX = 20.0
"""Seconds that it may take to flush and close all logs after the broker has left the cluster. A broker that is killed
earlier loses only time at its next start."""
LEAVE_S_MAX = HAND_OVER_S_MAX + HOLD_S_MAX + IN_FORCE_S_MAX + STEP_ASIDE_S_MAX
"""Seconds that handing over the leaderships may take; a hundredth of that is usual."""
STOP_S_MAX = LEAVE_S_MAX + STOP_GRACE_S + SHUTDOWN_S_MAX + CLOSE_S_MAX
KAFKA_WORDS = PortWords(
    "This port of a tidelog broker speaks Kafka's protocol.",
    "it speaks HTTP, and this port Kafka's protocol",
    "it speaks TLS, and this port plain text: see kafka.security.protocol",
)

logger = structlog.get_logger("tidelog.broker")


def run(config: BrokerConfig, announce: Callable[[str], None]) -> int:
    """Runs one broker until SIGTERM or SIGINT; `announce` is called with the ready line once requests are served.

    Returns the process's exit status: 0 after a graceful stop, 1 if a fault stopped it. Raises `TidelogError` or
    `OSError` if the broker cannot start.
    """
    log_to_standard_error(config.log_level, config.log_format)
    safeguards = _secure(config)
    keep_freed_memory()
    limit = raise_open_files_limit()
    descriptors = share(limit, _clients(config), _other_connections(config))
    if descriptors.clients < _clients(config):
        logger.warning(
            "few files may be open, so fewer clients may connect than http.connections.max and kafka.connections.max "
            "say; raise the limit (ulimit -n, LimitNOFILE=)",
            limit=limit,
            clients=descriptors.clients,
            files=descriptors.files,
        )
        config = config.model_copy(update=_shared_out(config, descriptors.clients))
    _settle_memory()
    while True:
        try:
            return uvloop.run(_serve(config, safeguards, descriptors.files, announce))
        except OldDirectory as error:  # noted on the disk by now, so that it does not come twice
            logger.error("beginning anew on the data directory", reason=str(error))


def _clients(config: BrokerConfig) -> int:
    """Returns the number of client connections that the settings allow."""
    return config.http_connections_max + (0 if config.kafka_address is None else config.kafka_connections_max)


def _shared_out(config: BrokerConfig, clients: int) -> dict[str, int]:
    """Returns the connection limits of the HTTP and the Kafka listener by setting, which add up to `clients`, in the
    ratio of the configured limits."""
    http = max(1, clients * config.http_connections_max // _clients(config))
    return {"http_connections_max": http, "kafka_connections_max": max(1, clients - http)}


def _other_connections(config: BrokerConfig) -> int:
    """Returns the maximum number of other connections: of brokers, of operators, and in their TLS handshakes."""
    protocols = (
        config.http_security_protocol,
        config.security_inter_broker_protocol,
        config.http_ops_security_protocol,
        "SSL" if config.kafka_address is not None and config.is_kafka_encrypted else "",
    )
    operators = 0 if config.http_ops_listener is None else config.http_ops_connections_max
    peers = PeerBounds(data_lanes=config.paxos_peer_lanes).accepted_max
    return peers + operators + HANDSHAKES_MAX * protocols.count("SSL")


class Safeguards(NamedTuple):
    """Secrets and access rules that are settled before the broker starts."""

    secret: ClusterSecret | None
    insecure_listeners: list[str]
    first_token: Token | None
    """The token of the first administrator, from `http.bootstrap.token.file`; None if there is none."""


def _secure(config: BrokerConfig) -> Safeguards:
    """Reads the secrets, and checks for listeners that are open to strangers. Raises `ConfigError` if that is not
    allowed."""
    path = config.cluster_secret_file
    secret = ClusterSecret(read_shared_secret(path, "cluster.secret.file")) if path is not None else None
    insecure_listeners = exposed(config, addresses_of)
    doubtful = [*insecure_listeners, *token_in_plain_text(config, addresses_of)]
    if doubtful and not config.security_allow_insecure:
        raise not_allowed(doubtful)
    for sentence in doubtful:
        logger.warning("not secure, as security.allow.insecure allows", reason=sentence)
    return Safeguards(secret, insecure_listeners, _first_token(config))


def _first_token(config: BrokerConfig) -> Token | None:
    """Returns the first administrator's token, None if no file names one. Raises `ConfigError` if it is invalid, or if
    passwords cannot be verified on this machine."""
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
    """Returns a function that finds the brokers of the cluster that this broker is to join. Raises `InvalidRequest` for
    an invalid token."""
    if config.cluster_join is None:
        return no_contacts
    security = _as_client(config)
    return partial(peer_contacts, config.cluster_join, entropy, security.credentials(read_secret), security)


async def _serve(
    config: BrokerConfig, safeguards: Safeguards, open_files_max: int, announce: Callable[[str], None]
) -> int:
    log_level = LogLevel(config.log_level)
    tls = TlsStore(config) if config.uses_tls else None
    jwts = JwtStore(config) if config.takes_jwts else None
    stores = [store for store in (tls, jwts) if store is not None]
    stop_requested = stop_on_signals(log_level.switch, *(store.reload for store in stores))
    disk, entropy = DiskThreads(), SystemEntropy()
    worker, hasher = DiskThreads(1, name="tidelog-codecs"), DiskThreads(1, name="tidelog-passwords")
    broker = Broker(
        config,
        DiskFiles(config.log_dir),
        SystemClock(),
        entropy,
        disk,
        _network(config, tls),
        _contacts(config, entropy),
        open_files_max,
        worker,
        hasher=hasher,
        secret=safeguards.secret,
        insecure_listeners=safeguards.insecure_listeners,
    )
    broker.face.login.first_token = safeguards.first_token
    if jwts is not None:
        broker.face.login.jwts = JwtLogin(terms_of(config), jwts, SystemClock(), entropy)
    servers: list[HttpServer | KafkaServer] = []
    watching = [asyncio.create_task(store.watch()) for store in stores]
    is_encrypted = config.http_security_protocol == "SSL"
    auditing = Auditing(config)
    try:
        listener, face = http_listener(config), auditing.open(broker, tls)
        server = await start_http(face, listener, host_name(), thread_busy_s, log_level, tls, is_encrypted=is_encrypted)
        servers.append(server)
        more, advertised = "", {listener.name: server.advertised}
        if config.http_ops_listener is not None:
            at = Endpoint(*split_address(config.http_ops_listener))
            servers.append(await start_ops(server, at, tls if config.http_ops_security_protocol == "SSL" else None))
            more = f" ops={Endpoint(at.host, servers[-1].address[1])}"
        kafka = await _open_kafka(config, face, tls, server.context.admission.shedding.brake, log_level)
        if kafka is not None:
            servers.append(kafka)
            server.context.metrics_page.registry.register(kafka.metrics)
            advertised[KAFKA] = kafka.advertised
            more += f" kafka={kafka.bound}"
        if not await _start(broker, advertised, stop_requested):
            return _status(broker)
        if kafka is not None:
            await kafka.serve()
        await auditing.note_recoveries(broker)
        _settle_memory()
        bound = Endpoint(listener.bind.host, server.address[1])
        scheme = server.context.scheme
        announce(f"tidelog: ready {scheme}://{bound} cluster={broker.cluster_id} node={broker.node_id}{more}")
        await _first_of(stop_requested, broker.failed)
    finally:
        has_stopped = await _stop(servers, broker, auditing, disk, worker, hasher)
        for task in watching:
            task.cancel()
        await auditing.close()
    return _status(broker) if has_stopped else 1


async def _open_kafka(
    config: BrokerConfig, face: BrokerFace, tls: TlsStore | None, brake: Brake, log_level: LogLevel
) -> KafkaServer | None:
    """Binds the address for Kafka clients. Returns None if none is configured, or if the default address is taken.
    Raises `OSError` if a configured address is taken."""
    if config.kafka_address is None:
        return None
    from tidelog.broker.kafka.server import KafkaServer, kafka_listener  # noqa: PLC0415 -- a start without it is quicker

    listener = kafka_listener(config)
    assert listener is not None
    server = KafkaServer(face, listener, host_name(), brake, log_level)
    network = ClientNetwork(KAFKA_WORDS, lambda: config.http_listener, tls if config.is_kafka_encrypted else None)
    try:
        await server.open(network)
    except OSError as error:
        if config.kafka_listener is not None:
            raise
        logger.warning(
            "Kafka's clients cannot connect: the address is taken", address=str(listener.bind), error=str(error)
        )
        return None
    return server


def _network(config: BrokerConfig, tls: TlsStore | None) -> TcpNetwork:
    """Returns the network to the other brokers, in plain text or with TLS."""
    if tls is not None and config.security_inter_broker_protocol == "SSL":
        return TlsNetwork(tls, http_address=lambda: config.http_listener)
    return TcpNetwork(http_address=lambda: config.http_listener)


def _as_client(config: BrokerConfig) -> Security:
    """Returns the security parameters with which this broker, as a client, asks a broker of the cluster to join over
    HTTP."""
    if not (config.cluster_join or "").startswith("https:"):
        return Security(token_file=config.cluster_token_file)
    return Security(
        ssl_ca_location=config.ssl_truststore_location,
        ssl_keystore_location=config.ssl_keystore_location,
        token_file=config.cluster_token_file,
    )


async def _stop(
    servers: Sequence[HttpServer | KafkaServer], broker: Broker, auditing: Auditing, *threads: DiskThreads
) -> bool:
    """Stops listeners, broker and disk threads in order. Returns False if that takes longer than `STOP_S_MAX` seconds;
    the process then ends as if killed."""
    try:
        async with asyncio.timeout(STOP_S_MAX):
            await broker.hand_over()
            linger_s = LINGER_S if broker.others else 0.0
            await asyncio.gather(*(server.stop(STOP_GRACE_S, linger_s=linger_s) for server in servers))
            await auditing.publish()
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
    """Returns the exit status of the process: 0 also for a broker that was removed from its cluster, since a restart
    would let it join again. Raises `OldDirectory` if it has to begin anew on its directory."""
    if broker.failed.is_set() and broker.is_old:
        raise OldDirectory("the data directory is an old copy")
    return 1 if broker.failed.is_set() and not broker.is_removed else 0


async def _start(broker: Broker, listeners: Mapping[str, Endpoint], stop_requested: asyncio.Event) -> bool:
    """Starts the broker; returns False if it was stopped, or failed, before it was ready."""
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
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()


def _settle_memory() -> None:
    """Takes all existing objects out of garbage collection: the modules, and later the objects of the start. They stay,
    so examining them repeatedly would only delay requests. They are not collected even once: of 66,000 objects 2,000
    are garbage, not worth an eighth of the start's time."""
    gc.freeze()
    collect_seldom()
