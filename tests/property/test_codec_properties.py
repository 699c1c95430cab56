"""What holds of every batch: it round-trips, two decoders agree on it, and no bytes at all break either of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import tidelog.model.arrow
import tidelog.model.record_decoder
from tidelog.model.arrow import decode_to_arrow
from tidelog.model.batch_codec import decode_batch, encode_batch
from tidelog.model.batch_header import (
    HEADER,
    HEADER_BYTES,
    TIMESTAMP_MS_MAX,
    Compression,
    RecordBatch,
    assign_offsets,
    iter_batches,
    parse_header,
    seal,
    split_batches,
    stamp_append_time,
    verify_batch,
)
from tidelog.model.errors import InvalidBatch, TooLarge, UnprocessableBody
from tidelog.model.record_decoder import RUN_RECORDS_MIN
from tidelog.model.records import Record, StoredRecord
from tidelog.model.varint import decode_varint, encode_varint

REFUSALS = (InvalidBatch, TooLarge, UnprocessableBody)

now = 1_700_000_000_000
timestamps = st.one_of(
    st.integers(now - 10_000, now + 10_000),
    st.integers(-1, TIMESTAMP_MS_MAX),
    st.sampled_from([-1, 0, TIMESTAMP_MS_MAX]),
)
contents = st.one_of(
    st.none(),
    st.binary(max_size=80),
    st.sampled_from([62, 63, 64, 8191, 8192, 20_000]).map(lambda size: b"x" * size),
)
headers = st.lists(st.tuples(st.text(max_size=8), contents), max_size=3).map(tuple)
plain_records = st.builds(Record, timestamps, contents, contents, st.just(()))
any_records = st.one_of(plain_records, st.builds(Record, timestamps, contents, contents, headers))
record_lists = st.one_of(
    st.lists(plain_records, min_size=1, max_size=12),
    st.lists(any_records, min_size=1, max_size=12),
    st.integers(1, 300).map(lambda count: [Record(now + index, None, b"%d" % index) for index in range(count)]),
)
codecs = st.sampled_from(Compression)
offsets = st.integers(0, 2**62)


@given(st.integers(-(2**63), 2**63 - 1), st.binary(max_size=3))
def test_varints_round_trip(value: int, around: bytes) -> None:
    encoded = encode_varint(value)
    assert decode_varint(around + encoded + around, len(around)) == (value, len(around) + len(encoded))


@given(record_lists, codecs, offsets)
def test_records_round_trip(records: list[Record], compression: Compression, base_offset: int) -> None:
    data = encode_batch(records, compression=compression, base_offset=base_offset)
    header = verify_batch(data)
    (batch,) = split_batches(data, batch_bytes_max=len(data))
    assert decode_batch(batch) == [
        StoredRecord(base_offset + i, *record[:3], tuple(record.headers)) for i, record in enumerate(records)
    ]
    assert (header.base_timestamp, header.max_timestamp) == (records[0][0], max(record[0] for record in records))


@given(st.lists(plain_records, min_size=1, max_size=12))
def test_a_record_is_encoded_alike_alone_and_beside_headers(records: list[Record]) -> None:
    """The fast way (no headers in the batch) and the general one make the same bytes of the same records."""
    triples = [record[:3] for record in records]
    assert encode_batch(triples) == encode_batch(records)
    with_headers = encode_batch([*records, Record(records[0][0], None, None, (("h", None),))])
    assert with_headers[HEADER_BYTES:].startswith(encode_batch(triples)[HEADER_BYTES:])


@given(record_lists, codecs, st.data())
def test_every_flipped_bit_after_the_leaders_fields_is_noticed(
    records: list[Record], compression: Compression, data: st.DataObject
) -> None:
    batch = encode_batch(records, compression=compression)
    bit = data.draw(st.integers(16 * 8, len(batch) * 8 - 1))
    batch[bit // 8] ^= 1 << bit % 8
    with pytest.raises(InvalidBatch):
        verify_batch(batch)


# -- anything at all -------------------------------------------------------------------------------------------------


@st.composite
def damaged_batches(draw: st.DrawFn) -> bytes:
    """A batch with some bytes changed, cut or added behind its CRC's back: what remains is a lie with a true seal."""
    data = encode_batch(draw(record_lists.filter(lambda records: len(records) < 20)), compression=draw(codecs))
    for _ in range(draw(st.integers(0, 4))):
        position = draw(st.integers(HEADER_BYTES, max(HEADER_BYTES, min(len(data) - 1, HEADER_BYTES + 60))))
        change = draw(st.binary(min_size=1, max_size=3))
        data[position : position + draw(st.integers(0, 3))] = change
    fields = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "attributes": st.integers(0, 15),
                "last_offset_delta": st.integers(-1, 30),
                "record_count": st.one_of(st.integers(-1, 30), st.just(2**31 - 1)),
                "base_timestamp": st.one_of(timestamps, st.integers(-(2**63), 2**63 - 1)),
                "base_offset": st.integers(-(2**63), 2**63 - 1),
            },
        )
    )
    header = parse_header(data)._replace(batch_length=len(data) - 12)
    HEADER.pack_into(data, 0, *header._replace(**fields))
    seal(data)
    return bytes(data)


WEIRD_VARINTS = st.sampled_from(
    [b"\x80\x00", b"\x81\x00", b"\xff" * 9 + b"\x01", b"\xff" * 9 + b"\x03", b"\x80" * 10 + b"\x00", b"\xff" * 12]
)
NEAR_MISSES = st.sampled_from([-1, 1, 64, -64, 2**31, -(2**31), 2**62])


@st.composite
def lying_batches(draw: st.DrawFn) -> bytes:
    """A batch built field by field, where now and then a number is not what it should be. The dice are loaded for
    the truth, or nothing would get past the first lie."""
    dice = draw(st.randoms(use_true_random=False))

    def number(value: int) -> bytes:
        if dice.random() < 0.95:
            return encode_varint(value)
        return draw(st.one_of(WEIRD_VARINTS, NEAR_MISSES.map(lambda miss: encode_varint(value + miss))))

    def field(*, nullable: bool = True) -> bytes:
        content = dice.randbytes(dice.choice([0, 1, 63, 64]))
        return number(-1) if nullable and dice.random() < 0.2 else number(len(content)) + content

    def record(offset_delta: int) -> bytes:
        count = dice.choice([0, 0, 1, 2])
        body = (
            b"\0" + number(dice.choice([0, -1, 100, 10**7])) + number(offset_delta) + field() + field() + number(count)
        )
        body += b"".join(field(nullable=False) + field() for _ in range(count))
        return number(len(body)) + body

    count = dice.randrange(1, 5)
    records = b"".join(map(record, range(count)))
    data = bytearray(HEADER_BYTES) + records
    attributes = dice.choice([0, 0, 0x08])
    HEADER.pack_into(data, 0, 5, len(data) - 12, 0, 2, 0, attributes, count - 1, now, now, -1, -1, -1, count)
    seal(data)
    return bytes(data)


def outcome_of_decoding(data: bytes, run_records_min: int = RUN_RECORDS_MIN) -> list[StoredRecord] | None:
    """The records, or None where they are refused; any other exception fails the test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tidelog.model.record_decoder, "RUN_RECORDS_MIN", run_records_min)
        try:
            return [record for batch in iter_batches(data) for record in decode_batch(batch)]
        except REFUSALS:
            return None


def outcome_of_arrow(data: bytes, records_min: int, **options: Any) -> list[StoredRecord] | None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tidelog.model.arrow, "VECTORISED_RECORDS_MIN", records_min)
        try:
            rows = decode_to_arrow(data, "t", 0, include_headers=True, **options)
        except REFUSALS:
            return None
    rows.validate(full=True)
    times = [time // 1000 for time in rows.column("timestamp").cast(pa.int64()).to_pylist()]
    lists = [tuple((each["key"], each["value"]) for each in row or ()) for row in rows.column("headers").to_pylist()]
    columns = [rows.column(name).to_pylist() for name in ("key", "value")]
    return list(map(StoredRecord, rows.column("offset").to_pylist(), times, *columns, lists))


@given(st.one_of(damaged_batches(), lying_batches()))
def test_a_sealed_lie_is_refused_or_read_alike_by_all_decoders(data: bytes) -> None:
    records = outcome_of_decoding(data)
    assert outcome_of_decoding(data, 1) == records
    assert outcome_of_decoding(data, 2**31) == records
    assert outcome_of_arrow(data, 2**31) == records
    assert outcome_of_arrow(data, 1) == records
    if records is not None:
        assert all(abs(record.timestamp_ms) <= 2 * TIMESTAMP_MS_MAX + 1 for record in records)
        assert all(0 <= record.offset < 2**63 - 1 for record in records)


@given(st.one_of(st.binary(max_size=200), damaged_batches()), st.integers(0, 300), st.binary(max_size=90))
@example(b"", 0, b"")
def test_any_bytes_at_all_are_refused_or_taken(data: bytes, kept: int, more: bytes) -> None:
    """F119."""
    body = data[:kept] + more
    for attempt in (verify_batch, outcome_of_decoding, split_anything):
        try:
            attempt(body)
        except REFUSALS:
            continue


def split_anything(body: bytes) -> Sequence[RecordBatch]:
    batches = split_batches(body, batch_bytes_max=150, batches_max=2)
    assert b"".join(batch.data for batch in batches) == body
    return batches


# -- Arrow -----------------------------------------------------------------------------------------------------------


@st.composite
def fetches(draw: st.DrawFn) -> bytes:
    """Batches as a fetch returns them: consecutive, of any codec, some with log-append time, some control batches."""
    parts = []
    offset = draw(offsets)
    for _ in range(draw(st.integers(0, 4))):
        (batch,) = iter_batches(encode_batch(draw(record_lists), compression=draw(codecs)))
        batch = assign_offsets(batch, offset, 1)
        if draw(st.booleans()):
            batch = stamp_append_time(batch, draw(timestamps))
        if draw(st.integers(0, 5)) == 0:
            batch.data[22] |= 0x20
            seal(batch.data)
        parts.append(bytes(batch.data))
        offset = batch.header.next_offset + draw(st.integers(0, 2))
    return b"".join(parts)


@given(fetches(), st.data())
def test_arrow_has_the_rows_of_decode_batch(data: bytes, draws: st.DataObject) -> None:
    records = outcome_of_decoding(data)
    assert records is not None
    edges = st.none() | st.sampled_from([record.offset + near for record in records[:50] for near in (-1, 0, 1)] or [0])
    start, end = draws.draw(edges), draws.draw(edges)
    wanted = [
        record
        for record in records
        if (start is None or record.offset >= start) and (end is None or record.offset < end)
    ]
    assert outcome_of_arrow(data, 1, start=start, end=end) == wanted
    assert outcome_of_arrow(data, 2**31, start=start, end=end) == wanted


@given(
    fetches(), st.lists(st.sampled_from(["key", "value", "offset", "timestamp", "headers"]), min_size=1, unique=True)
)
def test_pruned_columns_are_the_same_columns(data: bytes, columns: list[str]) -> None:
    whole = decode_to_arrow(data, "t", 0, include_headers=True)
    assert decode_to_arrow(data, "t", 0, columns=columns).equals(whole.select(columns))
