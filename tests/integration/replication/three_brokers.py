"""Three whole brokers in one process: simulated disks and network; real time, or the virtual one of a `SimLoop`."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from tests.unit.broker.conftest import batch
from tidelog.adapters.system import SystemClock, SystemEntropy
from tidelog.broker.broker import Broker
from tidelog.broker.partitions.proposals import ProduceReceipt
from tidelog.config.schema import BrokerConfig
from tidelog.model.batch_codec import decode_batch
from tidelog.model.batch_header import iter_batches
from tidelog.model.cluster import HTTP, Endpoint, PartitionInfo
from tidelog.model.errors import OldDirectory, TidelogError
from tidelog.model.ids import PartitionId
from tidelog.model.ports import Clock, Entropy
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.environment import SimClock, SimEntropy, SimRunner
from tidelog.sim.kit.loop import SimLoop
from tidelog.sim.kit.network import SimNetwork
from tidelog.transport.peer.proof import ClusterSecret

NODES = (1, 2, 3)
START_S = 20.0
PROMPT = {"broker.session.timeout.ms": 1_000}
"""Settings for virtual time: a broker that is silent is fenced soon."""
PATIENT = {"broker.session.timeout.ms": 30_000, "broker.lease.ms": 20_000}
"""Settings for real time: no broker is fenced because the machine is slow."""


class ThreeBrokers:
    """`brokers` are those that run."""

    def __init__(self, settings: Mapping[str, object], secret: ClusterSecret | None = None) -> None:
        self.brokers: dict[int, Broker] = {}
        self.network = SimNetwork(random.Random(0))
        self._extra = settings
        self._secret = secret
        self.of_node: dict[int, Mapping[str, object]] = {}
        """Settings of single brokers, by dotted name, from their next start on."""
        self._lives = 0
        self.disks = {node: SimDisk(node) for node in NODES}

    async def start(self, *nodes: int) -> None:
        """On what their disks hold. A majority has to run for that."""
        started = {node: self._broker(node) for node in nodes}
        self.brokers |= started
        async with asyncio.timeout(START_S):
            await asyncio.gather(*(self._start(node, one) for node, one in started.items()))

    @staticmethod
    async def _start(node: int, one: Broker) -> None:
        starting = asyncio.ensure_future(one.start({HTTP: Endpoint(f"10.0.0.{node}", 8082)}))
        failing = asyncio.ensure_future(one.failed.wait())
        await asyncio.wait([starting, failing], return_when=asyncio.FIRST_COMPLETED)
        failing.cancel()
        if not starting.done():
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            raise OldDirectory("found before it voted") if one.is_old else AssertionError(f"broker {node} failed")
        await starting

    async def stop(self, *nodes: int) -> None:
        for one in [self.brokers.pop(node) for node in nodes]:
            await one.stop()

    def replace_disk(self, node: int) -> None:
        """Of a broker that does not run."""
        assert node not in self.brokers
        self.disks[node] = SimDisk(f"another of {node}")

    def cut_off(self, node: int) -> None:
        """From the others, until `network.heal`."""
        for other in NODES:
            if other != node:
                self.network.cut(f"10.0.0.{node}", f"10.0.0.{other}")

    def _broker(self, node: int) -> Broker:
        settings = {
            "node.id": node,
            "cluster.voters": ",".join(f"{one}@10.0.0.{one}:9192" for one in NODES),
            "peer.listener": f"10.0.0.{node}:9192",
            "broker.heartbeat.interval.ms": 100,
            **(PROMPT if isinstance(asyncio.get_running_loop(), SimLoop) else PATIENT),
            **self._extra,
            **self.of_node.get(node, {}),
        }
        runner = SimRunner(random.Random(node), mean_s=0.0002)
        network = self.network.host(f"10.0.0.{node}")
        config = BrokerConfig.model_validate(settings)
        time_and_chance = self._time_and_chance(node)
        return Broker(config, self.disks[node], *time_and_chance, runner, network, secret=self._secret)

    def _time_and_chance(self, node: int) -> tuple[Clock, Entropy]:
        loop = asyncio.get_running_loop()
        if isinstance(loop, SimLoop):
            self._lives += 1
            return SimClock(loop), SimEntropy(random.Random(f"{node} {self._lives}"))
        return SystemClock(), SystemEntropy()

    def info(self, topic: str = "t") -> PartitionInfo:
        """As the one with the lowest number has it."""
        return next(iter(self.brokers.values())).image.topics[topic].partitions[0]

    async def produce(self, node: int, value: bytes = b"v") -> ProduceReceipt:
        """By way of this broker. A leader that is just being replaced says so, and is asked again."""
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + START_S
        while True:
            try:
                partition = self.brokers[node].partition("t", 0)
                timestamp_ms = self._time_and_chance(node)[0].wall_ms()
                return await partition.produce(
                    batch(value, timestamp_ms=timestamp_ms), acks=-1, deadline_s=loop.time() + 5
                )
            except TidelogError:
                assert loop.time() < give_up_s
                await asyncio.sleep(0.05)

    async def offset(self, node: int, value: bytes = b"v") -> int:
        """Returns where `produce` has put it."""
        ((offset, _),) = (await self.produce(node, value)).batches
        assert offset is not None
        return offset

    async def settle(self) -> None:
        """Waits long enough for brokers that can elect a leader to have done so: twenty heartbeats."""
        await asyncio.sleep(2.0)

    async def until_shown(self, node: int, values: list[bytes]) -> None:
        """Waits until this broker's own copy shows exactly these."""
        async with asyncio.timeout(START_S):
            while await self.values(node) != values:
                await asyncio.sleep(0.05)

    async def values(self, node: int) -> list[bytes]:
        """Returns what this broker's own copy shows."""
        topic_id = self.brokers[node].topic("t").topic_id
        copy = self.brokers[node].data.local_copy(PartitionId(topic_id, 0))
        if copy is None:
            return []
        offset, found = (await copy.extent()).log_start_offset, list[bytes]()
        while (fetched := await copy.read(offset, bytes_max=1 << 20)).data:
            found += [record.value or b"" for one in iter_batches(fetched.data) for record in decode_batch(one)]
            offset = fetched.next_offset
        return found


async def until(is_so: Callable[[], bool]) -> None:
    """Looks again and again."""
    async with asyncio.timeout(START_S):
        while not is_so():
            await asyncio.sleep(0.02)


@asynccontextmanager
async def three_brokers(secret: ClusterSecret | None = None, /, **settings: object) -> AsyncIterator[ThreeBrokers]:
    """They run; whoever still does is stopped at the end. `settings` with underscores for dots."""
    cluster = ThreeBrokers({name.replace("_", "."): value for name, value in settings.items()}, secret)
    try:
        await cluster.start(*NODES)
        yield cluster
    finally:
        await cluster.stop(*cluster.brokers)
