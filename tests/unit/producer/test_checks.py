"""What a record may be made of, and what the message says if it is made of something else."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog.model.batch_codec import encode_batch
from tidelog.model.batch_header import TIMESTAMP_MS_MAX
from tidelog.model.errors import InvalidRequest
from tidelog.producer.checks import check_timestamp, checked_record, checked_triples


@pytest.mark.parametrize(
    ("key", "value", "headers"),
    [
        (None, b"", None),
        (b"k" * 300, b"v" * 100_000, None),
        (b"", None, [("", None)]),
        (None, None, [("n" * 200, b"v" * 5000), ("\N{GRINNING FACE}" * 50, b"")]),
    ],
)
def test_the_size_is_never_below_what_the_record_takes(key: Any, value: Any, headers: Any) -> None:
    record, size = checked_record(TIMESTAMP_MS_MAX, key, value, headers)
    small = (0, b"", b"")
    alone = len(encode_batch([small]))
    assert len(encode_batch([small, record])) - alone <= size


def test_anything_with_bytes_of_its_own_is_taken_and_copied() -> None:
    value = bytearray(b"abc")
    headers: Any = [("h", bytearray(b"x"))]
    record, _ = checked_record(0, memoryview(b"k"), value, headers)
    value[0] = 0
    assert record == (0, b"k", b"abc", (("h", b"x"),))


@pytest.mark.parametrize("bad", ["text", 1, [b"x"], object()])
def test_other_values_are_refused_with_a_hint(bad: object) -> None:
    with pytest.raises(InvalidRequest, match="value must be bytes or None"):
        checked_record(0, None, bad, None)
    with pytest.raises(InvalidRequest, match="key must be bytes or None"):
        checked_record(0, bad, b"", None)
    with pytest.raises(InvalidRequest, match="value must be bytes or None"):
        checked_triples(0, [b"", bad], None)  # type: ignore[list-item]  # the point of the test
    with pytest.raises(InvalidRequest, match="key must be bytes or None"):
        checked_triples(0, [b""], [bad])  # type: ignore[list-item]  # the point of the test


def test_text_gets_told_to_be_encoded() -> None:
    with pytest.raises(InvalidRequest, match=r"\.encode\(\)"):
        checked_record(0, None, "text", None)


@pytest.mark.parametrize("bad", ["h", ("h",), ("h", b"", b""), (b"h", b""), ("\ud800", b""), ("h", "text")])
def test_headers_are_pairs_of_text_and_bytes(bad: Any) -> None:
    with pytest.raises(InvalidRequest, match="header"):
        checked_record(0, None, b"", [bad])


@pytest.mark.parametrize("bad", [-1, 2**63, 1.5, "1", True, None])
def test_timestamps_are_milliseconds(bad: object) -> None:
    with pytest.raises(InvalidRequest, match="timestamp_ms"):
        check_timestamp(bad)


def test_many_values_at_once_are_checked_as_each_alone() -> None:
    values = [b"a", None, bytearray(b"c")]
    keys = [None, b"k", b""]
    triples, sizes = checked_triples(5, values, keys)  # type: ignore[arg-type]  # a bytearray is taken, too
    alone = [checked_record(5, key, value, None) for key, value in zip(keys, values, strict=True)]
    assert list(zip(triples, sizes, strict=True)) == alone
    triples, sizes = checked_triples(5, [b"a", None], None)
    assert triples == [(5, None, b"a"), (5, None, None)]
    assert sizes == [22, 21]
