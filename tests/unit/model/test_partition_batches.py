"""The body for many partitions: what goes in comes out, and whatever does not add up is refused as a whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.model.errors import InvalidRequest, TidelogError, UnprocessableBody
from tidelog.model.partition_batches import batch_table, split_partitions

ROWS = [("t", 0, b"abc"), ("other-topic", 7, b""), ("t", 1, b"defgh")]


def body_of(rows: list[tuple[str, int, bytes]]) -> bytearray:
    table = batch_table((topic, partition, len(data)) for topic, partition, data in rows)
    return bytearray(table + b"".join(data for _, _, data in rows))


partition_rows = st.lists(
    st.tuples(st.text(max_size=20), st.integers(0, 2**32 - 1), st.binary(max_size=50)),
    min_size=1,
    max_size=10,
    unique_by=lambda row: row[:2],
)


@given(partition_rows)
def test_what_goes_in_comes_out(rows: list[tuple[str, int, bytes]]) -> None:
    found = split_partitions(body_of(rows), 10)
    assert [(topic, partition, bytes(data)) for topic, partition, data in found] == rows


@given(st.binary(max_size=200), st.integers(0, 3))
def test_any_bytes_are_cut_or_refused(tail: bytes, count: int) -> None:
    try:
        found = split_partitions(bytearray(count.to_bytes(4, "big") + tail), 2)
    except (InvalidRequest, UnprocessableBody):
        return
    assert len(found) == count


def test_every_shorter_body_is_refused() -> None:
    body = body_of(ROWS)
    for size in range(len(body)):
        with pytest.raises(TidelogError):
            split_partitions(body[:size], 10)


def test_the_parts_can_be_patched_in_place() -> None:
    body = body_of(ROWS)
    split_partitions(body, 10)[2].data[0:1] = b"X"
    assert body.endswith(b"Xefgh")


@pytest.mark.parametrize(
    ("body", "error", "says"),
    [
        (bytearray(), InvalidRequest, "has 0 bytes"),
        (body_of([]), UnprocessableBody, "for 0 partitions: send 1 to 3 .*http.batches.partitions.max"),
        (body_of([*ROWS, ("u", 0, b"")]), UnprocessableBody, "for 4 partitions: send 1 to 3"),
        (bytearray(b"\xff\xff\xff\xff"), UnprocessableBody, "4294967295"),
        (body_of([*ROWS[:2], ROWS[0]]), UnprocessableBody, "'t' partition 0 stands in the request twice"),
        (body_of(ROWS)[:6], InvalidRequest, "the table ends in entry 0 of 3"),
        (body_of(ROWS)[:-1], InvalidRequest, "entry 2 says 5 bytes of batches, and 4 are left"),
        (body_of(ROWS) + b"x", InvalidRequest, "1 bytes are left behind"),
        (body_of(ROWS).replace(b"other", b"\xff\xff\xff\xff\xff"), InvalidRequest, "entry 1 is not UTF-8"),
    ],
)
def test_what_does_not_add_up_is_refused(body: bytearray, error: type[TidelogError], says: str) -> None:
    with pytest.raises(error, match=says):
        split_partitions(body, 3)
