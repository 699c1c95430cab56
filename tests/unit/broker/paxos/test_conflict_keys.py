"""Tests of the keys by which batches conflict: those of their records and of their producers."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.broker.paxos.conflict_keys import (
    COMPRESSED_BYTES_MAX,
    DECOMPRESSED_BYTES_MAX,
    KEYS_MAX,
    RECORDS_MAX,
    conflict_keys,
)
from tidelog.model.batch_codec import encode_batch
from tidelog.model.batch_header import Compression, RecordBatch, split_batches
from tidelog.model.records import Record
from tidelog.replication.paxos.releases import EVERY_KEY

ALL = frozenset({EVERY_KEY})


def batch_of(
    keys: Sequence[bytes | None],
    *,
    value: bytes = b"v",
    producer_id: int = -1,
    compression: Compression = Compression.NONE,
) -> list[RecordBatch]:
    encoded = encode_batch(
        [Record(1_000, key, value) for key in keys],
        compression=compression,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=0 if producer_id >= 0 else -1,
    )
    return split_batches(encoded, batch_bytes_max=1 << 24)


def keys_of(keys: Sequence[bytes | None], order: str = "key", **how: object) -> frozenset[int]:
    found = conflict_keys(batch_of(keys, **how), order)  # type: ignore[arg-type]  # passed on as they are
    assert found is not None
    return found


def test_in_total_order_no_keys_are_read() -> None:
    assert conflict_keys(batch_of([b"a"]), "total") is None


@given(st.lists(st.one_of(st.none(), st.binary(max_size=8)), min_size=1, max_size=20), st.sampled_from([*Compression]))
def test_each_key_counts_once_whatever_the_codec_and_none_does_not_count(
    keys: list[bytes | None], compression: Compression
) -> None:
    found = keys_of(keys, compression=compression)
    assert len(found) == len({key for key in keys if key is not None})
    assert found == frozenset().union(*(keys_of([key]) for key in keys))
    assert all(0 <= key < 2**64 for key in found)


def test_records_conflict_by_key_only_where_the_order_says_so() -> None:
    assert keys_of([b"a"], "none") == frozenset()
    assert keys_of([b"a"]) & keys_of([b"a", b"b"]) and not keys_of([b"a"]) & keys_of([b"b"])


def test_a_producer_is_a_key_of_its_batches_and_no_record_has_it() -> None:
    for order in ("key", "none"):
        assert len(keys_of([None], order, producer_id=7)) == 1
        assert keys_of([None], order, producer_id=7) != keys_of([None], order, producer_id=8)
    assert not keys_of([(7).to_bytes(8, "big")]) & keys_of([None], producer_id=7)


def test_batches_that_are_appended_together_have_the_keys_of_all() -> None:
    together = conflict_keys([*batch_of([b"a"], producer_id=7), *batch_of([b"b"])], "key")
    assert together == keys_of([b"a"], producer_id=7) | keys_of([b"b"])


def test_more_keys_than_are_kept_conflict_with_all() -> None:
    many = [b"%d" % number for number in range(KEYS_MAX)]
    assert len(keys_of(many)) == KEYS_MAX
    assert keys_of([*many, b"one more"]) == ALL


@pytest.mark.parametrize(
    "batches",
    [
        batch_of([b"a"] * (RECORDS_MAX + 1)),
        batch_of([b"a"], value=os.urandom(COMPRESSED_BYTES_MAX), compression=Compression.GZIP),
        batch_of([b"a"], value=bytes(DECOMPRESSED_BYTES_MAX), compression=Compression.GZIP),
        [RecordBatch(batch_of([b"a"])[0].header, memoryview(bytes(len(batch_of([b"a"])[0].data))))],
    ],
    ids=["too many records", "too long to decompress", "too long when it is decompressed", "not records"],
)
def test_what_takes_long_to_read_or_cannot_be_read_conflicts_with_all(batches: list[RecordBatch]) -> None:
    found = conflict_keys(batches, "key")
    assert found is not None and EVERY_KEY in found
    assert conflict_keys(batches, "none") == frozenset(), "where no record is read"


def test_a_large_record_is_known_by_its_key() -> None:
    assert keys_of([b"a"], value=bytes(1 << 20)) == keys_of([b"a"])
