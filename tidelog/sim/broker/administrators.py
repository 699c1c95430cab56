"""Clients that administer: they delete records, change settings, create and delete topics during the faults."""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from contextlib import suppress
from functools import partial

from tidelog.broker.broker import Broker, NewTopic
from tidelog.broker.routing.led_here import LedHere
from tidelog.model.batch_codec import encode_batch
from tidelog.model.batch_header import split_batches
from tidelog.model.errors import InvalidRequest, TidelogError, UnknownTopic
from tidelog.model.ids import TopicPartition
from tidelog.model.records import Record
from tidelog.sim.kit.history import History, records_in
from tidelog.sim.kit.machine import ConnectionLost, Machine, Unreachable

RETRY_S = 0.1
SEGMENT_BYTES = (1_024, 1_024, 2_000, 5_000, 20_000)


async def create_topic(machine: Machine, name: str, partitions: int, configs: dict[str, str]) -> None:
    """Creates a topic, retrying until it exists."""
    while True:
        try:
            await machine.call(lambda broker: broker.admin.create_topic(NewTopic(name, partitions, configs=configs)))
        except InvalidRequest:  # an attempt whose outcome was unknown
            return
        except (Unreachable, ConnectionLost, TidelogError):
            await asyncio.sleep(RETRY_S)
        else:
            return


class NowAndThen(ABC):
    """Client that does something `per_s` times a second on average, and ignores failures."""

    def __init__(self, per_s: float, rng: random.Random) -> None:
        self._per_s = per_s
        self._rng = rng
        self._is_stopping = False

    def stop(self) -> None:
        """Ends the loop after the current action."""
        self._is_stopping = True

    async def run(self) -> None:
        while not self._is_stopping:
            await asyncio.sleep(self._rng.expovariate(self._per_s))
            with suppress(Unreachable, ConnectionLost, TidelogError):
                await self._do()

    @abstractmethod
    async def _do(self) -> None: ...


class Administrator(NowAndThen):
    """Client that deletes records and changes segment sizes."""

    def __init__(
        self, partitions: list[TopicPartition], machine: Machine, history: History, rng: random.Random
    ) -> None:
        super().__init__(2.0, rng)
        self._partitions = partitions
        self._machine = machine
        self._history = history

    async def _do(self) -> None:
        partition = self._rng.choice(self._partitions)
        if self._rng.random() < 0.7:
            await self._machine.call(partial(self._delete_records, partition))
        else:
            await self._machine.call(partial(self._alter, partition.topic))

    async def _alter(self, topic: str, broker: Broker) -> None:
        await broker.admin.alter_topic_configs(topic, {"segment.bytes": str(self._rng.choice(SEGMENT_BYTES))})

    async def _delete_records(self, where: TopicPartition, broker: Broker) -> None:
        handle = broker.partition(*where)
        assert isinstance(handle, LedHere), "a machine of its own leads all its partitions"
        partition = handle.led
        offset = self._rng.randint(partition.log_start_offset, partition.high_watermark)
        self._history.ask_start(where, offset)
        partition.request_deletion(offset)
        self._history.counters["prefix deleted"] += 1


class Churn:
    """Client that creates a topic, writes to it, deletes it, and creates it again under the same name. It checks that
    acknowledged changes persist, and that no record of a deleted topic shows up in a later one."""

    NAME = "churn"

    def __init__(self, machine: Machine, history: History, rng: random.Random) -> None:
        self._machine = machine
        self._history = history
        self._rng = rng
        self._is_there: bool | None = False
        """True if the topic exists; None while that is unknown."""
        self._generation = 0
        self._unsettled_life = 0
        """Ordinal of the machine start (`Machine.lives`) during which a request of this client ended with an unknown
        outcome. The client does nothing until the machine has been started again; then it looks up whether the topic
        exists."""
        self._is_stopping = False

    def stop(self) -> None:
        self._is_stopping = True

    async def run(self) -> None:
        while not self._is_stopping:
            await asyncio.sleep(self._rng.expovariate(3.0))
            if self._unsettled_life == self._machine.lives:
                continue
            try:
                await self._machine.call(self._look)
                await (self._delete() if self._is_there else self._create())
            except (Unreachable, ConnectionLost):
                continue
            except TidelogError as error:
                self._history.note("churn", type(error).__name__)
                if not error.definite:
                    self._unsettled_life = self._machine.lives

    async def _create(self) -> None:
        self._generation += 1
        self._is_there = None
        await self._machine.call(lambda broker: broker.admin.create_topic(NewTopic(self.NAME, 1)))
        self._is_there = True

    async def _delete(self) -> None:
        await self._machine.call(self._write)
        self._is_there = None
        await self._machine.call(lambda broker: broker.admin.delete_topic(self.NAME))
        self._is_there = False
        self._history.counters["topic deleted"] += 1

    async def _look(self, broker: Broker) -> None:
        try:
            broker.topic(self.NAME)
            is_there = True
        except UnknownTopic:
            is_there = False
        if self._is_there is not None and is_there != self._is_there:
            self._history.violate(f"topic {self.NAME} was {'created' if self._is_there else 'deleted'}, and is not")
        self._is_there = is_there

    async def _write(self, broker: Broker) -> None:
        partition = broker.partition(self.NAME, 0)
        fetched = await partition.read((await partition.extent()).log_start_offset, bytes_max=1 << 16)
        for _, value in records_in(fetched.data, 0):
            if int(value) != self._generation:
                self._history.violate(
                    f"a record of life {int(value)} of topic {self.NAME} is in life {self._generation}"
                )
        body = encode_batch([Record(self._machine.clock.wall_ms(), None, b"%d" % self._generation)])
        deadline_s = asyncio.get_running_loop().time() + 1
        await partition.produce(split_batches(body, batch_bytes_max=1 << 20), acks=-1, deadline_s=deadline_s)
