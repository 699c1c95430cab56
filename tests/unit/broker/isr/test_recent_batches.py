"""The end of a log in memory: what is found there, and how little is kept."""

from __future__ import annotations

from tests.unit.broker.conftest import batch
from tidelog.broker.isr.recent_batches import BUFFERS_MAX, RecentBatches, RecentBytes
from tidelog.model.batch_header import RecordBatch, assign_offsets


def made(*bases: int) -> list[RecordBatch]:
    """Batches of one record each, all of the same size."""
    return [assign_offsets(batch(b"value", timestamp_ms=1)[0], base, 1) for base in bases]


SIZE = made(0)[0].header.size


def test_whole_batches_from_an_offset_as_many_as_fit_and_at_least_one() -> None:
    recent, batches = RecentBatches(RecentBytes()), made(5, 6, 7)
    recent.add(batches)
    assert recent.since(5, 3 * SIZE) == [one.data for one in batches]
    assert recent.since(5, 3 * SIZE - 1) == [one.data for one in batches[:2]]
    assert recent.since(7, 1) == [batches[2].data]
    assert recent.since(4, 9999) == recent.since(8, 9999) == []


def test_the_buffers_are_handed_on_as_they_are_unless_they_are_many() -> None:
    recent, batches = RecentBatches(RecentBytes()), made(*range(BUFFERS_MAX + 1))
    recent.add(batches)
    (joined,) = recent.since(0, 1 << 20)
    assert joined == b"".join(one.data for one in batches)
    few = recent.since(1, 1 << 20)
    assert len(few) == BUFFERS_MAX
    assert all(buffer is one.data for buffer, one in zip(few, batches[1:], strict=True))


def test_what_nobody_needs_goes() -> None:
    shared = RecentBytes()
    recent = RecentBatches(shared)
    recent.add(made(0, 1, 2))
    recent.drop_below(2)
    assert (recent.since(1, 9999), len(recent.since(2, 9999)), shared.used) == ([], 1, SIZE)
    recent.drop_below(100)
    assert shared.used == 0
    recent.add(made(3))
    assert len(recent.since(3, 1)) == 1


def test_the_oldest_goes_when_there_is_too_much() -> None:
    recent = RecentBatches(RecentBytes(), bytes_max=2 * SIZE)
    recent.add(made(0, 1, 2))
    assert (recent.since(0, 9999), len(recent.since(1, 9999))) == ([], 2)


def test_all_partitions_share_a_bound() -> None:
    shared = RecentBytes(2 * SIZE)
    first, second = RecentBatches(shared), RecentBatches(shared)
    first.add(made(0, 1))
    second.add(made(0, 1))
    assert (len(first.since(0, 9999)), second.since(0, 9999)) == (2, [])
    first.clear()
    second.add(made(2))
    assert (len(second.since(2, 9999)), shared.used) == (1, SIZE)


def test_what_does_not_follow_begins_anew() -> None:
    shared = RecentBytes()
    recent = RecentBatches(shared)
    recent.add(made(0, 1))
    recent.add(made(9))
    assert (recent.since(0, 9999), len(recent.since(9, 9999)), shared.used) == ([], 1, SIZE)
