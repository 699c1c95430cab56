"""What a leader sent is taken as it is, or not at all; offsets that it left out stay left out."""

from __future__ import annotations

import pytest

from tests.unit.storage.conftest import IDENTITY, Store
from tidelog.model.batch_codec import encode_batch
from tidelog.model.batch_header import HEADER_BYTES, assign_offsets, split_batches
from tidelog.model.errors import DamagedBatch, InvalidBatch
from tidelog.model.records import Record
from tidelog.storage.received import parse_received
from tidelog.storage.repair import Repair
from tidelog.storage.rows import RowCodec


def batch(offset: int, epoch: int = 1, records: int = 1) -> bytes:
    data = encode_batch([Record(1, None, b"value %d" % offset)] * records)
    (made,) = split_batches(data, batch_bytes_max=1 << 20)
    return bytes(assign_offsets(made, offset, epoch).data)


def receive(store: Store, *batches: bytes, may_skip: bool = False) -> int:
    received = parse_received(b"".join(batches), store.log.log_end_offset, store.log.tail.epoch, may_skip=may_skip)
    store.log.append(received, store.now_ms, may_skip=may_skip)
    for data in batches[: len(received)]:
        store.appended[int.from_bytes(data[:8], "big")] = data
    return len(received)


def test_batches_are_stored_as_they_came(store: Store) -> None:
    assert receive(store, batch(0, 1, 3), batch(3, 1), batch(4, 6)) == 3
    store.flush()
    assert store.log.lineage == [(1, 0), (6, 4)]
    store.kill_and_open()
    assert store.is_whole
    assert store.log.log_end_offset == 5


def test_a_batch_that_is_cut_short_is_left_out() -> None:
    data = batch(0) + batch(1)[:-1]
    assert len(parse_received(data, 0, 1, may_skip=False)) == 1
    assert parse_received(batch(1)[: HEADER_BYTES - 1], 1, 1, may_skip=False) == []


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (batch(2), "the batch at offset 2 does not follow offset 1"),
        (batch(0), "the batch at offset 0 does not follow offset 1"),
        (batch(1, 3)[:-1] + b"?", "the batch is damaged"),
        (batch(1, 3), "leader epoch 3, behind 4"),
    ],
)
def test_nothing_is_appended_if_anything_is_wrong(store: Store, bad: bytes, reason: str) -> None:
    with pytest.raises(InvalidBatch, match=reason):
        receive(store, batch(0, 4), bad)
    assert store.log.log_end_offset == 0
    assert not store.log.is_dirty


def test_offsets_may_be_left_out_when_that_is_said(store: Store) -> None:
    assert receive(store, batch(5), batch(6, 2, 2), batch(20, 2), may_skip=True) == 3
    store.log.roll(store.now_ms)
    receive(store, batch(30, 2), may_skip=True)
    store.flush()
    for reopen in (None, store.kill_and_open, store.close_and_open):
        if reopen is not None:
            reopen()
        assert store.report.findings == []
        assert store.is_whole
        assert store.log.log_end_offset == 31
        assert store.log.lineage == [(1, 5), (2, 6)]
        assert store.log.read(8, 1, 31).data == batch(20, 2)
        assert store.log.read(0, 1, 31).data == batch(5)
        assert store.log.damaged_ranges() == []


def test_behind_a_batch_that_a_crash_took_nothing_is_left_out(store: Store) -> None:
    receive(store, batch(0))
    store.flush()
    receive(store, batch(9), may_skip=True)
    size = len(batch(0))
    store.cut(store.log_path(), size + 20)
    store.kill_and_open()
    assert store.log.log_end_offset == 1


@pytest.mark.parametrize("offset", range(31))
def test_a_truncation_among_skipped_offsets(store: Store, offset: int) -> None:
    receive(store, batch(5), batch(6, 2, 2), batch(20, 2), may_skip=True)
    store.log.roll(store.now_ms)
    receive(store, batch(30, 2), may_skip=True)
    store.log.truncate_to(offset, high_watermark=0, now_ms=0)
    store.appended = {base: data for base, data in store.appended.items() if base < store.log.log_end_offset}
    assert store.log.log_end_offset <= offset
    assert store.is_whole
    assert len(store.appended) == sum(end <= offset for end in (6, 8, 21, 31))
    receive(store, batch(40, 2), may_skip=True)
    store.flush()
    store.kill_and_open()
    assert store.report.findings == []
    assert store.is_whole


def test_a_damaged_row_behind_skipped_offsets_needs_a_peer_to_tell_them_from_lost_ones(store: Store) -> None:
    receive(store, batch(0), batch(9), batch(10), may_skip=True)
    store.close_and_open()
    store.harm_row(2)
    with pytest.raises(DamagedBatch, match="offsets 1 to 9 "):
        store.log.read(9, 1, 11)
    other = batch(9)[:-8] + b"x" * 8
    assert [(damage.start, damage.end) for damage in store.log.damaged_ranges()] == [(1, 10)]
    with pytest.raises(InvalidBatch):
        store.log.repair(other)
    assert store.log.repair(batch(9, epoch=2)) is Repair.UNKNOWN
    assert store.log.repair(batch(9)) is Repair.DONE
    assert store.log.damaged_ranges() == []
    store.kill_and_open()
    assert store.report.findings == []
    assert store.is_whole


def test_a_row_says_how_many_offsets_were_skipped(store: Store) -> None:
    receive(store, batch(7), may_skip=True)
    row = RowCodec(IDENTITY).body(store.content(store.catalog_path())[128:256])
    assert row is not None
    assert (row.base_offset, row.skipped, row.first_offset) == (7, 7, 0)
