"""The bytes of each kind of metadata record, as they are in logs that exist: they may be added to, never changed."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tidelog.controller.records import RECORD_KINDS, decode_record, encode_record

LINES = (Path(__file__).parent / "records.ndjson").read_bytes().splitlines()


@pytest.mark.parametrize("line", LINES, ids=lambda line: str(msgspec.json.decode(line)["type"]))
def test_a_record_is_read_and_written_as_ever(line: bytes) -> None:
    record = decode_record(line)
    assert encode_record(record) == line
    assert decode_record(encode_record(record)) == record


def test_every_kind_is_here() -> None:
    kinds = [type(decode_record(line)) for line in LINES]
    assert dict.fromkeys(kinds) == dict.fromkeys(RECORD_KINDS)


@pytest.mark.parametrize(
    "value",
    [
        b'{"type":"FutureRecord"}',
        b'{"type":"ClusterCreated"}',
        b'{"type":"ClusterCreated","cluster_id":1}',
        b'{"type":"ClusterCreated","cluster_id":"c","more":1}',
        b'{"cluster_id":"c"}',
        b'{"type":"PartitionsChanged","changes":[{"topic_id":"t"}]}',
        b"[]",
        b"",
    ],
)
def test_what_is_no_record_is_an_error(value: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_record(value)
