"""Processed offsets behave as a set of integers does, and the dispatcher keeps its promises about keys."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.consumer.intervals import (
    INTERVALS_MAX,
    TEXT_BYTES_MAX,
    ProcessedOffsets,
    decode_processed,
)
from tidelog.consumer.partition_dispatcher import HeldRecord, Order, PartitionDispatcher
from tidelog.consumer.records import ConsumerRecord
from tidelog.model.errors import InvalidRequest
from tidelog.model.ids import OFFSET_MAX

OFFSETS = st.integers(0, 60)


def is_sound(processed: ProcessedOffsets) -> bool:
    """Returns True if the intervals are sorted, apart from each other and above the low offset."""
    edges = [processed.low, *(edge for interval in processed.intervals for edge in interval)]
    return all(one < other for one, other in pairwise(edges))


@given(OFFSETS, st.lists(st.tuples(OFFSETS, st.integers(0, 9))))
def test_processed_offsets_are_a_set_of_integers(low: int, added: Sequence[tuple[int, int]]) -> None:
    processed, model = ProcessedOffsets(low), set(range(low))
    for start, count in added:
        processed.add(start, start + count)
        model |= set(range(start, start + count))
        assert is_sound(processed)
        assert {offset for offset in range(80) if offset in processed} == model
        assert processed.low not in model
    anew = ProcessedOffsets(processed.low, processed.intervals)
    assert processed.fill_level(3, 99) == anew.fill_level(3, 99), "its size is kept as it changes"
    assert decode_processed(processed.low, processed.encode()).intervals == processed.intervals


@given(
    st.integers(0, OFFSET_MAX // 2),
    st.lists(st.tuples(st.integers(1, 1 << 40), st.integers(1, 1 << 30)), max_size=INTERVALS_MAX // 4),
)
def test_what_a_commit_says_is_processed_and_fits(low: int, lengths: Sequence[tuple[int, int]]) -> None:
    processed, end = ProcessedOffsets(low), low
    for gap, length in lengths:
        processed.add(end + gap, end + gap + length)
        end += gap + length
    text = processed.encode()
    assert len(text) <= TEXT_BYTES_MAX
    kept = decode_processed(low, text).intervals
    assert kept == processed.intervals[: len(kept)]
    assert len(kept) == len(lengths) or processed.fill_level(1, end) > 0.9
    if text:
        with pytest.raises(InvalidRequest):
            decode_processed(low + 1, text)


@given(st.data())
def test_the_fill_level_is_never_below_what_additions_come_to(data: st.DataObject) -> None:
    end = data.draw(st.sampled_from([40, 300, 20_000]))
    processed = ProcessedOffsets(0, data.draw(st.lists(st.tuples(st.integers(1, end - 1), st.just(end // 2)))))
    additions = data.draw(st.lists(st.integers(0, end - 1), max_size=20))
    level = processed.fill_level(len(additions), end)
    for offset in additions:
        processed.add(offset, offset + 1)
    assert processed.fill_level(0, end) <= level


@given(st.text(max_size=60) | st.binary(max_size=40).map(lambda data: f"tidelog-processed-1:{data.hex()}"))
def test_whatever_stands_in_the_metadata_is_read_or_refused(metadata: str) -> None:
    try:
        processed = decode_processed(5, metadata)
    except InvalidRequest:
        return
    assert processed.encode() == metadata


class World:
    """A partition's log, its dispatcher, and what a reader without it would know of all records."""

    def __init__(self, order: Order, log: list[ConsumerRecord], held_max: int) -> None:
        self.order, self.log = order, log
        self.held_max = held_max
        self.done = set[int]()
        self.busy = list[HeldRecord]()
        self.begin(ProcessedOffsets(0))

    def begin(self, processed: ProcessedOffsets) -> None:
        """A new life of the consumer, which knows what was committed."""
        self.it = PartitionDispatcher(self.order, processed, held_max=self.held_max)
        self.unread = [record for record in self.log if record.offset >= processed.low]
        self.busy.clear()
        self.handed_out = set[int]()
        self.done = {record.offset for record in self.log if record.offset in processed}

    def read(self, count: int) -> None:
        taken = self.unread[: min(count, self.it.room)]
        del self.unread[: len(taken)]
        position = self.unread[0].offset if self.unread else 1_000
        self.it.add(taken, position)

    def take(self) -> bool:
        held = self.it.take()
        if held is None:
            return False
        offset = held.record.offset
        assert offset not in self.handed_out | self.done, "handed out twice"
        assert all(not self.conflict(held, busy) for busy in self.busy)
        earlier = [record for record in self.log if record.offset < offset and self.is_same(record, held.record)]
        assert all(record.offset in self.done for record in earlier), "out of the order of its key"
        self.handed_out.add(offset)
        self.busy.append(held)
        return True

    def finish(self, index: int) -> None:
        held = self.busy.pop(index % len(self.busy))
        self.it.finish(held)
        self.done.add(held.record.offset)

    def is_same(self, one: ConsumerRecord, other: ConsumerRecord) -> bool:
        match self.order:
            case "total":
                return True
            case "key":
                return one.key is not None and one.key == other.key
            case "none":
                return False

    def conflict(self, one: HeldRecord, other: HeldRecord) -> bool:
        return self.is_same(one.record, other.record)

    def check(self) -> None:
        assert is_sound(self.it.processed)
        known = {record.offset for record in self.log if record.offset in self.it.processed}
        assert known == self.done
        assert self.it.held <= self.held_max
        assert self.it.taken == len(self.busy)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    gaps = draw(st.lists(st.integers(1, 3), max_size=40))
    log, offset = list[ConsumerRecord](), draw(st.integers(-1, 2))
    for gap in gaps:
        offset += gap
        key = draw(st.sampled_from([None, b"a", b"b", b"c"]))
        log.append(ConsumerRecord("t", 0, offset, 0, 0, key, b"", ()))
    return World(draw(st.sampled_from(["total", "key", "none"])), log, draw(st.integers(1, 12)))


@given(worlds(), st.data())
def test_every_record_is_handed_out_once_a_life_and_in_the_order_of_its_key(world: World, data: st.DataObject) -> None:
    step = st.sampled_from(["read", "take", "finish", "die"])
    for name in data.draw(st.lists(step, max_size=60)):
        if name == "read" and world.it.wants_more:
            world.read(data.draw(st.integers(0, 5)))
        elif name == "take":
            world.take()
        elif name == "finish" and world.busy:
            world.finish(data.draw(st.integers(0, 20)))
        elif name == "die":
            processed = world.it.processed
            world.begin(decode_processed(processed.low, processed.encode()))
        world.check()
    while world.unread or not world.it.is_idle:  # whatever has happened, all is processed in the end
        if world.it.wants_more:
            world.read(5)
        while world.take():
            pass
        assert world.busy or world.it.is_idle, "nothing is processed, and something waits"
        if world.busy:
            world.finish(0)
        world.check()
    assert world.done == {record.offset for record in world.log}
    assert world.it.processed.intervals == []
