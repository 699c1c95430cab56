"""Clients that write, as the real producer does: they retry the same batch, with the same sequence, until its outcome
is known.

Each client writes to one partition, up to a window of batches in flight, and retries in order. A plain client sends
each batch once and leaves its outcome unknown.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, cast, get_args

from xxhash import xxh3_64_digest

from tidelog.broker.broker import Broker
from tidelog.broker.partitions.proposals import ProduceReceipt
from tidelog.checker.operations import Durability
from tidelog.model.batch_codec import encode_batch
from tidelog.model.batch_header import Compression, split_batches
from tidelog.model.errors import OutOfOrderSequence, TidelogError
from tidelog.model.ids import KEYED_PRODUCER_BIT, ProducerId, TopicPartition
from tidelog.model.records import Record
from tidelog.sim.kit.history import PADDING, History, Kind, Sent
from tidelog.sim.kit.machine import ConnectionLost, Service, Unreachable

BATCH_BYTES_MAX = 1 << 20
RETRY_S = 0.05
RESPONSE_LOST = 0.01
"""Chance that the answer to a produce request is lost."""
GAP_RETRIES_MAX = 3
KEYLESS = 0.1
"""The share of records without a key, of a producer whose records have keys."""
FINGERPRINT = 77


class Producer:
    """Client that produces. `run` sends until `stop` is called and the outcome of all batches that it retries
    is known."""

    def __init__(
        self,
        name: str,
        kind: Kind,
        acks: int,
        partition: TopicPartition,
        machine: Service,
        history: History,
        rng: random.Random,
        keys: int = 0,
    ) -> None:
        """`keys` is the number of keys that records have; with 0, none has a key."""
        self.name = name
        self.kind = kind
        self.acks = acks
        self.partition = partition
        self._machine = machine
        self._history = history
        self._rng = rng
        self._keys = keys
        self._window = 1 if kind is Kind.PLAIN else rng.randint(1, 5)
        self._pause_s = rng.choice((0.005, 0.05, 0.2))
        self._value_bytes = rng.choice((8, 8, 100, 700))
        self._compression = rng.choice((Compression.NONE, Compression.NONE, Compression.NONE, Compression.ZSTD))
        self._producer_id = ProducerId(-1)
        self._sequence = 0
        self._number = 0
        self._is_stopping = False

    def stop(self) -> None:
        """Makes `run` send no new batch, and end when the outcome of all earlier ones is known."""
        self._is_stopping = True

    async def run(self) -> None:
        while not self._is_stopping:
            window = [self._new_batch() for _ in range(self._draw_window())]
            if self.kind is Kind.IDEMPOTENT and self._producer_id < 0:
                await self._allocate()
            requests = [(sent, self._encode(sent)) for sent in window]
            tasks = [asyncio.ensure_future(self._attempt(sent, body)) for sent, body in requests]
            acknowledged = [await task for task in tasks]
            if not all(acknowledged):
                await asyncio.sleep(RETRY_S)
                if self.kind is not Kind.PLAIN:
                    await self._insist(requests)
            await asyncio.sleep((0.1 + self._rng.random()) * self._pause_s)

    def _draw_window(self) -> int:
        """Draws the number of batches that are sent next without waiting for answers."""
        return self._rng.randint(1, self._window)

    def _new_batch(self) -> Sent:
        count = self._rng.choice((1, 1, 2, 5))
        name = f"{self.name}:{self._number}"
        values = [f"{name}:{i}".encode().ljust(self._value_bytes, PADDING) for i in range(count)]
        sent = Sent(self.name, self.kind, self._number, self.partition, values, [self._draw_key() for _ in values])
        self._number += 1
        self._history.send(sent)
        return sent

    def _draw_key(self) -> bytes | None:
        # Producers without keys draw nothing, so that their runs stay the same.
        if not self._keys or self._rng.random() < KEYLESS:
            return None
        return b"key %d" % self._rng.randrange(self._keys)

    async def _allocate(self) -> None:
        while True:
            try:
                self._producer_id = await self._machine.call(lambda broker: broker.admin.allocate_producer_id())
                self._sequence = 0
                return
            except (Unreachable, ConnectionLost, TidelogError):
                await asyncio.sleep(RETRY_S)

    def _encode(self, sent: Sent) -> bytes:
        now_ms = self._machine.clock.wall_ms()
        is_numbered = self.kind is Kind.IDEMPOTENT
        sent.producer_id = self._producer_id
        body = encode_batch(
            [Record(now_ms, key, value) for key, value in zip(sent.keys, sent.values, strict=True)],
            compression=self._compression,
            producer_id=self._producer_id if is_numbered else -1,
            producer_epoch=0 if is_numbered else -1,
            base_sequence=self._sequence if is_numbered else -1,
        )
        self._sequence += len(sent.values)
        return bytes(body)

    async def _insist(self, requests: list[tuple[Sent, bytes]]) -> None:
        """Sends the batches with unknown outcomes again, in order, until each is acknowledged or a sequence gap
        persists."""
        gaps = 0
        for sent, body in requests:
            while sent.durability is None:
                await asyncio.sleep(RETRY_S * (0.5 + self._rng.random()))
                try:
                    await self._attempt(sent, body, is_retry=True)
                except OutOfOrderSequence:
                    gaps += 1
                    if gaps > GAP_RETRIES_MAX:
                        self._give_up()
                        return

    def _give_up(self) -> None:
        """Starts afresh under a new producer id after a sequence gap that persists. The log has then lost acknowledged
        batches: a violation, unless a fault of the run may have destroyed them."""
        self._producer_id = ProducerId(-1)
        self._history.counters["producer started afresh"] += 1
        if not self._history.knows_sequences(self.partition):
            self._history.counters["excused sequence gap behind lost batches"] += 1
        elif self.acks == -1 and not self._may_have_lost():
            self._history.violate(f"{self.name} was told of a sequence gap, though all before it was acknowledged")

    def _may_have_lost(self) -> bool:
        mine = [s for s in self._history.sent if s.producer == self.name and s.is_acknowledged]
        return any(s.durability != "fsynced" and s.losses_at_ack < self._history.volatile_losses for s in mine)

    async def _attempt(self, sent: Sent, body: bytes, *, is_retry: bool = False) -> bool:
        """Sends a batch once, and notes the outcome. Returns True if it is acknowledged, False if it is refused or the
        outcome is unknown. Raises `OutOfOrderSequence` for a retry that the broker refuses with that error."""
        history = self._history
        history.attempt(sent)
        try:
            receipt = await self._machine.call(self._request(body))
            if self._rng.random() < RESPONSE_LOST:
                raise ConnectionLost
        except Unreachable:
            history.refuse(sent, "unreachable")
        except ConnectionLost:
            history.counters["unknown outcome"] += 1
        except TidelogError as error:
            history.counters[type(error).__name__] += 1
            if error.definite:
                history.refuse(sent, type(error).__name__)
                if is_retry and isinstance(error, OutOfOrderSequence):
                    raise
        else:
            history.acknowledge(sent, receipt.base_offset, _durability(receipt), receipt.leader_epoch)
            return True
        return False

    def _request(self, body: bytes) -> Callable[[Broker], Coroutine[Any, Any, ProduceReceipt]]:
        deadline_s = asyncio.get_running_loop().time() + self._rng.choice((0.002, 0.1, 1.0, 10.0))
        idempotency = (ProducerId(KEYED_PRODUCER_BIT | self._key(body)), FINGERPRINT)

        async def produce(broker: Broker) -> ProduceReceipt:
            partition = broker.partition(*self.partition)
            return await partition.produce(
                split_batches(body, batch_bytes_max=BATCH_BYTES_MAX),
                acks=self.acks,
                deadline_s=deadline_s,
                idempotency=idempotency if self.kind is Kind.KEYED else None,
            )

        return produce

    @staticmethod
    def _key(body: bytes) -> int:
        """Returns the producer id that stands for an idempotency key, unique to this batch."""
        return int.from_bytes(xxh3_64_digest(body), "big") >> 3


def _durability(receipt: ProduceReceipt) -> Durability:
    durability = receipt.durability
    assert durability in get_args(Durability), durability
    return cast("Durability", durability)
