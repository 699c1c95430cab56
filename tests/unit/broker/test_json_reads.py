"""Reads of records as JSON: in slices, bounded, and past ranges that were given up."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import Callable
from typing import Any, get_args

import pytest

from tidelog.broker.partitions.partition_handle import FetchedBatches
from tidelog.broker.routing import json_reads
from tidelog.broker.routing.json_reads import ReadTerms, ShownRecords, array_of, read_records, show_batches
from tidelog.broker.runtime.heavy_work import HeavyWork
from tidelog.model.batch_codec import empty_batch, encode_batch
from tidelog.model.batch_header import Compression
from tidelog.model.errors import FormatMismatch
from tidelog.model.lost_ranges import LOST_TOLD_MAX
from tidelog.model.record_slices import record_slices
from tidelog.model.records import Record, RecordForm
from tidelog.model.steps import SLICE_BYTES, SLICE_RECORDS, Steps, drive

END = 10 * LOST_TOLD_MAX
MIB = 1 << 20
LONGEST = 8 * MIB


def wanted(form: RecordForm = "binary", bytes_max: int = MIB) -> ReadTerms:
    return ReadTerms("t", 0, form, bytes_max, 64 * MIB, LONGEST)


class EmptyPartition:
    """A handle of a partition in which given-up offsets and batches without records take turns."""

    async def read(self, offset: int, *, bytes_max: int) -> FetchedBatches:
        is_lost = offset % 2 == 0
        start = offset + is_lost
        data, following = (b"", offset) if offset >= END else (empty_batch(start, start + 1, 0), start + 1)
        return FetchedBatches(data, following, 0, END, END, 0, 1, ((offset, offset + 1),) if is_lost else ())


def test_a_read_passes_no_more_ranges_than_a_header_has_room_for() -> None:
    async def story() -> None:
        partition = EmptyPartition()
        for lost_max in (LOST_TOLD_MAX, 5):
            handle: Any = partition  # `read` is all that is needed of a handle
            fetched, shown = await read_records(handle, 0, wanted(), HeavyWork(), lost_max=lost_max)
            assert not shown
            assert list(fetched.lost) == [(offset, offset + 1) for offset in range(0, 2 * lost_max, 2)]
            assert fetched.next_offset == 2 * lost_max

    asyncio.run(story())


# -- slices ----------------------------------------------------------------------------------------------------------


def batch_of(values: list[bytes], codec: Compression = Compression.ZSTD) -> bytes:
    return bytes(encode_batch([Record(1, b'"k"', value, (("h", b"v"),)) for value in values], compression=codec))


def records_in(shown: ShownRecords) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(array_of(shown.pieces))
    return found


class Spy:
    """Counts what is decoded between two yields."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.slices: list[tuple[int, int]] = []
        self.calls = 0
        self._records = self._bytes = 0
        monkeypatch.setattr(json_reads, "record_slices", self._record_slices)

    def _record_slices(self, *args: Any, **options: Any) -> Any:
        for part in record_slices(*args, **options):
            self._records += len(part)
            self._bytes += sum(len(record.value or b"") for record in part)
            yield part

    def drive(self, steps: Steps[ShownRecords]) -> ShownRecords:
        def watched() -> Steps[ShownRecords]:
            step = next(steps)
            while True:
                self._end()
                if step is not None:
                    self.calls += 1
                result = yield step
                try:
                    step = steps.send(result)
                except StopIteration as end:
                    self._end()
                    value: ShownRecords = end.value
                    return value

        return drive(watched())

    def _end(self) -> None:
        self.slices.append((self._records, self._bytes))
        self._records = self._bytes = 0


def test_no_slice_opens_more_than_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    spy = Spy(monkeypatch)
    data = batch_of([b"x"] * 30_000) + batch_of([b"y" * 50_000] * 40)
    shown = spy.drive(show_batches(data, 0, wanted(bytes_max=LONGEST)))
    assert len(records_in(shown)) == 30_040
    assert max(records for records, _ in spy.slices) <= 2 * SLICE_RECORDS
    assert max(size for _, size in spy.slices) <= 2 * SLICE_BYTES
    assert spy.calls == 2  # each batch was decompressed elsewhere


def test_small_batches_share_a_slice() -> None:
    data = b"".join(batch_of([b"x"] * 10) for _ in range(50))
    with pytest.raises(StopIteration):
        next(show_batches(data, 0, wanted()))


def test_what_does_not_fit_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    spy = Spy(monkeypatch)
    data = batch_of([b"x" * 100] * 200_000)
    shown = spy.drive(show_batches(data, 0, wanted(bytes_max=10_000)))
    assert 50 < len(records_in(shown)) < 100
    assert shown.next_offset == len(records_in(shown))
    assert sum(records for records, _ in spy.slices) == SLICE_RECORDS
    again = drive(show_batches(data, shown.next_offset, wanted(bytes_max=1)))
    assert [record["offset"] for record in records_in(again)] == [shown.next_offset]


TEXTS: dict[RecordForm, Callable[[bytes], object]] = {
    "binary": lambda value: b64encode(value).decode(),
    "text": lambda value: value.decode(),
    "json": json.loads,
}


@pytest.mark.parametrize("form", get_args(RecordForm))
@pytest.mark.parametrize("codec", [Compression.NONE, *Compression])
def test_a_long_record_is_shown_whole_and_in_pieces(form: RecordForm, codec: Compression) -> None:
    text = json.dumps({"long": "äß\\u\n€" * 400_000}, ensure_ascii=False).encode()
    steps = show_batches(batch_of([b"1", text, b"2"], codec), 0, wanted(form, LONGEST))
    record = records_in(drive(steps))[1]
    assert record["value"] == TEXTS[form](text)
    assert record["key"] == TEXTS[form](b'"k"')
    assert record["headers"] == [{"key": "h", "value": b64encode(b"v").decode()}]
    assert record["offset"] == 1


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_long_record_that_is_not_of_its_form_ends_the_read_before_it(form: RecordForm) -> None:
    shown = drive(show_batches(batch_of([b"1", b"1" * MIB + b"\xff"]), 1, wanted(form, LONGEST)))
    assert not shown
    assert "offset 1" in shown.mismatch


def test_a_record_that_is_too_long_says_where_to_go_on() -> None:
    data = batch_of([b"1", b"x" * 60 * MIB, b"3"])
    before = drive(show_batches(data, 0, wanted()))
    assert [record["offset"] for record in records_in(before)] == [0]
    with pytest.raises(FormatMismatch, match="go on at offset 2"):
        drive(show_batches(data, 1, wanted()))
    behind = drive(show_batches(data, 2, wanted()))
    assert [record["offset"] for record in records_in(behind)] == [2]
