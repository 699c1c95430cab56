"""Replicas of one partition with real logs on simulated disks, which ask each other for copies from hand to hand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tests.unit.broker.isr.stage import PARTITION, Site
from tidelog.broker.isr.settling import LogIdentity, Settler, Settling, begin_settling, verify_end
from tidelog.broker.repair.copies import Copies, Holder
from tidelog.broker.repair.repair_messages import RecoverQuery, RecoverReply
from tidelog.broker.repair.repairer import Repairer
from tidelog.broker.runtime.purgatory import Watchers
from tidelog.model.cluster import BrokerInfo, ClusterImage, PartitionInfo, Topic
from tidelog.model.ids import NodeId, PartitionId
from tidelog.sim.kit.loop import run
from tidelog.storage.copies import Identity
from tidelog.storage.partition_log import PartitionLog
from tidelog.storage.rows import ROW_BYTES, Row
from tidelog.storage.segment import Segment
from tidelog.transport.peer import Answer, Lane

NODES = (1, 2, 3)
EPOCH = 7
LIVES = {node: 10 * node for node in NODES}
IDENTITIES = {node: LogIdentity(f"disk-{node}", 1) for node in NODES if node != 1}


@dataclass(eq=False)
class Replica:
    """One broker's. A `Holder`."""

    log: PartitionLog
    leader_epoch: int = EPOCH
    high_watermark: int = 0
    aligned_epoch: int = -1
    broker_epoch: int = 0
    topic: str = "t"
    partition_id: PartitionId = PARTITION
    watchers: Watchers = field(default_factory=Watchers)
    is_readable: bool = True
    copies: dict[int, bytes] = field(default_factory=dict)
    """Copies that this replica keeps beside its log, by offset."""
    flushed: int = 0
    """How often it was told of news of its log."""

    def on_flushed(self) -> None:
        self.flushed += 1

    def second_copy(self, wanted: Identity) -> bytes | None:
        return self.copies.get(wanted.offset)


class RepairStage:
    """Three replicas; broker 1 repairs its log, or settles what of it was committed. `silent` ones do not answer."""

    def __init__(self) -> None:
        self.sites = {node: Site(node) for node in NODES}
        self.replicas: dict[int, Replica | Settling] = {
            node: Replica(self.sites[node].log, broker_epoch=LIVES[node]) for node in NODES
        }
        self.silent: set[int] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self.asked: list[int] = []
        self.site = self.sites[1]
        copies = Copies(self._holder, lambda _: True, lambda: LIVES[1], self)
        self.repairer = Repairer(NodeId(1), self._holder, _image, copies, self.site.writer, self.site.stats)
        self.settler = Settler(copies, self.repairer, self.site.writer, self.site.clock)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """A task of the stage's."""
        self._tasks.append(asyncio.ensure_future(work))

    async def close(self) -> None:
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _holder(self, partition_id: PartitionId) -> Holder | None:
        return self.replicas[1] if partition_id == PARTITION else None

    def replica(self, node: int) -> Replica:
        found = self.replicas[node]
        assert isinstance(found, Replica)
        return found

    def write(self, *values: bytes, nodes: Sequence[int] = NODES, epoch: int = 1) -> None:
        for node in nodes:
            self.sites[node].write(epoch, *values)

    def harm(self, offset: int, *nodes: int) -> None:
        """A byte of a batch turns over on these disks."""
        for node in nodes:
            log = self.sites[node].log
            segment, row = next(log.parts(offset)), next(log.entries(offset))
            assert isinstance(segment, Segment) and isinstance(row, Row)
            position = row.file_position + row.length - 2
            (byte,) = segment.log.pread(1, position)
            segment.log.pwritev([bytes([byte ^ 1])], position)
            segment.log.sync()

    def harm_row(self, offset: int, node: int) -> None:
        """The catalog row of a batch goes the same way."""
        log = self.sites[node].log
        segment, row = next(log.parts(offset)), next(log.entries(offset))
        assert isinstance(segment, Segment) and isinstance(row, Row)
        segment.catalog.pwritev([b"\xff\x00\xff"], (row.sequence - segment.first_sequence) * ROW_BYTES + 40)

    async def settle(self, high_watermark: int = 0, members: Sequence[int] = (2, 3)) -> Settling | None:
        """Returns what a broker does that is to lead in `EPOCH`; None if there was nothing to settle."""
        lives = {node: LIVES[node] for node in members}
        log = self.site.log
        await verify_end(log, high_watermark, self.site.writer)
        settling = begin_settling("t", PARTITION, EPOCH, log, high_watermark, lives, IDENTITIES, 0.0)
        if settling.core.is_settled:
            return None
        self.replicas[1] = settling
        await self.settler.settle(settling)
        return settling

    async def request(
        self, node_id: int, message: msgspec.Struct, *, deadline_s: float, lane: Lane = Lane.CONTROL
    ) -> Answer:
        assert isinstance(message, RecoverQuery)
        self.asked.append(node_id)
        await asyncio.sleep(0.001)
        if node_id in self.silent:
            raise TimeoutError
        replica = self.replica(node_id)
        answer = Copies(lambda _: replica, lambda _: True, lambda: replica.broker_epoch, self).answer(message)
        assert isinstance(answer.message, RecoverReply)
        return Answer(answer.message, (b"".join(bytes(part) for part in answer.payload),))


def _image() -> ClusterImage:
    info = PartitionInfo(0, NodeId(1), EPOCH, tuple(map(NodeId, NODES)), tuple(map(NodeId, NODES)))
    brokers = {
        NodeId(node): BrokerInfo(NodeId(node), {}, None, life, f"life-{node}", "h", 2, f"disk-{node}")
        for node, life in LIVES.items()
    }
    return ClusterImage("c", topics={"t": Topic("t", PARTITION.topic_id, {}, (info,))}, brokers=brokers)


def play(story: Callable[[RepairStage], Awaitable[None]]) -> None:
    """Runs a story on a stage, in virtual time."""

    async def main() -> None:
        stage = RepairStage()
        for site in stage.sites.values():
            stage.spawn(site.writer.run())
        stage.spawn(stage.repairer.run())
        try:
            await story(stage)
        finally:
            await stage.close()

    run(main)
