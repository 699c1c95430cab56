"""Fetched bytes to Arrow: Spark's schema to the letter, and the rows of `decode_batch`, whichever way is taken."""

from __future__ import annotations

import random
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

import tidelog.model.arrow
from tidelog.model.arrow import arrow_schema, decode_to_arrow
from tidelog.model.batch_codec import decode_batch, encode_batch
from tidelog.model.batch_header import (
    HEADER,
    HEADER_BYTES,
    Compression,
    iter_batches,
    parse_header,
    seal,
    split_batches,
    stamp_append_time,
)
from tidelog.model.errors import InvalidBatch, InvalidRequest, TooLarge
from tidelog.model.records import Record

ONE_BY_ONE, TOGETHER = 2**31, 1


@pytest.fixture(params=[ONE_BY_ONE, TOGETHER], ids=["one by one", "together"])
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tidelog.model.arrow, "VECTORISED_RECORDS_MIN", request.param)


def records(count: int, seed: int = 1) -> list[Record]:
    dice = random.Random(seed)
    return [
        Record(
            1_700_000_000_000 + dice.randrange(-100, 100_000),
            None if dice.random() < 0.2 else dice.randbytes(dice.randrange(80)),
            None if dice.random() < 0.2 else dice.randbytes(dice.choice([0, 5, 100, 9000])),
            [(f"n{index}", None if dice.random() < 0.3 else dice.randbytes(3)) for index in range(dice.randrange(3))],
        )
        for _ in range(count)
    ]


def fetch(*sizes: int, compression: Compression = Compression.NONE, first_offset: int = 0) -> bytes:
    parts = []
    for seed, size in enumerate(sizes):
        parts.append(bytes(encode_batch(records(size, seed), compression=compression, base_offset=first_offset)))
        first_offset += size
    return b"".join(parts)


def patched(data: bytes | bytearray, **fields: int) -> bytes:
    """The batch with some header fields set to something else, and its CRC true."""
    changed = bytearray(data)
    HEADER.pack_into(changed, 0, *parse_header(data)._replace(**fields))
    seal(changed)
    return bytes(changed)


def expected(buffer: bytes, start: int = 0, end: int = 2**63) -> list[dict[str, object]]:
    return [
        {
            "key": record.key,
            "value": record.value,
            "topic": "flights",
            "partition": 3,
            "offset": record.offset,
            "timestamp": record.timestamp_ms * 1000,
            "timestampType": int(batch.header.is_log_append_time),
            "headers": [{"key": name, "value": value} for name, value in record.headers] or None,
        }
        for batch in iter_batches(buffer)
        for record in decode_batch(batch)
        if start <= record.offset < end
    ]


def rows(buffer: bytes, **options: object) -> list[dict[str, object]]:
    decoded = decode_to_arrow(buffer, "flights", 3, include_headers=True, **options)  # type: ignore[arg-type]
    decoded.validate(full=True)
    position = decoded.schema.get_field_index("timestamp")
    microseconds = decoded.column(position).cast(pa.int64())  # Python's datetime does not reach as far
    as_python: list[dict[str, object]] = decoded.set_column(position, "timestamp", microseconds).to_pylist()
    return as_python


# -- schema ----------------------------------------------------------------------------------------------------------

SPARK = pa.schema(
    [
        pa.field("key", pa.binary(), nullable=True),
        pa.field("value", pa.binary(), nullable=True),
        pa.field("topic", pa.string(), nullable=True),
        pa.field("partition", pa.int32(), nullable=True),
        pa.field("offset", pa.int64(), nullable=True),
        pa.field("timestamp", pa.timestamp("us", tz="UTC"), nullable=True),
        pa.field("timestampType", pa.int32(), nullable=True),
    ]
)
SPARK_HEADERS = pa.field(
    "headers",
    pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))),
)


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("buffer", [b"", fetch(4)], ids=["empty", "rows"])
def test_the_schema_is_sparks_to_the_letter(buffer: bytes) -> None:
    decoded = decode_to_arrow(buffer, "t", 0)
    assert type(decoded) is pa.RecordBatch
    assert decoded.schema.equals(SPARK, check_metadata=True)
    assert arrow_schema().equals(SPARK)
    with_headers = decode_to_arrow(buffer, "t", 0, include_headers=True).schema
    assert with_headers.equals(SPARK.append(SPARK_HEADERS), check_metadata=True)
    assert with_headers.field("headers").type.value_field.name == "element"


@pytest.mark.usefixtures("both_ways")
def test_columns_are_pruned_and_ordered_as_asked() -> None:
    whole = decode_to_arrow(fetch(200), "t", 0, include_headers=True)
    decoded = decode_to_arrow(fetch(200), "t", 0, columns=["headers", "offset", "value"])
    assert decoded.schema.names == ["headers", "offset", "value"]
    assert decoded.equals(whole.select(["headers", "offset", "value"]))


@pytest.mark.parametrize("columns", [["values"], ["key", "Offset"], []])
def test_a_column_that_is_not_there_is_refused(columns: list[str]) -> None:
    with pytest.raises(InvalidRequest, match="choose from key, value, topic"):
        decode_to_arrow(fetch(1), "t", 0, columns=columns)


# -- rows ------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("compression", Compression)
def test_rows_are_those_of_decode_batch(compression: Compression) -> None:
    buffer = fetch(1, 300, 2, 70, compression=compression, first_offset=2**40)
    assert rows(buffer) == expected(buffer)
    assert rows(memoryview(bytearray(buffer))) == expected(buffer)  # type: ignore[arg-type]


@pytest.mark.usefixtures("both_ways")
def test_compressed_and_plain_batches_mix() -> None:
    buffer = (
        fetch(5)
        + fetch(9, compression=Compression.ZSTD, first_offset=5)
        + fetch(3, first_offset=14)
        + fetch(4, compression=Compression.SNAPPY, first_offset=17)
    )
    assert rows(buffer) == expected(buffer)


@pytest.mark.parametrize("count", [127, 128])
def test_the_switch_between_the_ways_is_not_seen(count: int) -> None:
    assert rows(fetch(count)) == expected(fetch(count))


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize(
    ("start", "end"), [(0, 0), (3, 4), (5, 12), (9, 10), (14, 99), (99, 100), (None, 7), (11, None)]
)
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.LZ4])
def test_rows_are_trimmed_to_the_range(start: int | None, end: int | None, compression: Compression) -> None:
    buffer = fetch(5, 5, 5, compression=compression)
    assert rows(buffer, start=start, end=end) == expected(buffer, start or 0, 2**63 if end is None else end)


@pytest.mark.usefixtures("both_ways")
def test_log_append_time_is_told_per_record() -> None:
    (stamped,) = split_batches(fetch(20), batch_bytes_max=2**30)
    stamp_append_time(stamped, 1_234_567)
    buffer = bytes(stamped.data) + fetch(20, first_offset=20)
    assert rows(buffer) == expected(buffer)
    assert [row["timestampType"] for row in rows(buffer)] == [1] * 20 + [0] * 20
    assert rows(buffer)[7]["timestamp"] == 1_234_567_000


@pytest.mark.usefixtures("both_ways")
def test_control_batches_take_offsets_and_show_nothing() -> None:
    marker = patched(encode_batch([(1, b"\0\0\0\1", b"")], base_offset=5), attributes=0x30)
    buffer = fetch(5) + marker + fetch(2, first_offset=6)
    assert [row["offset"] for row in rows(buffer)] == [0, 1, 2, 3, 4, 6, 7]


@pytest.mark.usefixtures("both_ways")
def test_compacted_batches_have_gaps_or_nothing() -> None:
    whole = encode_batch([(1, None, b"%d" % number) for number in range(3)], base_offset=10)
    gap = patched(whole[:61] + whole[61 + len(whole[61:]) // 3 :], record_count=2, batch_length=len(whole) - 12 - 8)
    empty = patched(whole[:61], record_count=0, batch_length=49)
    for buffer in (gap, empty + gap, gap + empty, empty + gap + empty, gap + empty + gap, empty):
        assert rows(buffer) == expected(buffer)
    assert [row["offset"] for row in rows(gap)] == [11, 12]


@pytest.mark.usefixtures("both_ways")
def test_a_cut_last_batch_is_left_out() -> None:
    whole = fetch(5)
    for cut in (1, 60, 61, 100):
        assert rows(whole + fetch(5, first_offset=5)[:cut]) == expected(whole)


@pytest.mark.usefixtures("both_ways")
def test_the_result_does_not_share_the_buffer() -> None:
    buffer = bytearray(fetch(50))
    decoded = decode_to_arrow(buffer, "flights", 3, include_headers=True)
    before = decoded.to_pylist()
    buffer[:] = bytes(len(buffer))
    assert decoded.to_pylist() == before


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("timestamp", [-1, 0, 4_500_000_000_000_000])
def test_the_edges_of_time(timestamp: int) -> None:
    buffer = bytes(encode_batch([(timestamp, None, None), (1, None, None)]))
    assert [row["timestamp"] for row in rows(buffer)] == [timestamp * 1000, 1000]


@pytest.mark.usefixtures("both_ways")
def test_every_width_of_every_number() -> None:
    deltas = [*range(-70, 70), *range(8180, 8200), -8191, -8192, -8193, 2**20, -(2**20), 2**34]
    sizes = [*range(70), *range(8185, 8195), 2**20]
    buffer = bytes(encode_batch([(10**12 + delta, None, None) for delta in [0, *deltas]]))
    buffer += bytes(encode_batch([(1, b"k" * size, b"v" * size) for size in sizes], base_offset=1000))
    buffer += bytes(encode_batch([(1, None, b"") for _ in range(8200)], base_offset=2000))
    assert rows(buffer) == expected(buffer)


# -- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("both_ways")
def test_every_crc_is_checked() -> None:
    buffer = bytearray(fetch(5, 5))
    buffer[-1] ^= 1
    with pytest.raises(InvalidBatch, match="CRC32C"):
        decode_to_arrow(buffer, "t", 0)
    assert decode_to_arrow(buffer, "t", 0, end=5).num_rows == 5


@pytest.mark.usefixtures("both_ways")
def test_a_record_that_ends_within_its_headers_is_refused() -> None:
    buffer = bytearray(encode_batch([(1, None, None, (("ab", None),))]))
    assert buffer.endswith(b"\x04ab\x01")
    buffer[-4] = 6  # a name of three bytes, behind which nothing is left
    seal(buffer)
    with pytest.raises(InvalidBatch):
        decode_to_arrow(buffer, "t", 0, include_headers=True)


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("codec", list(Compression)[1:])
def test_what_decompresses_is_bounded_over_all_batches(codec: Compression) -> None:
    batch = bytes(encode_batch([(1, None, bytes(60_000))], compression=codec))
    assert decode_to_arrow(batch * 3, "t", 0, decompressed_bytes_max=200_000).num_rows == 3
    with pytest.raises(TooLarge):
        decode_to_arrow(batch * 3, "t", 0, decompressed_bytes_max=150_000)
    plain = bytes(encode_batch([(1, None, bytes(60_000))]))
    with pytest.raises(TooLarge):
        decode_to_arrow(batch + plain * 2 + batch, "t", 0, decompressed_bytes_max=150_000)


@pytest.mark.usefixtures("both_ways")
def test_the_bounds_are_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = bytes(encode_batch([(1, None, bytes(1000))]))
    packed = bytes(encode_batch([(1, None, bytes(1000))], compression=Compression.ZSTD))
    size = len(plain) - HEADER_BYTES
    for fetched in (packed * 3, packed + plain * 2, plain * 2 + packed):
        assert decode_to_arrow(fetched, "t", 0, decompressed_bytes_max=3 * size).num_rows == 3
        with pytest.raises(TooLarge):
            decode_to_arrow(fetched, "t", 0, decompressed_bytes_max=3 * size - 1)
    monkeypatch.setattr(tidelog.model.arrow, "DECOMPRESSED_BYTES_MAX", size)
    assert decode_to_arrow(packed * 3, "t", 0).num_rows == 3
    monkeypatch.setattr(tidelog.model.arrow, "DECOMPRESSED_BYTES_MAX", size - 1)
    with pytest.raises(TooLarge):
        decode_to_arrow(packed, "t", 0)
    monkeypatch.setattr(tidelog.model.arrow, "ARROW_BYTES_MAX", 3 * len(plain))
    assert decode_to_arrow(plain * 3, "t", 0).num_rows == 3
    with pytest.raises(TooLarge, match="at once"):
        decode_to_arrow(plain * 4, "t", 0)


def test_nothing_else_in_the_model_needs_numpy_or_pyarrow() -> None:
    program = (
        "import sys, tidelog.model.batch_codec, tidelog.model.partitioner;"
        "sys.exit(bool({'numpy', 'pyarrow'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.usefixtures("both_ways")
def test_rows_outlive_the_bytes_that_they_were_read_from() -> None:
    fetched = bytearray(fetch(10, 200))
    found = decode_to_arrow(memoryview(fetched), "t", 0, include_headers=True)
    fetched[:] = bytes(len(fetched))
    assert found == decode_to_arrow(fetch(10, 200), "t", 0, include_headers=True)


def test_decoding_loads_no_pandas() -> None:
    program = (
        "import sys; from tidelog.model import arrow, batch_codec\n"
        "for count in 1, 1000: arrow.decode_to_arrow(batch_codec.encode_batch([(1, b'key', None)] * count), 't', 0)\n"
        "sys.exit('pandas' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_headers_that_do_not_fill_their_record_are_refused() -> None:
    with pytest.raises(InvalidBatch, match="not the sum of its parts"):
        tidelog.model.arrow._headers(b"\x00\x00", np.array([0]), np.array([2]))
