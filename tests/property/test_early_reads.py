"""Records above the high watermark: whatever a leader releases and its successors decide, a consumer by key that reads
them early gets every record once in a life, in the order of its key, and no record is missed after a restart.

The leader is a model; what reads from it is what is shipped: the broker's choice of batches, the cursor, the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import cast

from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.broker.partitions.early_reads import EarlyReader
from tidelog.broker.partitions.led_partition import LedPartition
from tidelog.broker.partitions.partition_handle import FetchedBatches, ReleasedBatches
from tidelog.consumer.cursor import Cursor
from tidelog.consumer.early_batches import split_at
from tidelog.consumer.fetcher import Fetcher
from tidelog.consumer.intervals import decode_processed
from tidelog.consumer.losses import LossPolicy
from tidelog.consumer.parallel_run import ParallelRun, RunOptions
from tidelog.consumer.partition_dispatcher import HeldRecord, Order
from tidelog.consumer.records import ConsumerRecord
from tidelog.consumer.subscription import Subscription
from tidelog.model.batch_codec import encode_batch
from tidelog.model.early_reads import is_read_early, parse_above
from tidelog.model.ids import TopicPartition

T0 = TopicPartition("t", 0)


@dataclass(eq=False)
class Value:
    """A value that a leader has proposed: one batch or two, at offsets that are its own for ever."""

    base_offset: int
    batches: Sequence[Sequence[bytes]]
    """The keys of the records of each batch."""
    is_chosen: bool = False
    is_released: bool = False
    is_void: bool = False

    @property
    def keys(self) -> list[bytes]:
        return [key for batch in self.batches for key in batch]

    @property
    def next_offset(self) -> int:
        return self.base_offset + len(self.keys)

    def read(self) -> bytes:
        data, offset = b"", self.base_offset
        for keys in self.batches:
            data += encode_batch([(0, key, b"v" * (int(key) % 3 * 60)) for key in keys], base_offset=offset)
            offset += len(keys)
        return data


@dataclass
class Leader:
    """A leader and its successors, and what they know of the log."""

    commit_order: str
    values: list[Value] = field(default_factory=list)
    applied: int = 0
    end: int = 0

    def propose(self, batches: Sequence[Sequence[bytes]]) -> None:
        value = Value(self.end, batches)
        self.values.append(value)
        self.end = value.next_offset

    def choose(self, index: int) -> None:
        waiting = [value for value in self.values if not value.is_chosen]
        if waiting:
            waiting[min(index, len(waiting) - 1)].is_chosen = True
            self._release()

    def apply(self, count: int) -> None:
        """Moves the high watermark behind so many values at most, up to the first that is not chosen."""
        while count and self.applied < len(self.values) and self.values[self.applied].is_chosen:
            self.applied += 1
            count -= 1

    def _release(self) -> None:
        unreleased = list[Value]()
        for value in self.values:
            if not value.is_chosen or any(self._conflict(value, before) for before in unreleased):
                unreleased.append(value)
            else:
                value.is_released = True

    def _conflict(self, value: Value, before: Value) -> bool:
        if self.commit_order == "key":
            return not set(value.keys).isdisjoint(before.keys)
        return self.commit_order == "total"

    def replace(self) -> None:
        """Another leader takes over: what was released stays, and all else that is not chosen becomes void."""
        for value in self.values:
            value.is_void |= not value.is_released and not value.is_chosen
            value.is_chosen = True
        for value in self.values:
            value.is_released = not value.is_void
        self.applied = len(self.values)

    @property
    def high_watermark(self) -> int:
        return self.values[self.applied].base_offset if self.applied < len(self.values) else self.end

    @property
    def standing(self) -> list[Value]:
        return [value for value in self.values if not value.is_void]

    def released(self) -> list[ReleasedBatches]:
        return [
            ReleasedBatches(value.base_offset, value.next_offset, value.read)
            for value in self.standing
            if value.is_released and value.base_offset >= self.high_watermark
        ]

    def read(self, offset: int, values_max: int) -> FetchedBatches:
        high_watermark = self.high_watermark
        assert offset <= high_watermark, "no reader begins beyond the high watermark"
        below = [value for value in self.standing if offset < value.next_offset <= high_watermark][:values_max]
        end = below[-1].next_offset if below else offset
        return FetchedBatches(b"".join(value.read() for value in below), end, 0, high_watermark, high_watermark, 1, 1)

    def records(self) -> dict[int, bytes]:
        return {value.base_offset + number: key for value in self.standing for number, key in enumerate(value.keys)}


class NoFetcher:
    def wake(self, cursor: Cursor) -> None:
        """The world fetches by itself."""


class World:
    """A consumer, and what one that knew everything would know of it."""

    def __init__(self, commit_order: str, order: Order) -> None:
        self.leader = Leader(commit_order)
        self.order: Order = order
        self.done = set[int]()
        self.begin(0, "")

    def begin(self, low: int, metadata: str) -> None:
        """A new life of the consumer, which begins with what was committed."""
        self.subscription = Subscription(LossPolicy(skips=False), check_crcs=True)
        (self.cursor,) = self.subscription.add([T0], None)
        self.cursor.seek(low)
        self.cursor.processed = decode_processed(low, metadata)
        self.done = {offset for offset in self.leader.records() if offset in self.cursor.processed}
        self.handed_out = set[int]()
        self.busy = list[tuple[Cursor, HeldRecord]]()
        options = RunOptions(order=self.order, workers=1, patience_s=0, buffer_bytes=1 << 20)
        fetcher = cast("Fetcher", NoFetcher())
        self.run = ParallelRun(self._handle, options, self.subscription, fetcher, None, lambda: None, asyncio.Event())
        self._turn()

    async def _handle(self, _record: ConsumerRecord) -> None:
        raise AssertionError("there are no workers")

    def _turn(self) -> None:
        self.run._turns.setdefault(self.cursor)

    def fetch(self, values_max: int, early_bytes: int) -> None:
        """Fetches as the `Fetcher` does."""
        if not self.cursor.wants_more:
            return
        offset, generation, above = self.cursor.fetch_offset, self.cursor.generation, None
        if is_read_early(self.leader.commit_order, self.order):
            above = self.cursor.early.above(offset)
        read = self.leader.read(offset, values_max)
        data = bytes(read.data)
        if above is not None:
            early = EarlyReader(cast("LedPartition", self.leader), parse_above(above))
            data += b"".join(batch.batch.data for batch in early.batches(read, early_bytes))
        self.cursor.high_watermark = read.high_watermark
        in_order, released = split_at(data, read.high_watermark)
        self.cursor.add(generation, in_order)
        self.cursor.add_early(generation, released)
        self._turn()

    def take(self) -> bool:
        taken = self.run._next()
        if taken is None:
            return False
        record = taken[1].record
        assert record.offset not in self.handed_out | self.done, "handed out twice"
        if self.order == "key":
            earlier = [at for at, key in self.leader.records().items() if key == record.key and at < record.offset]
            assert self.done.issuperset(earlier), "out of the order of its key"
        self.handed_out.add(record.offset)
        self.busy.append(taken)
        return True

    def finish(self, index: int) -> None:
        cursor, held = self.busy.pop(index % len(self.busy))
        self.run._dispatchers[cursor].finish(held)
        self.done.add(held.record.offset)
        self._turn()

    def restart(self) -> None:
        committed = self.cursor.committable
        assert committed is not None
        self.begin(committed.low, committed.encode())

    def check(self) -> None:
        processed, committed = self.cursor.processed, self.cursor.committable
        assert processed is not None
        assert committed is not None
        assert committed.low <= self.leader.high_watermark, "no commit is beyond the high watermark"
        assert {offset for offset in self.leader.records() if offset in processed} == self.done


def worlds() -> st.SearchStrategy[World]:
    orders: list[tuple[str, Order]] = [
        ("key", "key"),
        ("key", "key"),
        ("key", "none"),
        ("none", "none"),
        ("none", "key"),
        ("total", "key"),
    ]
    return st.sampled_from(orders).map(lambda both: World(*both))


STEPS = {
    "propose": 8,
    "choose": 6,
    "apply": 4,
    "fetch": 6,
    "read": 15,
    "finish": 4,
    "fill": 1,
    "restart": 0.5,
    "replace": 0.2,
}
"""The kinds of steps, each as often as it is drawn. A seed draws them evenly, as Hypothesis tries too few holes."""


@settings(max_examples=60)
@given(worlds(), st.integers(0, 1 << 32))
def test_every_record_comes_once_a_life_and_in_the_order_of_its_key(world: World, seed: int) -> None:
    rng = Random(seed)
    for step in rng.choices([*STEPS], [*STEPS.values()], k=250):
        _do(step, world, rng)
        world.check()
    _end(world)
    assert world.done == set(world.leader.records())
    assert world.cursor.processed is not None
    assert world.cursor.processed.intervals == []


def _do(step: str, world: World, rng: Random) -> None:
    leader = world.leader
    match step:
        case "propose":
            leader.propose([[b"%d" % rng.randrange(30) for _ in range(2)] for _ in range(rng.randint(1, 2))])
        case "choose" | "fill":
            leader.choose(rng.randint(1, 5) if step == "choose" else 0)  # seldom the lowest, so that there is a hole
        case "apply":
            leader.apply(rng.choice([1, 2, 9]))
        case "replace":
            leader.replace()
        case "fetch":
            world.fetch(rng.randint(1, 3), rng.choice([1, 200, 10_000]))
        case "read":
            world.take()
        case "finish" if world.busy:
            world.finish(rng.randrange(9))
        case "restart":
            world.restart()


def _end(world: World) -> None:
    """Commits all that was proposed, and processes it."""
    for _ in world.leader.values:
        world.leader.choose(0)
    world.leader.apply(len(world.leader.values))
    for _ in range(4 * len(world.leader.values) + 4):
        world.fetch(3, 1)
        while world.take() or world.busy:
            if world.busy:
                world.finish(0)
            world.check()


def test_what_lies_behind_a_hole_is_processed_before_the_hole_is_filled() -> None:
    world = World("key", "key")
    for keys in ([b"1"], [b"2"], [b"1", b"3"], [b"4"]):
        world.leader.propose([keys])
    world.leader.choose(1)
    world.leader.choose(1)
    world.leader.choose(1)
    world.fetch(9, 10_000)
    while world.take():
        pass
    assert sorted(world.handed_out) == [1, 4], "2 has the key of the hole, and 3 is in one batch with it"
    world.finish(0)
    world.restart()
    world.fetch(9, 10_000)
    while world.take():
        pass
    assert sorted(world.handed_out) == [4]
    _end(world)
    assert sorted(world.handed_out) == [0, 2, 3, 4]


def test_no_commit_is_beyond_the_high_watermark() -> None:
    world = World("key", "key")
    for keys in ([b"1"], [b"2"]):
        world.leader.propose([keys])
    world.leader.choose(1)
    world.fetch(9, 10_000)
    assert world.take()
    world.finish(0)
    world.leader.choose(0)
    world.leader.apply(1)  # and the value above it a moment later
    world.fetch(9, 10_000)
    assert world.take()
    world.finish(0)
    world.check()
    world.restart()
    assert world.cursor.position == world.leader.high_watermark == 1
    _end(world)
    assert world.handed_out == {1}
