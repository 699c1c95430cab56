"""Ranges that were given up, in a log: readers pass them, whatever lies there; other replicas get empty batches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.storage.conftest import Store, WatchedFiles
from tidelog.broker.partitions.committed import fill_lost_end, first_since
from tidelog.model.batch_codec import decode_batch, empty_batch
from tidelog.model.batch_header import iter_batches, verify_batch
from tidelog.model.errors import DamagedBatch, OffsetOutOfRange
from tidelog.model.losses import AcceptedLoss, LostRanges
from tidelog.sim.kit.disk import SimDisk
from tidelog.storage.received import parse_received
from tidelog.storage.rows import Row
from tidelog.storage.segment import Segment

END = 12


def lost(*ranges: tuple[int, int]) -> LostRanges:
    return LostRanges(AcceptedLoss(start, end, 0, "op", 1) for start, end in ranges)


def fill(store: Store) -> None:
    """Offsets 0 to 11: a batch of one record each, of timestamps 0, 10, 20 and so on, in three segments."""
    for n in range(END):
        if n in (4, 8):
            store.log.roll(store.now_ms)
        store.epoch = 1 + n // 5
        store.append(b"value %04d" % n, timestamp_ms=10 * n)
    store.flush()


def harm(store: Store, offset: int) -> None:
    """The batch at an offset rots."""
    segment = next(store.log.parts(offset))
    assert isinstance(segment, Segment)
    row = next(segment.entries(offset))
    assert isinstance(row, Row)
    segment.log.pwritev([b"\xff\xff\xff"], row.file_position + 30)


def read_all(store: Store, offset: int = 0) -> tuple[list[int], list[tuple[int, int]]]:
    """Returns the offsets that a reader is shown, and the losses that it is told of."""
    offsets: list[int] = []
    told: list[tuple[int, int]] = []
    while offset < END:
        read = store.log.read_passing(offset, 1, END)
        assert read.extent.next_offset > offset
        offsets += [batch.header.base_offset for batch in iter_batches(read.extent.data)]
        told += [] if read.lost is None else [read.lost]
        offset = read.extent.next_offset
    return offsets, told


def test_a_damaged_batch_is_passed_once_it_is_given_up(store: Store) -> None:
    fill(store)
    harm(store, 5)
    with pytest.raises(DamagedBatch, match="offsets 5 to 5"):
        read_all(store)
    assert store.log.damaged_ranges()
    store.log.give_up(lost((5, 6)))
    assert not store.log.damaged_ranges()
    assert read_all(store) == ([0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11], [(5, 6)])
    store.log.extent(5, 1, END)
    assert not store.log.damage, "what is given up is not found damaged again"


def test_the_range_rules_and_not_what_lies_there(store: Store) -> None:
    fill(store)
    store.log.give_up(lost((3, 9)))
    assert read_all(store) == ([0, 1, 2, 9, 10, 11], [(3, 9)])
    assert read_all(store, 6) == ([9, 10, 11], [(6, 9)])


def test_damage_beside_it_is_still_damage(store: Store) -> None:
    fill(store)
    harm(store, 5)
    harm(store, 6)
    store.log.give_up(lost((5, 6)))
    with pytest.raises(DamagedBatch, match="offsets 6 to 6"):
        store.log.read_passing(5, 1, END)
    assert [(one.start, one.end) for one in store.log.damaged_ranges()] == [(6, 7)]


def test_a_batch_that_was_given_up_in_part_is_an_error_to_who_comes_to_it(store: Store) -> None:
    """No command gives up part of a batch; a reader that met it must not wait for ever."""
    for _ in range(3):
        store.append(b"three", records=3)
    store.flush()
    store.log.give_up(lost((4, 6)))
    assert store.log.read_passing(0, 1 << 20, 9).extent.next_offset == 3
    with pytest.raises(DamagedBatch, match=r"offsets 3 to 3 .*given up in part"):
        store.log.read_passing(3, 1 << 20, 9)
    assert store.log.read_passing(4, 1 << 20, 9).extent.next_offset == 9
    assert not store.log.damaged_ranges()
    (data,) = store.log.read_filling(3, 1, 9)
    assert verify_batch(data).next_offset == 6, "another replica gets the log as it is"


def test_a_range_behind_offsets_that_nothing_has_is_passed(store: Store) -> None:
    for offset in (0, 5, 6):
        data = empty_batch(offset, offset + 1, 1)
        store.log.append(parse_received(data, store.log.log_end_offset, 0, may_skip=True), 0, may_skip=True)
    store.flush()
    harm(store, 5)
    store.log.give_up(lost((5, 6)))
    read = store.log.read_passing(1, 1, 7)
    assert (bytes(read.extent.data), read.extent.next_offset, read.lost) == (b"", 6, (5, 6))
    assert store.log.read_passing(6, 1, 7).extent.next_offset == 7
    assert [verify_batch(data).base_offset for data in store.log.read_filling(1, 1, 7)] == [1]
    assert verify_batch(store.log.read_filling(1, 1, 7)[0]).next_offset == 6


@pytest.mark.parametrize("end", [4, 5, 9, 12])
def test_nothing_is_passed_beyond_what_is_committed(store: Store, end: int) -> None:
    fill(store)
    store.log.give_up(lost((4, 9)))
    read = store.log.read_passing(4, 1, end)
    assert read.extent.next_offset == min(end, 9) if end <= 9 else 10
    assert read.lost == (None if end == 4 else (4, min(end, 9)))
    assert store.log.has_bytes_passing(4, 1, end) == (end > 9)
    assert store.log.has_bytes_passing(0, 1 << 20, end) == (end > 4), "a read ends there: it waits for nothing"


def test_an_offset_out_of_range_is_so_still(store: Store) -> None:
    fill(store)
    store.log.give_up(lost((4, 20)))
    with pytest.raises(OffsetOutOfRange):
        store.log.read_passing(END + 1, 1, END)


def test_a_search_by_time_passes_it(store: Store) -> None:
    fill(store)
    harm(store, 5)
    with pytest.raises(DamagedBatch):
        first_since(store.log, 50, END)
    store.log.give_up(lost((5, 6), (7, 9)))
    assert first_since(store.log, 50, END) == (6, 60)
    assert first_since(store.log, 65, END) == (9, 90)
    assert first_since(store.log, 111, END) is None


@pytest.mark.parametrize("given_up", [(0, 3), (3, 9), (5, 6), (9, 12)])
def test_another_replica_comes_to_the_same_offsets_and_epochs(store: Store, given_up: tuple[int, int]) -> None:
    fill(store)
    for offset in range(*given_up):
        harm(store, offset)
    store.log.give_up(lost(given_up))
    copy = Store(WatchedFiles(SimDisk(7)))
    while (offset := copy.log.log_end_offset) < END:
        data = b"".join(store.log.read_filling(offset, 100, END))
        copy.log.append(parse_received(data, offset, copy.log.tail.epoch, may_skip=False), 0)
    assert list(copy.log.lineage) == list(store.log.lineage)
    copy.log.give_up(lost(given_up))
    assert read_all(copy) == read_all(store)


def test_a_leader_that_never_had_it_gives_those_offsets_to_nobody(store: Store) -> None:
    fill(store)
    store.log.give_up(lost((4, 6)))
    fill_lost_end(store.log, 9, 0)
    assert store.log.log_end_offset == END
    store.log.give_up(lost((4, 6), (14, 20)))
    fill_lost_end(store.log, 9, 0)
    assert store.log.log_end_offset == 20
    assert store.log.tail.epoch == 9
    batches = list(iter_batches(store.log.read(END, 1_000, 20).data))
    assert [(batch.header.base_offset, batch.header.next_offset) for batch in batches] == [(END, 14), (14, 20)]
    assert [decode_batch(batch) for batch in batches] == [[], []]
    assert store.log.read_passing(END, 1, 20).extent.next_offset == 14
    assert store.log.read_passing(14, 1, 20).lost == (14, 20)


@given(start=st.integers(0, 1 << 40), size=st.integers(1, (1 << 31) - 1), epoch=st.integers(0, 1 << 30))
def test_an_empty_batch_is_sound(start: int, size: int, epoch: int) -> None:
    data = empty_batch(start, start + size, epoch)
    header = verify_batch(data)
    assert (header.base_offset, header.next_offset, header.leader_epoch) == (start, start + size, epoch)
    assert [decode_batch(batch) for batch in iter_batches(data)] == [[]]
