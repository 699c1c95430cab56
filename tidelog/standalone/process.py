"""A replica of a standalone log as a process: created, run until a signal, and stopped in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import uvloop

from tidelog.adapters.disk_threads import DiskThreads
from tidelog.adapters.log_lines import LogLevel, log_to_standard_error
from tidelog.adapters.secret_file import read_shared_secret
from tidelog.adapters.signals import stop_on_signals
from tidelog.adapters.system import SystemClock, SystemEntropy, addresses_of
from tidelog.adapters.tcp_network import TcpNetwork
from tidelog.broker.consensus.founding import Address
from tidelog.broker.consensus.log_member import metainfo_of
from tidelog.config.errors import ConfigError
from tidelog.config.exposure import is_loopback
from tidelog.replication.election_settings import ElectionSettings
from tidelog.standalone.client import LogClient
from tidelog.standalone.directory import ReplicaDirectory, initialise
from tidelog.standalone.replica import LogReplica
from tidelog.storage.disk_files import DiskFiles
from tidelog.storage.log_manager import JOURNAL, STANDALONE_LOG
from tidelog.storage.slot_store import SlotStore
from tidelog.transport.peer import ClusterSecret

STOP_S_MAX = 5.0
LOG_LEVEL = "warning"
DEFAULT = ElectionSettings()


def initialise_directory(path: str) -> str:
    """Initialises a directory on this machine's disk, so that its replica may found a log; returns the incarnation id.
    Raises `DirectoryRefused` if something is in it, a replica included; `ConfigError` if another process has locked it,
    or another version wrote it; `OSError`."""
    return initialise(DiskFiles(path), SystemClock(), SystemEntropy())


def node_id_of(path: str) -> int:
    """Returns the node id of the server that a replica's directory belongs to; 0 if none is stored."""
    files = DiskFiles(path)
    if not files.exists(JOURNAL):
        return 0
    store, stored = SlotStore.look(files, JOURNAL, STANDALONE_LOG)
    store.close()
    metainfo = metainfo_of(stored)
    return 0 if metainfo is None else metainfo.node_id


def make_client(servers: Sequence[Address], secret_file: str | None = None) -> LogClient:
    """Returns a client over TCP. Raises `ConfigError` if the secret's file is invalid."""
    return LogClient(servers, TcpNetwork(), SystemClock(), SystemEntropy(), _secret(secret_file))


def _secret(file: str | None) -> ClusterSecret | None:
    return None if file is None else ClusterSecret(read_shared_secret(file, "--secret-file"))


def make_replica(
    node_id: int,
    path: str,
    disk: DiskThreads,
    settings: ElectionSettings = DEFAULT,
    secret: ClusterSecret | None = None,
) -> LogReplica:
    """Returns a replica over TCP, on this machine's disk. Raises `DirectoryRefused` if something else is in the
    directory, or promises of the replica are lost; `ConfigError` if another process has locked it, or another version
    wrote it; `OSError`."""
    clock, entropy = SystemClock(), SystemEntropy()
    directory = ReplicaDirectory(DiskFiles(path), clock, entropy)
    return LogReplica(node_id, directory, TcpNetwork(), disk, clock, entropy, settings=settings, secret=secret)


def run_replica(
    node_id: int,
    path: str,
    servers: Sequence[Address],
    announce: Callable[[str], None],
    secret_file: str | None = None,
    *,
    allow_insecure: bool = False,
) -> str:
    """Runs a replica until SIGTERM or SIGINT; returns why it failed, or an empty string. `announce` is called with a
    line once the replica votes.

    Raises `DirectoryRefused` if the directory holds something else, or promises of the replica are lost, or belongs to
    another log; `OSError` if it cannot listen, or the disk fails; `ConfigError` if another process has locked the
    directory, another version wrote it, or a server belongs to another log, if other machines could reach a replica
    that has no secret, and that is not allowed, or if the secret's file is invalid.
    """
    log_to_standard_error(LOG_LEVEL)
    secret = _secret(secret_file)
    host, port = servers[node_id - 1]
    if secret is None and not allow_insecure and not is_loopback(host, addresses_of):
        raise ConfigError(
            f"{host}:{port} can be reached from other machines, and the replica believes whoever comes: give all of "
            "them the same --secret-file. If nobody else reaches this network, --allow-insecure starts it all the same"
        )
    return uvloop.run(_serve(node_id, path, servers, announce, secret))


async def _serve(
    node_id: int,
    path: str,
    servers: Sequence[Address],
    announce: Callable[[str], None],
    secret: ClusterSecret | None,
) -> str:
    stop = stop_on_signals(LogLevel(LOG_LEVEL).switch)
    disk = DiskThreads()
    replica = make_replica(node_id, path, disk, secret=secret)
    work = asyncio.ensure_future(_take_part(replica, servers, announce))
    try:
        ends = [asyncio.ensure_future(event.wait()) for event in (stop, replica.failed)]
        await asyncio.wait([work, *ends], return_when=asyncio.FIRST_COMPLETED)
        if work.done() and not stop.is_set():
            work.result()
        for end in ends:
            end.cancel()
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        async with asyncio.timeout(STOP_S_MAX):
            await replica.close()
        disk.close()
    return replica.failure


async def _take_part(replica: LogReplica, servers: Sequence[Address], announce: Callable[[str], None]) -> None:
    host, port = await replica.listen(servers[replica.node_id - 1])
    await replica.start(servers)
    await replica.has_voted_in.wait()
    announce(f"tidelog: replica {host}:{port} votes log={replica.log_id} node={replica.node_id}")
    await asyncio.Event().wait()
