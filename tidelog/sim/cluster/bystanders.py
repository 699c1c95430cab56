"""Further clients of Paxos partitions: one reads from any replica's copy, another one deletes old records.

A replica's own copy (`replica=any`) may lag, but shows only applied records, and no gaps. Records that were deleted
by agreement stay deleted under every later leader.
"""

from __future__ import annotations

import asyncio
import random
from abc import abstractmethod
from typing import ClassVar

from tidelog.broker.broker import Broker
from tidelog.checker.operations import Prefix
from tidelog.model.batch_header import iter_batches
from tidelog.model.ids import PartitionId, TopicPartition
from tidelog.sim.broker.administrators import NowAndThen
from tidelog.sim.cluster.clients import AnyBroker, ClusterHistory
from tidelog.sim.cluster.shadows import held

READ_BYTES = 4_096
WAIT_S = 0.5


class Bystander(NowAndThen):
    """Client that now and then does something with one partition, at any broker."""

    PER_S: ClassVar[float]

    def __init__(
        self, partition: TopicPartition, anywhere: AnyBroker, history: ClusterHistory, rng: random.Random
    ) -> None:
        super().__init__(self.PER_S, rng)
        self._partition = partition
        self._anywhere = anywhere
        self._history = history

    async def _do(self) -> None:
        await self._anywhere.call(self._act)

    @abstractmethod
    async def _act(self, broker: Broker) -> None: ...


class CopyReader(Bystander):
    """Client that now and then reads some batches from the copy of one broker, and checks that they are the committed
    ones."""

    PER_S = 10.0

    async def _act(self, broker: Broker) -> None:
        where = self._partition
        copy = broker.data.local_copy(PartitionId(broker.topic(where.topic).topic_id, where.partition))
        if copy is None:
            return
        extent = await copy.extent()
        if extent.log_start_offset == extent.high_watermark:
            return
        offset = self._rng.randrange(extent.log_start_offset, extent.high_watermark)
        fetched = await copy.read(offset, bytes_max=READ_BYTES)
        self._history.counters["copy read"] += 1
        if not self._history.is_next(where, offset, [held(batch) for batch in iter_batches(fetched.data)]):
            self._history.violate(f"{where}: node {fetched.replica} does not show what is committed from {offset} on")


class Deleter(Bystander):
    """Client that now and then deletes the records before a drawn offset, on all replicas."""

    PER_S = 1.0

    async def _act(self, broker: Broker) -> None:
        where = self._partition
        partition = broker.partition(*where)
        extent = await partition.extent()
        offset = self._rng.randint(extent.log_start_offset, extent.high_watermark)
        self._history.ask_start(where, offset)
        await partition.delete_records(offset, deadline_s=asyncio.get_running_loop().time() + WAIT_S)
        self._history.recorder.tell("prefix", [Prefix(str(where), offset, offset)])
        self._history.counters["prefix deleted"] += 1
