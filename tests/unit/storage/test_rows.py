"""Catalog rows: 128 bytes that say what they mean, or do not parse."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_128_digest

from tidelog.model.batch_codec import encode_batch
from tidelog.model.batch_header import RecordBatch, assign_offsets, split_batches
from tidelog.model.ids import OFFSET_MAX, PartitionId, TopicId
from tidelog.model.producers import BATCHES_REMEMBERED, SEQUENCES, ProducerState, SeenBatch
from tidelog.model.records import Record
from tidelog.storage.rows import BODY_KINDS, NO_TIMESTAMP, ROW_BYTES, Kind, RowCodec, Tail

IDENTITY = PartitionId(TopicId("ef" * 16), 5)
CODEC = RowCodec(IDENTITY)
TAIL = Tail(
    sequence=41, durable=17, epoch=3, offset=1000, file_position=5000, running_max_timestamp=77, log_start_offset=900
)
EMPTY = RowCodec(PartitionId(TopicId("0" * 32), 0))


def batch(timestamp_ms: int = 50, records: int = 2) -> RecordBatch:
    data = encode_batch([Record(timestamp_ms, b"k", b"v")] * records, producer_id=9, producer_epoch=4, base_sequence=8)
    (made,) = split_batches(data, batch_bytes_max=1 << 20)
    return assign_offsets(made, TAIL.offset, TAIL.epoch)


def test_a_batch_row_says_where_the_batch_is_and_what_it_is() -> None:
    made = batch()
    raw = CODEC.batch(TAIL, made.header, made.buffers)
    row = CODEC.body(raw)
    assert len(raw) == ROW_BYTES
    assert row is not None
    assert (row.kind, row.epoch, row.sequence, row.durable) == (Kind.BATCH, 3, 41, 17)
    assert (row.base_offset, row.next_offset) == (1000, 1002)
    assert (row.file_position, row.length, row.end_position) == (5000, len(made.data), 5000 + len(made.data))
    assert row.digest == xxh3_128_digest(made.data)
    assert (row.producer_id, row.producer_epoch, row.base_sequence) == (9, 4, 8)
    assert (row.attributes, row.start_offset) == (0, 900)
    assert CODEC.pack(row) == raw


def test_the_running_maximum_never_falls() -> None:
    for timestamp, expected in ((50, 77), (77, 77), (99, 99)):
        made = batch(timestamp)
        row = CODEC.body(CODEC.batch(TAIL, made.header, made.buffers))
        assert row is not None
        assert (row.max_timestamp, row.running_max_timestamp) == (timestamp, expected)


def test_a_note_stands_where_the_log_ends_and_takes_no_offset() -> None:
    for kind in (Kind.DELETE_RECORDS, Kind.MARK, Kind.SEAL):
        row = CODEC.body(CODEC.note(kind, TAIL, start_offset=950))
        assert row is not None
        assert (row.kind, row.base_offset, row.next_offset, row.start_offset) == (kind, 1000, 1000, 950)
        assert (row.file_position, row.end_position) == (5000, 5000)
        assert (row.max_timestamp, row.running_max_timestamp) == (NO_TIMESTAMP, 77)


def test_a_lost_row_takes_the_offsets_that_are_lost() -> None:
    row = CODEC.body(CODEC.note(Kind.LOST, TAIL, start_offset=900, offsets=25))
    assert row is not None
    assert (row.base_offset, row.next_offset, row.length) == (1000, 1025, 0)


def test_the_header_comes_back() -> None:
    header = CODEC.parse_header(CODEC.header(TAIL, 12))
    assert header == (3, 41, 17, 1000, 900, 12, True)
    unfounded = CODEC.parse_header(CODEC.header(TAIL, 0, has_checkpoint=False))
    assert unfounded is not None
    assert not unfounded.has_checkpoint


def test_no_kind_passes_for_another() -> None:
    made = batch()
    header, lineage, producer = CODEC.checkpoint(TAIL, [(1, 0)], [(9, state(1))])
    for raw in (header, lineage, producer):
        assert CODEC.body(raw) is None
    bodies = [CODEC.batch(TAIL, made.header, made.buffers)]
    bodies += [CODEC.note(kind, TAIL, start_offset=0) for kind in sorted(BODY_KINDS - {Kind.BATCH})]
    for raw in bodies:
        assert CODEC.parse_header(raw) is None
        assert CODEC.parse_checkpoint(raw) is None
    assert CODEC.parse_checkpoint(header) is None
    assert CODEC.parse_header(lineage) is None


def test_any_flipped_bit_is_noticed() -> None:
    made = batch()
    raws = [CODEC.batch(TAIL, made.header, made.buffers), *CODEC.checkpoint(TAIL, [(1, 0)], [(9, state(3))])]
    for raw in raws:
        for bit in range(ROW_BYTES * 8):
            harmed = bytearray(raw)
            harmed[bit // 8] ^= 1 << bit % 8
            assert not CODEC.is_sound(harmed), bit


def test_zeros_ones_and_pieces_are_no_rows() -> None:
    for codec in (CODEC, EMPTY):
        for raw in (
            bytes(ROW_BYTES),
            b"\xff" * ROW_BYTES,
            b"",
            codec.header(TAIL, 0)[:-1],
            codec.header(TAIL, 0) + b"\0",
        ):
            assert codec.body(raw) is None
            assert codec.parse_header(raw) is None
            assert codec.parse_checkpoint(raw) is None


def test_a_row_of_another_partition_or_topic_is_no_row() -> None:
    raw = CODEC.note(Kind.MARK, TAIL, start_offset=0)
    for other in (IDENTITY._replace(partition=6), IDENTITY._replace(topic_id=TopicId("ee" * 16))):
        assert RowCodec(other).body(raw) is None


def test_a_header_names_its_owner_to_anybody() -> None:
    assert RowCodec.owner(CODEC.header(TAIL, 3)) == IDENTITY
    assert RowCodec.owner(CODEC.note(Kind.MARK, TAIL, start_offset=0)) is None
    for raw in (bytes(ROW_BYTES), b"\xff" * ROW_BYTES, b"", CODEC.header(TAIL, 3)[:-1]):
        assert RowCodec.owner(raw) is None


# -- checkpoints -------------------------------------------------------------------------------------------------------


def state(batches: int, first: int = 0) -> ProducerState:
    """Batches of one, two, three ... records, contiguous in sequence."""
    seen, sequence, offset = [], first, 100
    for records in range(1, batches + 1):
        seen.append(SeenBatch(sequence, records, offset))
        sequence, offset = (sequence + records) % SEQUENCES, offset + 10 * records
    return ProducerState(epoch=2, batches=tuple(seen), run_records=sequence, seen_ms=1234)


def test_a_checkpoint_is_numbered_on_and_comes_back() -> None:
    lineage = [(1, 0), (3, 500)]
    states = [(n, state(n)) for n in range(1, BATCHES_REMEMBERED + 1)]
    rows = CODEC.checkpoint(TAIL, lineage, states)
    header = CODEC.parse_header(rows[0])
    assert header is not None
    assert (header.checkpoint_rows, header.has_checkpoint) == (7, True)
    assert [int.from_bytes(row[8:16], "little") for row in rows] == list(range(41, 49))
    assert [CODEC.parse_checkpoint(row) for row in rows[1:]] == [*lineage, *states]


@given(
    first=st.integers(0, SEQUENCES - 1),
    sizes=st.lists(st.integers(1, 2**31 - 1), min_size=1, max_size=BATCHES_REMEMBERED),
    offset=st.integers(0, OFFSET_MAX),
    run_records=st.integers(1, 2**62),
    epoch=st.integers(0, 2**15 - 1),
    producer_id=st.integers(0, OFFSET_MAX),
)
def test_any_trail_comes_back(
    first: int, sizes: list[int], offset: int, run_records: int, epoch: int, producer_id: int
) -> None:
    seen, sequence = [], first
    for size in sizes:
        seen.append(SeenBatch(sequence, size, offset))
        sequence = (sequence + size) % SEQUENCES
    made = ProducerState(epoch, tuple(seen), run_records, seen_ms=5)
    _, raw = CODEC.checkpoint(TAIL, [], [(producer_id, made)])
    assert CODEC.parse_checkpoint(raw) == (producer_id, made)
