"""Entries: a batch like any other, with a head that stands on its own."""

from __future__ import annotations

import pytest

from tidelog.model.batch_codec import decode_batch, encode_batch, spread_control_batch
from tidelog.model.batch_header import RecordBatch, iter_batches, parse_header, verify_batch
from tidelog.model.ids import PartitionId, TopicId
from tidelog.storage.rows import RowCodec, Tail
from tidelog.storage.slot_entries import (
    FLOOR_NUMBER,
    EntryKind,
    Head,
    decode_entry,
    encode_entry,
    identity_of,
    salvage_head,
)

HEADS = [
    (Head(EntryKind.SLOT, 7, 65537, b"d" * 16, b"identity"), b"payload" * 100),
    (Head(EntryKind.SLOT, 7, 65537, b"d" * 16, b"identity"), b""),
    (Head(EntryKind.SLOT, 0, 0), None),
    (Head(EntryKind.REFERENCE, (1 << 63) + 1, FLOOR_NUMBER - 1, b"d", b"i" * 300), None),
    (Head(EntryKind.FLOOR, 9, FLOOR_NUMBER, content=b"floor"), None),
    (Head(EntryKind.UNKNOWN, 9, 4), None),
]


def encoded(head: Head, payload: bytes | None = None) -> RecordBatch:
    """In one buffer, as it is read back."""
    entry = encode_entry(head, payload, offset=12, epoch=3)
    return RecordBatch(entry.header, memoryview(bytearray().join(entry.buffers)))


@pytest.mark.parametrize(("head", "payload"), HEADS)
def test_what_was_encoded_is_decoded(head: Head, payload: bytes | None) -> None:
    batch = encoded(head, payload)
    verify_batch(batch.data)
    assert (batch.header.base_offset, batch.header.leader_epoch, batch.header.record_count) == (12, 3, 1)
    assert decode_entry(bytes(batch.data)) == (head, payload)
    assert salvage_head(bytes(batch.data), batch.header.base_sequence) == head
    assert identity_of(batch.header, batch.data) == (head.position, head.number)


def test_a_payload_is_written_from_where_it_lies() -> None:
    payload = memoryview(bytearray(b"payload"))
    entry = encode_entry(HEADS[0][0], payload, offset=12, epoch=3)
    assert any(buffer is payload for buffer in entry.buffers)


def test_a_batch_in_several_buffers_has_the_row_of_the_same_batch_in_one() -> None:
    codec, tail = RowCodec(PartitionId(TopicId("0" * 32), 0)), Tail(1, 0, 0, 12, 0, -1, 0)
    for head, payload in HEADS:
        entry, whole = encode_entry(head, payload, offset=12, epoch=3), encoded(head, payload)
        assert codec.batch(tail, entry.header, entry.buffers) == codec.batch(tail, whole.header, whole.buffers)


def test_consumers_are_shown_nothing_of_it() -> None:
    (batch,) = iter_batches(encoded(*HEADS[0]).data)
    assert batch.header.is_control
    assert decode_batch(batch) == []


def test_a_head_survives_any_damage_to_its_payload() -> None:
    head = HEADS[0][0]
    batch = encoded(*HEADS[0])
    data = bytes(batch.data)
    start = data.index(b"payload")
    for position in range(start, len(data)):
        harmed = data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]
        assert salvage_head(harmed, batch.header.base_sequence) == head
    assert salvage_head(data[:start], batch.header.base_sequence) == head


def test_a_damaged_head_is_none_and_never_another() -> None:
    batch = encoded(*HEADS[0])
    data = bytes(batch.data)
    for position in range(61, data.index(b"payload")):
        for bit in range(8):
            harmed = data[:position] + bytes([data[position] ^ 1 << bit]) + data[position + 1 :]
            assert salvage_head(harmed, batch.header.base_sequence) in (None, HEADS[0][0])
    for size in range(data.index(b"payload") - 2):
        assert salvage_head(data[:size], batch.header.base_sequence) is None


def test_an_older_entry_in_its_place_is_told_from_it() -> None:
    older, newer = (encoded(Head(EntryKind.SLOT, 7, 1, b"", identity)) for identity in (b"accepted", b"learned!"))
    assert older.header.size == newer.header.size
    assert salvage_head(bytes(older.data), newer.header.base_sequence) is None


def test_other_batches_are_no_entries() -> None:
    records = encode_batch([(1, b"key", b"value")])
    assert decode_entry(bytes(records)) is None
    assert identity_of(parse_header(records), records) == (0, 0)
    for key in (None, b"", b"\0\0\0\1", b"\0\0\0\1" + bytes(40), b"\0\1\x7d\1" + bytes(40)):
        made = spread_control_batch(key, None, timestamp_ms=1, base_offset=0, leader_epoch=0, base_sequence=0)
        marker = b"".join(made.buffers)
        assert decode_entry(bytes(marker)) is None
        assert identity_of(parse_header(marker), marker) == (0, 0)
