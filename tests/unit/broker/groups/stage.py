"""One broker, on a simulated disk and in virtual time, that coordinates a single partition of `__consumer_offsets`."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from tidelog.broker.broker import Broker, NewTopic
from tidelog.broker.groups.coordinator import Coordinator
from tidelog.broker.groups.coordinator_state import CoordinatorState
from tidelog.broker.groups.loading import load
from tidelog.broker.partitions.led_partition import LedPartition
from tidelog.config.schema import BrokerConfig
from tidelog.groups.shard import Shard
from tidelog.model.cluster import HTTP, Endpoint
from tidelog.model.groups import CommitOffsets, CommittedOffset, FetchOffsets, Heartbeat, HeartbeatAnswer
from tidelog.model.ids import PartitionId
from tidelog.model.names import OFFSETS_TOPIC
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.environment import SimClock, SimEntropy, SimRunner
from tidelog.sim.kit.loop import run
from tidelog.sim.kit.network import SimNetwork

T = TypeVar("T")
PARTITIONS = 5
"""Partitions of the topic `t`, unless a story needs more: each of them is a log to open."""


class HeldDisk(SimRunner):
    """Its calls wait while `is_free` is not set."""

    def __init__(self) -> None:
        super().__init__(random.Random(1), mean_s=0.001)
        self.is_free = asyncio.Event()
        self.is_free.set()

    async def run_all(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        await self.is_free.wait()
        return await super().run_all(calls)


class Stage:
    """`broker` runs; topic `t` is there."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        self.disk = SimDisk()
        self.writing: asyncio.Event
        """While it is not set, nothing becomes durable."""
        self.broker: Broker
        self._settings = {"offsets.topic.num.partitions": 1, **settings}
        self._network = SimNetwork(random.Random(1))

    async def start(self) -> None:
        config = BrokerConfig.model_validate(self._settings)
        loop = asyncio.get_running_loop()
        entropy, runner = SimEntropy(random.Random(1)), HeldDisk()
        self.writing = runner.is_free
        network = self._network.host("127.0.0.1")
        self.broker = Broker(config, self.disk, SimClock(loop), entropy, runner, network)
        await self.broker.start({HTTP: Endpoint("127.0.0.1", 8082)})

    async def restart(self) -> None:
        await self.broker.stop()
        await self.start()

    # -- what is asked -----------------------------------------------------------------------------------------------

    async def commit(self, partition: int, offset: int, group: str = "g", *, wait_s: float = 20) -> None:
        offsets = (CommittedOffset("t", partition, offset),)
        answer = await self.broker.groups.ask(CommitOffsets(group=group, offsets=offsets), deadline_s=soon(wait_s))
        assert [verdict.code for verdict in answer.verdicts] == [0]

    async def offsets(self, group: str = "g") -> dict[int, int]:
        answer = await self.broker.groups.ask(FetchOffsets(group=group), deadline_s=soon())
        return {committed.partition: committed.offset for committed in answer.offsets}

    async def join(self, member: str, group: str = "g", session_timeout_ms: int | None = None) -> HeartbeatAnswer:
        request = Heartbeat(
            group=group,
            member_id=member,
            member_epoch=0,
            topics=("t",),
            owned=(),
            session_timeout_ms=session_timeout_ms,
        )
        return await self.broker.groups.ask(request, deadline_s=soon())

    # -- what is inside ----------------------------------------------------------------------------------------------

    @property
    def coordinator(self) -> Coordinator:
        found = self.broker.groups.local("g")
        assert found is not None
        return found

    @property
    def state(self) -> CoordinatorState:
        found = self.coordinator._state
        assert found is not None
        return found

    @property
    def partition(self) -> LedPartition:
        return self.broker.partitions[PartitionId(self.broker.topic(OFFSETS_TOPIC).topic_id, 0)]

    async def replayed(self) -> Shard:
        """Returns what the log says, to whoever reads it now."""
        return (await load(self.partition, self.partition.high_watermark, 0)).shard


def soon(seconds: float = 20) -> float:
    return asyncio.get_running_loop().time() + seconds


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_so():
            await asyncio.sleep(0.005)


def play(story: Callable[[Stage], Awaitable[None]], partitions: int = PARTITIONS, /, **settings: object) -> None:
    """Runs a story on a stage whose topic `t` has so many partitions. `settings` with underscores for dots."""

    async def main() -> None:
        stage = Stage({name.replace("_", "."): value for name, value in settings.items()})
        await stage.start()
        await stage.broker.admin.create_topic(NewTopic("t", partitions))
        try:
            await story(stage)
        finally:
            stage.writing.set()
            await stage.broker.stop()

    run(main)
