"""Clients of a simulated cluster: the producers and readers of the single-broker simulator, sending to any broker.

Requests go to a broker drawn anew from time to time, so most are forwarded. Every acknowledgement and every record
read is compared with the committed batches (`Ledger`) at once; `tidelog.checker` looks at the whole history at the end.
"""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_right
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from tidelog.broker.broker import Broker, NewTopic
from tidelog.broker.partitions.partition_handle import FetchedBatches
from tidelog.checker.operations import Durability
from tidelog.model.batch_header import iter_batches
from tidelog.model.errors import OffsetOutOfRange, TidelogError
from tidelog.model.ids import TopicPartition
from tidelog.sim.broker.administrators import NowAndThen
from tidelog.sim.broker.producers import Producer
from tidelog.sim.broker.readers import PAUSE_S, Reader
from tidelog.sim.cluster.ledger import Ledger
from tidelog.sim.cluster.shadows import Held, held
from tidelog.sim.cluster.traffic import UNCLEAN, TopicPlan
from tidelog.sim.cluster.world import World
from tidelog.sim.kit.environment import SimClock
from tidelog.sim.kit.history import History, Sent
from tidelog.sim.kit.machine import ConnectionLost, Machine, Unreachable

T = TypeVar("T")

FAILURES = (Unreachable, ConnectionLost, TidelogError)
STAY_RATE = 0.9
"""Chance that a client's next request goes to the same broker."""
SILENT_S = 10.0
"""Seconds for which a client avoids a broker that has not answered, if there is another."""
RETRY_S = 0.1


class AnyBroker:
    """Sends a client's requests to one broker, and to another one if that broker is down or does not answer."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self.clock = SimClock(asyncio.get_running_loop())
        self.may_write = world.may_write
        self._world = world
        self._rng = rng
        self._silent_until: dict[int, float] = {}
        self._node = rng.choice(world.swarm.nodes)

    async def call(self, work: Callable[[Broker], Coroutine[Any, Any, T]]) -> T:
        """Runs a request in some broker. Raises what the request raises, `Unreachable` if the broker is down, or
        `ConnectionLost`."""
        if self._rng.random() >= STAY_RATE:
            self._node = self._choose()
        machine: Machine = self._world.machine(self._node)
        if not machine.is_up:
            self._node = self._choose()
        if not self._world.swarm.patience_s:
            return await machine.call(work)
        return await self._call_in_time(machine, work)

    async def _call_in_time(self, machine: Machine, work: Callable[[Broker], Coroutine[Any, Any, T]]) -> T:
        try:
            async with asyncio.timeout(self._world.swarm.patience_s):
                return await machine.call(work)
        except TimeoutError:
            self._silent_until[self._node] = self._world.true_time + SILENT_S
            self._node = self._choose()
            raise ConnectionLost from None

    def _choose(self) -> int:
        nodes = [node for node in self._world.swarm.nodes if self._silent_until.get(node, 0.0) <= self._world.true_time]
        return self._rng.choice(nodes or self._world.swarm.nodes)


class ClusterHistory(History):
    """A history that checks each acknowledgement and each record read against the committed batches at once."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self._ledger = ledger
        self.acknowledged: dict[tuple[TopicPartition, int], list[tuple[int, int]]] = {}
        """Offsets [start, end) of the acknowledged batches, by partition and leader epoch."""

    def is_unclean(self, partition: TopicPartition) -> bool:
        """Returns True if the partition was led by a replica that was not in sync."""
        book = self._ledger.book_of(partition)
        return book is not None and book.is_unclean

    def acknowledge(self, sent: Sent, base_offset: int | None, durability: Durability, epoch: int) -> None:
        """Records an acknowledgement, if it promises that the records survive: an acknowledgement by a leader alone
        does not, as another leader may be without them."""
        is_worthless = durability == "leader" or self.is_unclean(sent.partition)
        is_lossy = sent.partition in self.volatile and durability == "fsynced" and self._allows_unclean(sent.partition)
        worth: Durability = "none" if is_worthless else "replicated" if is_lossy else durability
        super().acknowledge(sent, base_offset, worth, epoch)
        if sent.is_acknowledged and base_offset is not None:
            end = base_offset + len(sent.values)
            self.acknowledged.setdefault((sent.partition, epoch), []).append((base_offset, end))
            if not self._ledger.is_released(sent.partition, base_offset, end):
                self._check(sent.partition, end, "acknowledged")

    def _allows_unclean(self, partition: TopicPartition) -> bool:
        topic, book = self._ledger.topic_of(partition), self._ledger.book_of(partition)
        return topic is not None and topic.configs.get(UNCLEAN) == "true" and not (book is not None and book.is_paxos)

    def show(self, poll: int, partition: TopicPartition, records: Sequence[tuple[int, bytes]], **facts: Any) -> None:
        if self.is_unclean(partition):  # an earlier leader may still show what is lost
            self.recorder.complete(poll, "fail")
            return
        super().show(poll, partition, records, **facts)
        if records:
            self._check(partition, records[-1][0] + 1, "shown")
            self._check_given_up(partition, [offset for offset, _ in records])

    def is_sparse(self, partition: TopicPartition) -> bool:
        """Returns True if some offsets belong to no record, as in Paxos partitions."""
        book = self._ledger.book_of(partition)
        return book is not None and book.is_paxos

    def is_next(self, partition: TopicPartition, offset: int, batches: Sequence[Held]) -> bool:
        """Returns True if these batches are the committed batches from this offset on, without gaps."""
        book = self._ledger.book_of(partition)
        if book is None:
            return True
        begin = bisect_right(book.batches, offset, key=lambda batch: batch.end)
        return [*islice(book.shown(begin), len(batches))] == [*batches]

    def check_passed(self, partition: TopicPartition, lost: Iterable[tuple[int, int]]) -> None:
        """Checks offsets that a reader was told are lost: an operator must have accepted each loss."""
        book = self._ledger.book_of(partition)
        for start, end in lost:
            self.counters["loss passed"] += 1
            if book is None or not book.given_up.covers(start, end):
                self.violate(f"{partition}: offsets {start} to {end - 1} are passed, and nobody has given them up")

    def _check_given_up(self, partition: TopicPartition, offsets: Iterable[int]) -> None:
        book = self._ledger.book_of(partition)
        for offset in offsets:
            if book is not None and book.given_up.covers(offset, offset + 1):
                self.violate(f"{partition}: offset {offset} was given up, and is shown")

    def _check(self, partition: TopicPartition, end: int, what: str) -> None:
        book = self._ledger.book_of(partition)
        if book is not None and not book.is_volatile and not book.is_gone and end > book.end:
            self.violate(f"{partition}: up to {end} is {what}, and committed is what is below {book.end}")


class ClusterProducer(Producer):
    """A producer whose requests may overtake one another on their way through several brokers. As the log accepts any
    first sequence, it sends the first batch of a producer id alone."""

    async def _attempt(self, sent: Sent, body: bytes, *, is_retry: bool = False) -> bool:
        assert isinstance(self._machine, AnyBroker)
        await self._machine.may_write.wait()
        return await super()._attempt(sent, body, is_retry=is_retry)

    def _may_have_lost(self) -> bool:
        assert isinstance(self._history, ClusterHistory)
        return self._history.is_unclean(self.partition) or super()._may_have_lost()

    def _draw_window(self) -> int:
        return super()._draw_window() if self._sequence > 0 else 1


class ClusterReader(Reader):
    """A reader that retries when an offset is called damaged, since in a cluster another replica has an intact copy."""

    async def _damaged(self) -> None:
        self._history.counters["read called damaged"] += 1
        await asyncio.sleep(PAUSE_S)

    def _check(self, fetched: FetchedBatches, offset: int) -> None:
        assert isinstance(self._history, ClusterHistory)
        self._history.check_passed(self.partition, fetched.lost)
        if not self._history.is_sparse(self.partition) and not fetched.lost:
            super()._check(fetched, offset)
        elif not self._history.is_next(self.partition, offset, [held(batch) for batch in iter_batches(fetched.data)]):
            self._history.violate(f"{self.partition} does not show all that is committed from {offset} on")

    async def _fetch(self) -> None:
        try:
            await super()._fetch()
        except OffsetOutOfRange as error:
            self._history.counters["reader sent back"] += 1
            if self._offset > error.log_start_offset and self.partition not in self._history.volatile:
                self._history.violate(
                    f"{self.partition}: a reader of {self._offset} is told that the log holds "
                    f"{error.log_start_offset} to {error.log_end_offset}"
                )
            raise


class Tuner(NowAndThen):
    """Client that now and then changes a topic's `min.insync.replicas`."""

    def __init__(self, topics: tuple[TopicPlan, ...], anywhere: AnyBroker, rng: random.Random) -> None:
        super().__init__(1.5, rng)
        self._topics = topics
        self._anywhere = anywhere

    async def _do(self) -> None:
        topic = self._rng.choice(self._topics)
        await self._anywhere.call(partial(_tune, topic.name, self._rng.randint(1, topic.factor)))


async def _tune(topic: str, replicas: int, broker: Broker) -> None:
    await broker.admin.alter_topic_configs(topic, {"min.insync.replicas": str(replicas)})


async def create(topic: TopicPlan, anywhere: AnyBroker) -> None:
    """Creates a topic, retrying until it exists; the replication factor is at most the number of live brokers."""

    async def try_once(broker: Broker) -> bool:
        if topic.name in broker.image.topics:
            return True
        factor = min(topic.factor, len(broker.image.live_brokers))
        if factor == 0:
            return False
        configs = dict(topic.configs)
        if "min.insync.replicas" in configs:
            configs["min.insync.replicas"] = str(min(factor, int(configs["min.insync.replicas"])))
        await broker.admin.create_topic(NewTopic(topic.name, topic.partitions, factor, configs=configs))
        return True

    while True:
        with suppress(*FAILURES):
            if await anywhere.call(try_once):
                return
        await asyncio.sleep(RETRY_S)
