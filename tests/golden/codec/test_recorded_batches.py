"""Bytes that aiokafka and kafka-python once wrote (`rewrite.py` records them anew) are read for ever after."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tidelog.model.batch_codec import decode_batch, encode_batch
from tidelog.model.batch_header import Compression, split_batches, verify_batch
from tidelog.model.records import Record, StoredRecord

FILES = sorted(Path(__file__).parent.glob("*.json"))
CASES: dict[str, dict[str, Any]] = {
    f"{file.stem}-{case['name']}-{case['compression']}": case
    for file in FILES
    for case in json.loads(file.read_text(encoding="utf-8"))["cases"]
}
PLAIN = {name: case for name, case in CASES.items() if case["compression"] == "none"}


def from_hex(content: str | None) -> bytes | None:
    return None if content is None else bytes.fromhex(content)


def records_of(case: dict[str, Any]) -> list[Record]:
    return [
        Record(timestamp, from_hex(key), from_hex(value), tuple((name, from_hex(content)) for name, content in headers))
        for timestamp, key, value, headers in case["records"]
    ]


def test_all_three_writers_are_recorded() -> None:
    assert [file.stem for file in FILES] == ["aiokafka-c", "aiokafka-python", "kafka-python"]
    batches = [bytes.fromhex(case["batch"]) for case in CASES.values()]
    assert {verify_batch(batch).compression for batch in batches} == set(Compression)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_recorded_batch_is_read(case: dict[str, Any]) -> None:
    data, records = bytes.fromhex(case["batch"]), records_of(case)
    (batch,) = split_batches(data, batch_bytes_max=len(data))
    assert batch.header == verify_batch(data)
    assert batch.header.compression.label in (case["compression"], "none")  # two of three leave plain what would grow
    assert list(batch.header[9:12]) == case["producer"]
    assert batch.header.base_timestamp == records[0].timestamp_ms
    assert batch.header.max_timestamp == max(record.timestamp_ms for record in records)
    assert decode_batch(batch) == [
        StoredRecord(offset, *record[:3], tuple(record.headers)) for offset, record in enumerate(records)
    ]


@pytest.mark.parametrize("case", PLAIN.values(), ids=PLAIN)
def test_the_same_records_are_encoded_to_the_same_bytes(case: dict[str, Any]) -> None:
    producer_id, producer_epoch, base_sequence = case["producer"]
    encoded = encode_batch(
        records_of(case), producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=base_sequence
    )
    theirs = bytes.fromhex(case["batch"])
    assert encoded[16:] == theirs[16:]
    assert encoded[:12] == theirs[:12]  # between them stands the leader epoch, which is the broker's to fill in
