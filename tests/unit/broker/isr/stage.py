"""A leader and a follower of one partition, with real logs, on simulated disks; messages go from hand to hand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import msgspec
import pytest

from tests.unit.broker.conftest import batch
from tidelog.broker.isr.fetching import Fetcher
from tidelog.broker.isr.follower import Follower
from tidelog.broker.isr.partition import IsrContext, Partition
from tidelog.broker.isr.recent_batches import RecentBytes
from tidelog.broker.isr.replica_messages import FetchReplicas, ReplicasFlushed
from tidelog.broker.isr.replication_service import ReplicationService
from tidelog.broker.partitions.throttle import Throttle
from tidelog.broker.runtime.lease import Lease
from tidelog.broker.runtime.log_writer import LogWriter
from tidelog.broker.runtime.purgatory import Purgatory
from tidelog.broker.runtime.stats import Stats
from tidelog.config.schema import BrokerConfig, TopicConfig
from tidelog.model.batch_header import assign_offsets
from tidelog.model.errors import DamagedBatch
from tidelog.model.ids import NodeId, PartitionId, TopicId
from tidelog.replication.isr.events import AlterPartition, IsrChanged, IsrSettings, LogState
from tidelog.replication.isr.follower import IsrFollower
from tidelog.replication.isr.leader import IsrLeader
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.environment import SimClock, SimEntropy, SimRunner
from tidelog.sim.kit.loop import run
from tidelog.sim.kit.rot import flip_bit
from tidelog.sim.kit.seeds import stream
from tidelog.storage.log_manager import LogManager
from tidelog.storage.partition_log import LogSettings, PartitionLog
from tidelog.storage.rows import Row
from tidelog.storage.segment import Segment
from tidelog.transport.peer import Answer, Hello, Lane

PARTITION = PartitionId(TopicId("a" * 32), 0)
EPOCHS = {1: 11, 2: 12}
NO_SETTINGS = BrokerConfig()
SETTINGS = LogSettings(segment_bytes=1 << 20, segment_ms=1 << 40)


class Site:
    """One broker's disk and log."""

    def __init__(self, node: int) -> None:
        self.clock = SimClock(asyncio.get_running_loop())
        self.stats = Stats()
        self.writer = LogWriter(SimRunner(stream(node)), self.clock, self.stats)
        entropy = SimEntropy(stream(node, "entropy"))
        self.disk = SimDisk(node)
        manager = LogManager(self.disk, open_max=64, new_incarnation=lambda: entropy.token_hex(16))
        self.log: PartitionLog = manager.open_log(PARTITION, SETTINGS, self.clock.wall_ms())[0]

    def write(self, epoch: int, *values: bytes) -> None:
        """Appends as the leader of this epoch would, durably."""
        for value in values:
            (one,) = batch(value, timestamp_ms=1)
            self.log.append([assign_offsets(one, self.log.log_end_offset, epoch)], self.clock.wall_ms())
        flush = self.log.begin_flush()
        flush.run()
        self.log.end_flush(flush, None)

    def harm(self, offset: int) -> None:
        """A bit of the batch at an offset turns over, and a reader has found it."""
        part = next(self.log.parts(offset))
        assert isinstance(part, Segment)
        row = next(part.entries(offset))
        assert isinstance(row, Row)
        flip_bit(self.disk.medium, part.log_path, row.file_position + row.length - 1, 0)
        with pytest.raises(DamagedBatch):
            self.log.read(offset, 1, self.log.log_end_offset)

    def state(self) -> LogState:
        log = self.log
        return LogState(log.log_start_offset, log.durable_offset, log.log_end_offset, tuple(log.lineage))

    def content(self) -> bytes:
        log, found, offset = self.log, b"", self.log.log_start_offset
        while offset < log.log_end_offset:
            extent = log.read(offset, 1 << 20, log.log_end_offset)
            found, offset = found + bytes(extent.data), extent.next_offset
        return found


class Stage:
    """Broker 1 leads, broker 2 follows. `lost` answers to fetches are not delivered, `damaged` ones with bytes that
    have turned over."""

    def __init__(self, config: BrokerConfig) -> None:
        self.leader, self.follower = Site(1), Site(2)
        self.asked: list[AlterPartition] = []
        self.fetches: list[FetchReplicas] = []
        self.lost = self.damaged = 0
        self.loses_reports = False
        """Of what has become durable."""
        self.unflushed: list[bool] = []
        """At each fetch, whether the follower had something that no flush had taken."""
        self.recent = RecentBytes()
        self.lease = Lease(self.leader.clock, 9_000)
        self.lease.renew(self.leader.clock.monotonic_s())
        self.partitions: dict[PartitionId, Partition] = {}
        sites = {NodeId(1): self.leader, NodeId(2): self.follower}
        self.throttles = {int(node): Throttle(node, config, site.clock, site.stats) for node, site in sites.items()}
        self.service = ReplicationService(
            self.partitions, lambda node: EPOCHS[node], self.leader.clock, self.leader.stats, self.throttles[1]
        )
        self._tasks: list[asyncio.Task[None]] = []
        self.spawn("leader's disk", self.leader.writer.run())
        self.spawn("follower's disk", self.follower.writer.run())

    def lead(
        self, epoch: int = 1, isr: tuple[int, ...] = (1, 2), minimum: int = 1, lag_ms_max: int = 1_000
    ) -> Partition:
        site = self.leader
        core = IsrLeader(
            1,
            epoch,
            site.state(),
            0,
            IsrChanged((1, 2), isr, 0, EPOCHS, minimum),
            IsrSettings(lag_ms_max=lag_ms_max),
            int(site.clock.monotonic_s() * 1000),
        )
        shared = IsrContext(site.clock, site.stats, site.writer, Purgatory(), self, self.lease, self.recent)
        partition = Partition("t", PARTITION, epoch, site.log, core, TopicConfig(), 1, shared)
        self.partitions[PARTITION] = partition
        self.spawn("partition", partition.run())
        return partition

    def follow(self, epoch: int = 1) -> Follower:
        site = self.follower
        core = IsrFollower(epoch, site.state(), 0)
        return Follower("t", PARTITION, epoch, site.log, core, site.writer, site.clock, self.spawn)

    def fetch(self, *followers: Follower) -> Fetcher:
        entropy = SimEntropy(stream(3))
        fetcher = Fetcher(2, 1, lambda: EPOCHS[2], self, self.follower.clock, entropy, self.throttles[2])
        for follower in followers:
            fetcher.add(follower)
        self.spawn("fetcher", fetcher.run())
        return fetcher

    def spawn(self, name: object, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        self._tasks.append(asyncio.ensure_future(work))
        return self._tasks[-1]

    async def close(self) -> None:
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- for the partition: `Replication` ----------------------------------------------------------------------------

    def progressed(self, partition: Partition) -> None:
        self.service.progressed(partition)

    def ask_anew(self, partition: Partition, nodes: Sequence[int]) -> None:
        self.service.ask_anew(PARTITION, nodes)

    def alter(self, partition: Partition, effect: AlterPartition) -> None:
        self.asked.append(effect)

    # -- for the fetcher: `Peers` ------------------------------------------------------------------------------------

    async def request(
        self, node_id: int, message: msgspec.Struct, *, deadline_s: float, lane: Lane = Lane.CONTROL
    ) -> Answer:
        assert isinstance(message, FetchReplicas)
        self.fetches.append(message)
        self.unflushed.append(self.follower.log.is_dirty)
        answer = await self.service.fetch(Hello(2, "life"), message)
        if self.lost:
            self.lost -= 1
            raise TimeoutError
        payload = b"".join(answer.payload)
        if self.damaged and payload:
            self.damaged -= 1
            payload = payload[:-1] + bytes([payload[-1] ^ 1])
        return Answer(answer.message, (payload,))

    def notify(
        self, node_id: int, message: msgspec.Struct, payload: Sequence[bytes] = (), *, lane: Lane = Lane.CONTROL
    ) -> bool:
        assert isinstance(message, ReplicasFlushed)
        if not self.loses_reports:
            self.service.flushed(message)
        return True


async def until(is_so: Callable[[], bool]) -> None:
    """Virtual time passes until it is so."""
    async with asyncio.timeout(60):
        while not is_so():
            await asyncio.sleep(0.01)


def play(story: Callable[[Stage], Awaitable[None]], config: BrokerConfig = NO_SETTINGS) -> None:
    """Runs a story on a stage, in virtual time."""

    async def main() -> None:
        stage = Stage(config)
        try:
            await story(stage)
        finally:
            await stage.close()

    run(main)
