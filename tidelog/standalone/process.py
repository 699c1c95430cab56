"""A replica of a log by itself as a process: built, run until it is told to stop, and stopped in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import uvloop

from tidelog.adapters.disk_threads import DiskThreads
from tidelog.adapters.log_lines import LogLevel, log_to_standard_error
from tidelog.adapters.signals import stop_on_signals
from tidelog.adapters.system import SystemClock, SystemEntropy
from tidelog.adapters.tcp_network import TcpNetwork
from tidelog.broker.consensus.founding import Address
from tidelog.broker.consensus.log_member import facts_of
from tidelog.replication.election_settings import ElectionSettings
from tidelog.standalone.client import LogClient
from tidelog.standalone.directory import ReplicaDirectory, initialise
from tidelog.standalone.replica import LogReplica
from tidelog.storage.disk_files import DiskFiles
from tidelog.storage.log_manager import JOURNAL, STANDALONE_LOG
from tidelog.storage.slot_store import SlotStore

STOP_S_MAX = 5.0
LOG_LEVEL = "warning"
DEFAULT = ElectionSettings()


def initialise_directory(path: str) -> str:
    """As `initialise`, on this machine's disk."""
    return initialise(DiskFiles(path), SystemClock(), SystemEntropy())


def node_id_of(path: str) -> int:
    """Which of the servers a replica's directory belongs to; 0 if it does not say."""
    files = DiskFiles(path)
    if not files.exists(JOURNAL):
        return 0
    store, stored = SlotStore.look(files, JOURNAL, STANDALONE_LOG)
    store.close()
    facts = facts_of(stored)
    return 0 if facts is None else facts.node_id


def make_client(servers: Sequence[Address]) -> LogClient:
    """A client over TCP."""
    return LogClient(servers, TcpNetwork(), SystemClock(), SystemEntropy())


def make_replica(node_id: int, path: str, disk: DiskThreads, settings: ElectionSettings = DEFAULT) -> LogReplica:
    """A replica over TCP, on this machine's disk. Raises as `ReplicaDirectory`."""
    clock, entropy = SystemClock(), SystemEntropy()
    directory = ReplicaDirectory(DiskFiles(path), clock, entropy)
    return LogReplica(node_id, directory, TcpNetwork(), disk, clock, entropy, settings=settings)


def run_replica(node_id: int, path: str, servers: Sequence[Address], announce: Callable[[str], None]) -> str:
    """Runs one until SIGTERM or SIGINT; why it failed, or nothing. `announce` gets a line once the replica votes.

    Raises as `ReplicaDirectory` and `LogReplica.start`; `OSError` if it cannot listen.
    """
    log_to_standard_error(LOG_LEVEL)
    return uvloop.run(_serve(node_id, path, servers, announce))


async def _serve(node_id: int, path: str, servers: Sequence[Address], announce: Callable[[str], None]) -> str:
    stop = stop_on_signals(LogLevel(LOG_LEVEL).switch)
    disk = DiskThreads()
    replica = make_replica(node_id, path, disk)
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
