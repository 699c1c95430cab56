"""A broker with a replica of a Paxos partition: a process that crashes and starts again, on a simulated disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from tests.unit.broker.isr.stage import PARTITION
from tidelog.broker.partitions.throttle import Throttle
from tidelog.broker.paxos.comparison import birth_of
from tidelog.broker.paxos.context import PartitionContext, ReplicaIdentity, voters_of
from tidelog.broker.paxos.lanes import Lanes
from tidelog.broker.paxos.messages import PartitionFrame, ReadApplied, ReadValue
from tidelog.broker.paxos.move_throttle import MoveThrottle, ThrottledPeers
from tidelog.broker.paxos.opening import open_replica
from tidelog.broker.paxos.replica import PaxosReplica
from tidelog.broker.paxos.service import PaxosService
from tidelog.broker.repair.copies import Copies
from tidelog.broker.repair.repair_messages import RecoverQuery
from tidelog.broker.repair.repairer import Repairer
from tidelog.broker.runtime.lease import Lease
from tidelog.broker.runtime.log_writer import LogWriter
from tidelog.broker.runtime.purgatory import Purgatory
from tidelog.broker.runtime.stats import Stats
from tidelog.config.schema import BrokerConfig
from tidelog.model.errors import DamagedBatch
from tidelog.model.ids import NodeId
from tidelog.model.ports import Buffer
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.environment import SimClock, SimEntropy, SimRunner
from tidelog.sim.kit.loop import SimLoop
from tidelog.sim.kit.process import Process, context_of
from tidelog.sim.kit.seeds import stream
from tidelog.storage.log_manager import LogManager
from tidelog.storage.partition_log import LogSettings, PartitionLog
from tidelog.storage.rows import Row
from tidelog.storage.segment import Segment
from tidelog.transport.peer import Answer, Lane

if TYPE_CHECKING:
    from tests.unit.broker.paxos.stage import Stage

T = TypeVar("T")
SETTINGS = LogSettings(segment_bytes=20_000, segment_ms=1 << 40)
DELAY_S = 0.001


@dataclass(frozen=True)
class Shared:
    """`LeaderContext`."""

    clock: SimClock
    stats: Stats
    log_writer: LogWriter
    purgatory: Purgatory
    lease: Lease


class Site:
    """A broker is a disk, and processes that open it one after the other."""

    def __init__(self, stage: Stage, node: int, engine_id: int) -> None:
        self.stage = stage
        self.node = node
        self.engine_id = engine_id
        self.disk = SimDisk(f"{stage.seed}/{node}")
        self.process: Process | None = None
        self.replica: PaxosReplica
        self.service: PaxosService
        self.lives = 0
        self._begun = 0
        self.entropy = SimEntropy(stream(stage.seed, f"entropy {node}"))

    @property
    def is_up(self) -> bool:
        return self.process is not None and not self.process.is_dying

    @property
    def is_ready(self) -> bool:
        """Does it take part?"""
        return self.is_up and self._begun == self.lives

    async def boot(self) -> None:
        """Starts the next life, on what the disk holds."""
        loop = asyncio.get_running_loop()
        self.lives += 1
        process = self.process = Process(f"broker {self.node}")
        self.disk.on_crash = self._die
        task = loop.create_task(self._begin(), context=context_of(process))
        while not task.done() and self.is_up:
            await asyncio.sleep(0.001)
        if self.is_up:
            task.result()
            self.stage.tell(self)

    def _die(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop) and self.process is not None
        self.process.is_dying = True
        loop.pause(self.process)

    async def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        clock, stats = SimClock(loop), Stats()
        rng = stream(self.stage.seed, f"runner {self.node}.{self.lives}")
        writer = LogWriter(SimRunner(rng, self.stage.disk_delay_s), clock, stats)
        lease = Lease(clock, 1 << 40)
        lease.renew(clock.monotonic_s())
        shared = Shared(clock, stats, writer, Purgatory(), lease)
        manager = LogManager(self.disk, open_max=64, new_incarnation=lambda: self.entropy.token_hex(16))
        founders = voters_of(self.stage.members)
        is_founder = 0 < self.engine_id <= len(self.stage.members)
        files = open_replica(
            manager,
            clock.wall_ms(),
            partition_id=PARTITION,
            settings=SETTINGS,
            engine_id=self.engine_id,
            founders=founders if is_founder else None,
            since=0,
            is_alone=len(self.stage.sites) == 1,
        )
        self.spawn("disk", writer.run())
        self.stats = stats
        self.throttle = Throttle(NodeId(self.node), BrokerConfig(), clock, stats)
        move_throttle = MoveThrottle(self.node, self.throttle)
        context = PartitionContext(
            shared,
            ThrottledPeers(self, move_throttle),
            self.entropy,
            self.spawn,
            self.stage.journal_bounds,
            lambda: self.stage.level,
        )
        identity = ReplicaIdentity("t", PARTITION, self.node, self.engine_id)
        self.replica = PaxosReplica(identity, founders, files, context)
        self.lanes = Lanes(clock, stats)
        self.service = PaxosService(lambda _: self.replica, move_throttle, self.lanes if self.stage.lanes > 1 else None)
        self.copies = Copies(lambda _: self.replica, lambda _: True, lambda: self.lives, self)
        repairer = Repairer(
            NodeId(self.node), lambda _: self.replica, self.stage.image, self.copies, shared.log_writer, stats
        )
        files.log.damage.on_change = lambda: repairer.noticed(PARTITION)
        repairer.noticed(PARTITION)
        self.spawn("repairer", repairer.run())
        self.replica.start()
        self._begun = self.lives

    def spawn(self, name: object, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(work, name=str(name))

    def act(self, call: Callable[[], None]) -> None:
        """Has the broker do something, if it is up; while it is paused, later."""
        if self.process is not None and self.is_up:
            asyncio.get_running_loop().call_soon(call, context=context_of(self.process))

    def run(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Has the broker do something that takes time."""
        assert self.process is not None and self.is_up
        return asyncio.get_running_loop().create_task(work, context=context_of(self.process))

    def pause(self) -> None:
        loop = asyncio.get_running_loop()
        if isinstance(loop, SimLoop) and self.process is not None and self.is_up:
            loop.pause(self.process)

    def resume(self) -> None:
        loop = asyncio.get_running_loop()
        if isinstance(loop, SimLoop) and self.process is not None and self.is_up:
            loop.resume(self.process)

    async def stop(self) -> None:
        """Ends this life in good order."""
        process = self.process
        self.resume()
        if self.is_ready:
            closing = self.run(self._close())
            while self.process is process and self.is_up and not closing.done():
                await asyncio.sleep(0.001)
        await self.crash(is_power_lost=False)

    async def _close(self) -> None:
        await self.replica.close()
        await self.replica.at_rest()

    async def crash(self, *, is_power_lost: bool = True) -> None:
        """Ends this life."""
        process, self.process = self.process, None
        self.disk = self.disk.crash() if is_power_lost else self.disk.kill()
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        if process is None:
            return
        process.is_dying = True
        for _ in range(10):
            tasks = [task for task in process.tasks if not task.done()]
            for task in tasks:
                task.cancel()
            loop.resume(process)
            await loop.run_dry(process)
            for task in tasks:
                if task.done() and not task.cancelled():
                    task.exception()
        loop.bury(process)

    # -- `Peers` -----------------------------------------------------------------------------------------------------

    def notify(self, node_id: int, message: msgspec.Struct, payload: Sequence[Buffer] = ()) -> bool:
        lane = 1
        if isinstance(message, PartitionFrame) and self.stage.lanes > 1:
            lane = self.lanes.choose(node_id, message, range(1, 1 + self.stage.lanes))
        self.stage.carry(self.node, node_id, msgspec.msgpack.encode(message), b"".join(payload), lane)
        return True

    async def ask(self, node_id: int, message: ReadApplied | ReadValue, deadline_s: float) -> Answer:
        await asyncio.sleep(DELAY_S)
        other = self.stage.sites[node_id]
        if not other.is_ready or self.stage.is_cut(self.node, node_id) or not self.stage.asks_answered:
            raise TimeoutError
        if isinstance(message, ReadValue):
            answer = await other.service.read_value(message)
        else:
            answer = await other.service.read(self.node, message)
        return Answer(answer.message, (b"".join(answer.payload),))

    def is_live(self, node_id: int) -> bool:
        return self.stage.sites[node_id].is_up

    async def request(
        self, node_id: int, message: msgspec.Struct, *, deadline_s: float, lane: Lane = Lane.CONTROL
    ) -> Answer:
        """For the repairer."""
        assert isinstance(message, RecoverQuery)
        await asyncio.sleep(DELAY_S)
        other = self.stage.sites[node_id]
        if not other.is_ready or self.stage.is_cut(self.node, node_id):
            raise TimeoutError
        answer = other.copies.answer(message)
        return Answer(answer.message, (b"".join(bytes(part) for part in answer.payload),))

    # -- damage --------------------------------------------------------------------------------------------------------

    def harm_log(self, offset: int) -> None:
        """A byte of an applied batch turns over on this disk."""
        _harm(self.replica.log, offset)

    def harm_journal(self, position: int) -> bool:
        """A byte of what was accepted there turns over; False if there is no payload."""
        store = self.replica._files.store
        place = store._entries.index.slots.get(position)
        if place is None or place.payload is None:
            return False
        _harm(store.journal, place.payload.offset)
        return True

    def is_sound(self) -> bool:
        """Can all of the log be read?"""
        try:
            self.content()
        except DamagedBatch:
            return False
        return True

    # -- for the story -------------------------------------------------------------------------------------------------

    def content(self) -> bytes:
        """All batches in the log."""
        log = self.replica.log
        found, offset = b"", log.log_start_offset
        while offset < log.log_end_offset:
            extent = log.read(offset, 1 << 20, log.log_end_offset)
            found, offset = found + bytes(extent.data), extent.next_offset
        return found

    def rows(self) -> list[tuple[int, int, int]]:
        """Base offset, position and number of every batch."""
        return [
            (row.base_offset, row.position, birth_of(row.number))  # type: ignore[union-attr]  # there is no damage here
            for row in self.replica.log.entries(self.replica.log.log_start_offset)
            if row.kind == 4  # type: ignore[union-attr]  # as above
        ]


def _harm(log: PartitionLog, offset: int) -> None:
    """Damages an entry that is durable, and known to be: any other would look torn, and be cut off."""
    log.mark()
    log.active.catalog.sync()
    segment, row = next(log.parts(offset)), next(log.entries(offset))
    if isinstance(segment, Segment) and isinstance(row, Row) and row.next_offset <= log.durable_offset:
        position = row.file_position + row.length - 2
        (byte,) = segment.log.pread(1, position)
        segment.log.pwritev([bytes([byte ^ 1])], position)
        segment.log.sync()
