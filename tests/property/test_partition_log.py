"""A partition log against a plain list of batches: any sequence of operations, restarts and power cuts."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tidelog.model.batch_codec import encode_batch
from tidelog.model.batch_header import RecordBatch, assign_offsets, split_batches
from tidelog.model.errors import OffsetOutOfRange
from tidelog.model.ids import PartitionId, TopicId
from tidelog.model.records import Record
from tidelog.sim.kit.disk import SimDisk
from tidelog.storage.flush import Flush
from tidelog.storage.loader import load_log
from tidelog.storage.open_files import OpenFiles
from tidelog.storage.partition_log import LogSettings, PartitionLog
from tidelog.storage.repair import Repair
from tidelog.storage.rows import Row
from tidelog.storage.scan import BadEnd
from tidelog.storage.segment import Segment
from tidelog.storage.verify import verify

IDENTITY = PartitionId(TopicId("12" * 16), 0)
SETTINGS = LogSettings(segment_bytes=700, segment_ms=1 << 40, segment_rows_max=6)


class Batch(NamedTuple):
    first_offset: int
    """Where the one before it ended: offsets up to `base_offset` were skipped."""
    base_offset: int
    next_offset: int
    max_timestamp: int
    epoch: int
    data: bytes


class PartitionLogMachine(RuleBasedStateMachine):
    """`batches` is what the log should hold, `start` its first offset; both as last told to it."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[Batch] = []
        self.start = 0
        self.start_durable = 0
        self.durable = 0
        self.epoch = 1
        self.flush: tuple[Flush, int, int] | None = None
        self.log: PartitionLog

    @initialize(seed=st.integers(0, 1000), handles=st.sampled_from([1, 2, 64]))
    def begin(self, seed: int, handles: int) -> None:
        self.disk = SimDisk(seed)
        self.handles = handles
        self.open()

    def open(self) -> None:
        opened = OpenFiles(self.disk, self.handles)
        self.log, self.report = load_log(
            opened, "log", IDENTITY, SETTINGS, new_incarnation="x", now_ms=0, bad_end=BadEnd.TRUNCATE
        )
        self.flush = None

    @property
    def end(self) -> int:
        return self.batches[-1].next_offset if self.batches else self.floor

    floor = 0
    """Where an empty log begins."""

    # -- writing -----------------------------------------------------------------------------------------------------

    @rule(
        shapes=st.lists(st.tuples(st.integers(1, 3), st.integers(0, 40), st.integers(0, 100)), min_size=1, max_size=5),
        skipped=st.sampled_from([0, 0, 0, 1, 7]),
    )
    def append(self, shapes: list[tuple[int, int, int]], skipped: int) -> None:
        made: list[RecordBatch] = []
        expected: list[Batch] = []
        end = self.end
        for records, size, timestamp in shapes:
            data = encode_batch([Record(timestamp, None, b"v" * size)] * records)
            (batch,) = split_batches(data, batch_bytes_max=1 << 20)
            made.append(assign_offsets(batch, end + skipped, self.epoch))
            header, stored = made[-1].header, bytes(made[-1].data)
            expected.append(Batch(end, end + skipped, header.next_offset, header.max_timestamp, self.epoch, stored))
            end = header.next_offset
        self.log.append(made, 0, may_skip=bool(skipped))
        self.batches += expected

    @precondition(lambda self: self.flush is None and self.log.is_dirty)
    @rule()
    def begin_flush(self) -> None:
        self.flush = (self.log.begin_flush(), self.end, self.start)

    @precondition(lambda self: self.flush is not None)
    @rule()
    def end_flush(self) -> None:
        assert self.flush is not None
        flush, self.durable, self.start_durable = self.flush
        flush.run()
        self.log.end_flush(flush, None)
        self.flush = None

    @rule()
    def roll(self) -> None:
        self.log.roll(0)

    @rule()
    def mark(self) -> None:
        self.log.mark()

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, self.durable))
        self.log.delete_records(offset)
        self.start = max(self.start, offset)

    @precondition(lambda self: self.flush is None)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        if offset == self.end:
            self.log.truncate_to(offset, high_watermark=0, now_ms=0)
            return
        kept = [batch for batch in self.batches if batch.next_offset <= offset]
        if self.batches[len(kept)].first_offset < self.start:  # half deleted, and what is deleted stays deleted
            self.log.truncate_to(offset, high_watermark=0, now_ms=0)
            self.begin_at(self.start)
            return
        self.log.truncate_to(offset, high_watermark=0, now_ms=0)
        self.epoch = data.draw(st.integers(kept[-1].epoch if kept else 0, self.epoch + 1))  # two rounds (KIP-279)
        self.forget_behind(offset)
        self.durable, self.start_durable = self.end, self.start

    @precondition(lambda self: self.flush is None)
    @rule(offset=st.integers(0, 60))
    def start_over(self, offset: int) -> None:
        self.log.start_over(offset, now_ms=0)
        self.begin_at(offset)

    def begin_at(self, offset: int) -> None:
        self.batches = []
        self.floor = self.start = self.start_durable = self.durable = offset

    def forget_behind(self, offset: int) -> None:
        self.floor = self.batches[0].first_offset if self.batches else self.floor
        self.batches = [batch for batch in self.batches if batch.next_offset <= offset]

    @rule(data=st.data())
    def damage_and_repair(self, data: st.DataObject) -> None:
        live = [batch for batch in self.batches if batch.next_offset > self.start]
        if not live:
            return
        batch = data.draw(st.sampled_from(live))
        part = next(self.log.parts(batch.base_offset))
        assert isinstance(part, Segment)
        row = next(part.entries(batch.base_offset))
        assert isinstance(row, Row)
        at = data.draw(st.integers(0, row.length - 1))
        part.log.pwritev([bytes([batch.data[at] ^ 0xFF])], row.file_position + at)
        assert self.log.repair(batch.data) is Repair.DONE

    # -- stopping and starting ---------------------------------------------------------------------------------------

    @precondition(lambda self: self.flush is None)
    @rule()
    def restart(self) -> None:
        self.log.close(self.durable)
        self.open()
        assert self.report.findings == []
        self.durable, self.start_durable = self.end, self.start

    @rule()
    def kill(self) -> None:
        self.disk = self.disk.kill()
        self.open()
        assert self.report.findings == []
        self.durable, self.start_durable = self.end, self.start

    @rule()
    def cut_power(self) -> None:
        self.disk = self.disk.crash()
        self.open()
        assert self.report.damage == []
        assert self.durable <= self.log.log_end_offset <= self.end
        assert self.start_durable <= self.log.log_start_offset <= self.start
        self.forget_behind(self.log.log_end_offset)
        self.start = self.start_durable = self.log.log_start_offset
        self.durable = self.end

    # -- looking -----------------------------------------------------------------------------------------------------

    @rule(data=st.data(), bytes_max=st.integers(0, 500))
    def read(self, data: st.DataObject, bytes_max: int) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        end = data.draw(st.integers(offset, self.end))
        extent = self.log.read(offset, bytes_max, end)
        ahead = [b for b in self.batches if b.next_offset > offset]
        readable = [b for b in ahead if b.next_offset <= end]
        if not readable or readable[0] is not ahead[0]:
            assert extent.data == b""
            return
        count = next(n for n in range(1, len(readable) + 1) if readable[n - 1].next_offset == extent.next_offset)
        assert extent.data == b"".join(batch.data for batch in readable[:count])
        assert count == 1 or len(extent.data) <= bytes_max

    @rule(timestamp=st.integers(0, 101), data=st.data())
    def look_up(self, timestamp: int, data: st.DataObject) -> None:
        end = data.draw(st.integers(self.start, self.end))
        live = (batch for batch in self.batches if batch.next_offset > self.start)
        expected = next((batch for batch in live if batch.max_timestamp >= timestamp), None)
        extent = self.log.batch_since(timestamp, end)
        if expected is None or expected.next_offset > end:
            assert extent is None
        else:
            assert extent is not None
            assert extent.data == expected.data

    @rule(beyond=st.integers(1, 1 << 40))
    def miss(self, beyond: int) -> None:
        for offset in (self.start - beyond, self.end + beyond):
            with pytest.raises(OffsetOutOfRange):
                self.log.read(offset, 1, self.end)

    @invariant()
    def the_extent_is_right(self) -> None:
        if not hasattr(self, "log"):
            return
        assert self.log.offline_reason is None
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, self.end)
        assert self.log.durable_offset == self.durable

    @invariant()
    def the_lineage_is_that_of_the_batches(self) -> None:
        """For what is not deleted: where an epoch began below the start need not be known exactly."""
        if not hasattr(self, "log"):
            return
        expected: dict[int, int] = {}
        for batch in self.batches:
            expected.setdefault(batch.epoch, batch.base_offset)
        known = dict(self.log.lineage)
        assert known.keys() <= expected.keys()
        assert all(max(known[epoch], self.start) == max(expected[epoch], self.start) for epoch in known)
        assert all(epoch in known for epoch, base in expected.items() if base >= self.start)

    def teardown(self) -> None:
        if hasattr(self, "log"):
            steps = list(verify(self.log))
            assert not any(step.damage or step.bad_rows for step in steps)


PartitionLogMachine.TestCase.settings = settings(stateful_step_count=40)
test_partition_log = PartitionLogMachine.TestCase
