"""Live round trips with the installed clients: what they write is read, and what is written they read."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tidelog.model.batch_codec import decode_batch, encode_batch
from tidelog.model.batch_header import Compression, RecordBatch, iter_batches, split_batches, stamp_append_time
from tidelog.model.errors import InvalidBatch
from tidelog.model.records import Record, StoredRecord

NOW = 1_700_000_000_000


def assorted_records(count: int, seed: int) -> list[Record]:
    dice = random.Random(seed)

    def content() -> bytes | None:
        size = dice.choice([None, 0, 1, 62, 63, 64, 65, 130, 8190, 8193, 20_000])
        return None if size is None else dice.randbytes(size // 2) * 2

    def headers() -> tuple[tuple[str, bytes | None], ...]:
        return tuple((dice.choice(["", "a", "Δ☃", "n" * 100]), content()) for _ in range(dice.choice([0, 0, 0, 1, 3])))

    return [
        Record(NOW + dice.choice([0, 1, -1, 100, -9000, 10**9]), content(), content(), headers()) for _ in range(count)
    ]


RECORDS = {
    "one": [Record(NOW, b"key", b"value")],
    "empty": [Record(NOW, None, None)],
    "assorted": assorted_records(60, seed=1),
    "many": [Record(NOW + index // 9, b"%d" % index, b"value %d" % (index * 7919)) for index in range(9000)],
    "headers": [Record(NOW, b"k", b"v", (("h", b"%d" % index), ("h", None))) for index in range(200)],
}


@pytest.fixture(params=RECORDS)
def records(request: pytest.FixtureRequest) -> list[Record]:
    return RECORDS[request.param]


def stored(records: list[Record], base_offset: int = 0) -> list[StoredRecord]:
    return [
        StoredRecord(base_offset + index, *record[:3], tuple(record.headers)) for index, record in enumerate(records)
    ]


def only_batch(data: bytes | bytearray) -> RecordBatch:
    (batch,) = split_batches(data, batch_bytes_max=len(data))
    return batch


def test_what_they_write_is_read(foreign_codec: tuple[Any, Compression], records: list[Record]) -> None:
    foreign, compression = foreign_codec
    batch = only_batch(foreign.encode(records, compression, (7, 1, 5)))
    assert batch.header[9:12] == (7, 1, 5)
    may_be_left_plain = len(records) == 1  # as two of the three do with what would only grow
    assert batch.header.compression is compression or may_be_left_plain
    assert decode_batch(batch) == stored(records)


def test_what_is_written_they_read(foreign_codec: tuple[Any, Compression], records: list[Record]) -> None:
    foreign, compression = foreign_codec
    data = encode_batch(
        records, compression=compression, base_offset=99, producer_id=7, producer_epoch=1, base_sequence=5
    )
    assert foreign.decode(bytes(data)) == stored(records, 99)
    batch = foreign.batch(bytes(data))
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 1, 5)
    assert (batch.first_timestamp, batch.next_offset) == (records[0].timestamp_ms, 99 + len(records))
    assert batch.max_timestamp == max(record.timestamp_ms for record in records)
    assert (batch.compression_type, batch.timestamp_type) == (compression, 0)


def test_uncompressed_bytes_are_the_same_but_for_the_leader_epoch(foreign: Any, records: list[Record]) -> None:
    ours, theirs = encode_batch(records), foreign.encode(records)
    assert ours[:12] + ours[16:] == theirs[:12] + theirs[16:]


def test_append_time_is_read_by_them(foreign: Any) -> None:
    batch = stamp_append_time(only_batch(encode_batch(RECORDS["one"])), NOW + 5)
    assert [record.timestamp_ms for record in foreign.decode(bytes(batch.data))] == [NOW + 5]
    assert foreign.batch(bytes(batch.data)).timestamp_type == 1


def test_their_transactions_are_recognised_and_refused(foreign: Any) -> None:
    data = foreign.encode(RECORDS["one"], producer=(7, 0, 0), transactional=True)
    (batch,) = iter_batches(data)
    assert batch.header.is_transactional
    assert decode_batch(batch) == stored(RECORDS["one"])
    with pytest.raises(InvalidBatch, match="transactional"):
        only_batch(data)
