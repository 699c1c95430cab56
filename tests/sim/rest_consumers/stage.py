"""Three brokers on simulated machines, and clients of REST consumers that ask whichever of them they like.

Time is virtual: a broker dies and is missed, and an instance is quiet for too long, in a part of a second.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from tidelog.broker.broker import Broker, NewTopic
from tidelog.broker.rest_consumers.requests import (
    Assign,
    CloseInstance,
    CommitPositions,
    CommittedFetched,
    FetchCommitted,
    InstanceRequest,
    OpenInstance,
    Reading,
    ReadRecords,
    ShowReading,
    Subscribe,
)
from tidelog.config.schema import BrokerConfig
from tidelog.model.batch_codec import encode_batch
from tidelog.model.batch_header import split_batches
from tidelog.model.groups import CommittedOffset, InstanceSettings, TopicPartitions, pairs
from tidelog.model.records import Record
from tidelog.sim.kit.loop import run
from tidelog.sim.kit.machine import Machine
from tidelog.sim.kit.network import SimNetwork
from tidelog.sim.kit.process import owned_task
from tidelog.sim.kit.seeds import stream
from tidelog.transport.peer import Answer

NODES = (1, 2, 3)
T = TypeVar("T")


class Stage:
    """The group `g`; topic `t` of `partitions` partitions, each on all brokers."""

    def __init__(self, seed: int, **settings: object) -> None:
        network = SimNetwork(stream(seed, "network"))
        self.machines = {node: Machine(f"{seed}/{node}", _config(node, settings), name=_host(node), network=network)
                         for node in NODES}  # fmt: skip
        self._attempts = 0

    async def start(self, partitions: int) -> None:
        asyncio.get_running_loop().set_task_factory(owned_task)
        await asyncio.gather(*(machine.boot() for machine in self.machines.values()))
        await self.call(1, lambda broker: broker.admin.create_topic(NewTopic("t", partitions, 3)))

    async def close(self) -> None:
        for machine in self.machines.values():
            if machine.has_life:
                await machine.cut_power()

    async def call(self, node: int, work: Callable[[Broker], Coroutine[Any, Any, T]]) -> T:
        return await self.machines[node].call(work)

    def broker(self, node: int) -> Broker:
        found = self.machines[node].broker
        assert found is not None
        return found

    @property
    def alive(self) -> list[int]:
        return [node for node, machine in self.machines.items() if machine.is_up]

    @property
    def coordinator(self) -> int:
        """Node id of the one of group `g`, as somebody knows it."""
        return self.broker(self.alive[0]).groups.coordinator_node("g")

    @property
    def others(self) -> list[int]:
        coordinator = self.coordinator
        return [node for node in self.alive if node != coordinator]

    async def ask(self, node: int, request: InstanceRequest, wait_s: float = 0) -> Answer:
        return await self.call(node, lambda broker: broker.rest_consumers.ask(request, wait_s=wait_s))

    async def produce(self, *values: object, partition: int = 0) -> None:
        data = bytes(encode_batch([Record(0, None, json.dumps(value).encode()) for value in values]))

        async def work(broker: Broker) -> None:
            handle = broker.partition("t", partition)
            batches = split_batches(memoryview(bytearray(data)), batch_bytes_max=1 << 20)
            await handle.produce(batches, acks=-1, deadline_s=asyncio.get_running_loop().time() + 30)

        await self.call(self.alive[0], work)

    # -- a client ----------------------------------------------------------------------------------------------------

    async def open(self, node: int, name: str = "i", **settings: Any) -> None:
        wanted = InstanceSettings(**{"format": "json", "reset": "earliest", **settings})
        await self.ask(node, OpenInstance(group="g", instance=name, settings=wanted))

    async def subscribe(self, node: int, name: str = "i") -> None:
        await self.ask(node, Subscribe(group="g", instance=name, topics=("t",)))

    async def assign(self, node: int, *partitions: int, name: str = "i") -> None:
        await self.ask(node, Assign(group="g", instance=name, partitions=(TopicPartitions("t", partitions),)))

    async def close_instance(self, node: int, name: str = "i") -> None:
        await self.ask(node, CloseInstance(group="g", instance=name))

    async def assigned(self, node: int, name: str = "i") -> list[int]:
        answer = await self.ask(node, ShowReading(group="g", instance=name))
        assert isinstance(answer.message, Reading)
        return [partition for _, partition in pairs(answer.message.partitions)]

    async def is_subscribed(self, node: int, name: str = "i") -> bool:
        answer = await self.ask(node, ShowReading(group="g", instance=name))
        assert isinstance(answer.message, Reading)
        return bool(answer.message.topics)

    async def read(self, node: int, name: str = "i", wait_ms: int = 0, attempt: str = "") -> list[Any]:
        """Values."""
        self._attempts += 1
        request = ReadRecords(
            group="g", instance=name, attempt=attempt or str(self._attempts), wait_ms=wait_ms, bytes_max=1 << 20
        )
        answer = await self.ask(node, request, wait_ms / 1000)
        return [record["value"] for record in json.loads(bytes(answer.body))]

    async def commit(self, node: int, *next_offsets: int, name: str = "i") -> None:
        """The next offsets of partitions 0, 1, ...; all that was returned, if there are none."""
        partitions = tuple(CommittedOffset("t", partition, offset) for partition, offset in enumerate(next_offsets))
        await self.ask(node, CommitPositions(group="g", instance=name, offsets=partitions or None))

    async def partitions(self, node: int, name: str = "i") -> dict[int, int]:
        asked = TopicPartitions("t", tuple(range(8)))
        answer = await self.ask(node, FetchCommitted(group="g", instance=name, partitions=(asked,)))
        assert isinstance(answer.message, CommittedFetched)
        return {partition.partition: partition.offset for partition in answer.message.offsets}


def play(
    story: Callable[[Stage], Coroutine[Any, Any, T]], *, seed: int = 1, partitions: int = 1, **settings: object
) -> T:
    """Tells a story on a stage that is set, and returns what the story returns."""

    async def main() -> T:
        stage = Stage(seed, **settings)
        try:
            await stage.start(partitions)
            return await story(stage)
        finally:
            await stage.close()

    return run(main, seed)


def _host(node: int) -> str:
    return f"10.0.0.{node}"


def _config(node: int, settings: dict[str, object]) -> BrokerConfig:
    return BrokerConfig.model_validate(
        {
            "node.id": node,
            "cluster.voters": [f"{one}@{_host(one)}:9192" for one in NODES],
            "peer.listener": f"{_host(node)}:9192",
            "http.listener": f"{_host(node)}:8082",
            "offsets.topic.num.partitions": 1,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )
