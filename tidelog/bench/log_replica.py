"""One replica of the log benchmark, a process: `python -m tidelog.bench.log_replica NODE COUNT DIRECTORY`.

The same engine, election, disk and peer connections as a broker's metadata log, without records and without a state
machine. Its parent talks to it in lines of JSON: it tells its port, is told everybody's, tells when it leads, is told
what to append, tells how long each append took. It ends when its input does.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Sequence

import msgspec
import structlog
import uvloop

from tidelog.adapters.disk_threads import DiskThreads
from tidelog.adapters.system import SystemClock, SystemEntropy
from tidelog.adapters.tcp_network import TcpNetwork
from tidelog.broker.log_writer import LogWriter
from tidelog.broker.quorum.campaign import Campaigner
from tidelog.broker.quorum.disk import ReplicaDisk, stored_log
from tidelog.broker.quorum.engine import Engine, Told
from tidelog.broker.quorum.messages import QUORUM_MESSAGES, ElectionFrame, PaxosFrame
from tidelog.broker.stats import Stats
from tidelog.model.errors import InvalidRequest, NotController, TidelogError
from tidelog.model.ports import Buffer
from tidelog.replication.election import Election
from tidelog.replication.election_events import LostReign, PeerDown, Promised, Won
from tidelog.replication.election_settings import ElectionSettings
from tidelog.replication.paxos.events import (
    Append,
    Applied,
    Demote,
    Elect,
    Elected,
    Found,
    Lost,
    Proposed,
    Refused,
    Started,
    StatusChanged,
)
from tidelog.replication.paxos.messages import PromiseRequest
from tidelog.replication.paxos.node import PaxosNode
from tidelog.replication.paxos.numbers import next_number
from tidelog.replication.paxos.state import Metadata, Status
from tidelog.replication.quorum import Majority
from tidelog.storage.disk_files import DiskFiles
from tidelog.storage.log_manager import METADATA_LOG
from tidelog.storage.open_files import OpenFiles
from tidelog.storage.slot_store import SlotStore
from tidelog.transport.peer import Answer, Hello, PeerNode

HOST = "127.0.0.1"
APPEND_S_MAX = 30.0
OPEN_FILES_MAX = 64
WINDOW = 64
CLUSTER = "benchmark"
DISTINCT = 64
"""Random payloads repeat after so many: none of them is in any cache that matters here."""

SETTINGS = ElectionSettings(heartbeat_ms=200, lease_ms=1_000, timeout_ms=3_000)
"""More patient than a cluster: whose leader is lost because the machine was busy has measured nothing."""


class Appends(msgspec.Struct):
    """What the leader is to append: payloads of these sizes, one after the other."""

    sizes: list[int]
    kind: str


class Measured(msgspec.Struct):
    """How it went."""

    seconds: list[float]
    """Of each append."""
    fsync_seconds: float
    """How long the leader's disk thread was at its fsyncs meanwhile."""
    elapsed_s: float
    started_s: float
    """Unix time."""


class LogReplica:
    """Made on a running loop. Node ids and voter ids are the same here: 1 to `count`."""

    def __init__(self, node: int, count: int, directory: str) -> None:
        self.elected = asyncio.Event()
        self._clock, self._entropy = SystemClock(), SystemEntropy()
        self._stats = Stats()
        self._runner = DiskThreads()
        self._writer = LogWriter(self._runner, self._clock, self._stats)
        quorum = Majority(range(1, count + 1))
        incarnation = self._entropy.token_hex(16)
        opened = OpenFiles(DiskFiles(directory), OPEN_FILES_MAX)
        opened.files.make_dirs("")
        store, stored = SlotStore.open(
            opened, "log", METADATA_LOG, new_incarnation=incarnation, now_ms=self._clock.wall_ms()
        )
        disk = ReplicaDisk(store, self._writer, msgspec.msgpack.encode)
        self._disk = disk
        engine_node = PaxosNode(node, quorum, stored_log(stored, Metadata(store.incarnation)), window=WINDOW)
        self.engine = Engine(engine_node, disk, self._post, self, self._entropy)
        election = Election(
            node,
            quorum,
            SETTINGS,
            now_s=self._clock.monotonic_s(),
            has_voted_before=False,
            uniform=self._entropy.uniform,
        )
        self._campaigner = Campaigner(
            election,
            lambda to, frame: self._post(to, frame, ()),
            campaign=self._campaign,
            resign=lambda: self.engine.step(Demote()),
            leader_changed=lambda leader: None,
            me=lambda: node,
            clock=self._clock,
        )
        hello = Hello(node, incarnation, CLUSTER)
        self._peers = PeerNode(TcpNetwork(), lambda: hello, QUORUM_MESSAGES, self, self._clock, self._entropy)
        self._peers.on_peer_down.append(lambda peer: self._campaigner.step(PeerDown(peer)))
        self._position = -1
        self._outcome: asyncio.Future[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []

    # -- life --------------------------------------------------------------------------------------------------------

    async def listen(self) -> int:
        """Returns the port."""
        return (await self._peers.listen(HOST, 0))[1]

    def start(self, ports: Sequence[int]) -> None:
        """Founds the log with the replicas at these ports, the first of node 1."""
        for peer, port in enumerate(ports, start=1):
            if peer != self.engine.node.node:
                self._peers.know(peer, HOST, port)
        for task in (self._writer.run(), self._disk.run()):
            self._tasks.append(asyncio.get_running_loop().create_task(task))
        self.engine.step(Started())
        self.engine.step(Found(CLUSTER))

    async def close(self) -> None:
        self._campaigner.close()
        self.engine.close()
        await self._peers.close()
        await self._writer.drain()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._runner.close()

    # -- appending ---------------------------------------------------------------------------------------------------

    async def measure(self, appends: Appends) -> Measured:
        """Appends one after the other, each when the one before it is agreed on and applied here.

        Raises `NotController` if this replica does not lead, or no longer; `TimeoutError`.
        """
        # Away from the loop: 64 random payloads of megabytes take longer than a leader may be silent.
        payloads = {
            size: await asyncio.to_thread(make_payloads, appends.kind, size) for size in sorted(set(appends.sizes))
        }
        seconds: list[float] = []
        fsync_before_s, started_s, unix_s = self._stats.fsync_seconds, time.perf_counter(), time.time()
        before_s = started_s
        for number, size in enumerate(appends.sizes):
            async with asyncio.timeout(APPEND_S_MAX):
                await self._append(payloads[size][number % len(payloads[size])])
            now_s = time.perf_counter()
            seconds.append(now_s - before_s)
            before_s = now_s
        return Measured(seconds, self._stats.fsync_seconds - fsync_before_s, before_s - started_s, unix_s)

    async def _append(self, payload: bytes) -> None:
        if not self.elected.is_set():
            raise NotController("this replica does not lead")
        self._outcome = asyncio.get_running_loop().create_future()
        self.engine.step(Append(1, self.engine.payloads.hold(payload)))
        await self._outcome

    def _settle(self, error: Exception | None = None) -> None:
        outcome, self._outcome, self._position = self._outcome, None, -1
        if outcome is not None and error is not None:
            outcome.set_exception(error)
        elif outcome is not None:
            outcome.set_result(None)

    def on_effect(self, effect: Told) -> None:
        """For the engine."""
        match effect:
            case StatusChanged(Status.VOTING):
                self._campaigner.begin()
            case Proposed(position):
                self._position = position
            case Applied(position) if position == self._position:
                self._settle()
            case Elected(number):
                self._campaigner.step(Won(number))
                self.elected.set()
            case Lost(number):
                self._on_lost(number)
            case Refused(Elect(number)):
                self._on_lost(number)
            case Refused(Append()):
                self._settle(NotController(f"the append was refused: {effect.reason.value}"))
            case _:
                pass

    def _on_lost(self, number: int) -> None:
        self.elected.clear()
        self._settle(NotController("the leader changed during the benchmark"))
        self._campaigner.step(LostReign(number))

    # -- elections and messages --------------------------------------------------------------------------------------

    def _campaign(self) -> None:
        node = self.engine.node
        number = max(node.next_number(), next_number(self._campaigner.election.number, node.node))
        self._campaigner.step(Promised(number))
        self.engine.step(Elect(number))

    def _post(self, to: int, frame: PaxosFrame | ElectionFrame, payloads: Sequence[Buffer]) -> None:
        self._peers.notify(to, frame, payloads)

    async def handle(self, caller: Hello, message: msgspec.Struct, payload: memoryview) -> Answer:
        """For `PeerNode`; replicas ask each other nothing."""
        raise InvalidRequest("a replica of the log benchmark answers no requests")

    def notified(self, caller: Hello, message: msgspec.Struct, payload: memoryview) -> None:
        """For `PeerNode`."""
        if isinstance(message, ElectionFrame):
            self._campaigner.receive(message)
        elif isinstance(message, PaxosFrame):
            if isinstance(message.message, PromiseRequest):
                if not self._campaigner.may_promise(message.sender):
                    return
                self._campaigner.step(Promised(message.message.number))
            self.engine.receive(message, payload)


def make_payloads(kind: str, size: int) -> list[bytes]:
    """What Mesos' benchmark offers: all zeros, all ones, random bytes."""
    if kind == "random":
        return [os.urandom(size) for _ in range(DISTINCT)]
    return [(b"\x00" if kind == "zero" else b"\xff") * size]


# -- the process -----------------------------------------------------------------------------------------------------


def _say(message: object) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(message) + b"\n")
    sys.stdout.buffer.flush()


async def _run(node: int, count: int, directory: str) -> None:
    replica = LogReplica(node, count, directory)
    _say(await replica.listen())
    replica.start(msgspec.json.decode(await asyncio.to_thread(sys.stdin.buffer.readline), type=list[int]))
    announcing = asyncio.get_running_loop().create_task(_announce(replica, node))
    while line := await asyncio.to_thread(sys.stdin.buffer.readline):
        try:
            _say(await replica.measure(msgspec.json.decode(line, type=Appends)))
        except (TidelogError, TimeoutError) as error:
            _say(str(error) or "an append had no outcome in time")
    announcing.cancel()
    await replica.close()


async def _announce(replica: LogReplica, node: int) -> None:
    await replica.elected.wait()
    _say({"leader": node})


if __name__ == "__main__":
    structlog.configure(  # the parent reads standard output; that peers come and go is no news here
        wrapper_class=structlog.make_filtering_bound_logger("error"),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal tells all; the parent ends this one
    uvloop.run(_run(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
