from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tidelog.model.batch_codec import encode_batch
from tidelog.spark.decode import ROWS_MAX, decode_piece, slices
from tidelog.spark.planner import OffsetRange

COLUMNS = ["offset", "value"]


def test_a_large_batch_comes_in_parts_of_ten_thousand() -> None:
    data = encode_batch([(1, None, b"v")] * 25_001)
    found = list(decode_piece(data, OffsetRange("t", 3, 1, 25_001, "id"), ["offset"]))
    assert all(0 < batch.num_rows <= ROWS_MAX for batch in found)
    assert [offset for batch in found for offset in batch.column("offset").to_pylist()] == [*range(1, 25_001)]


def test_nothing_in_range_is_no_batch_at_all() -> None:
    assert list(decode_piece(encode_batch([(1, None, b"v")]), OffsetRange("t", 3, 5, 9, "id"), COLUMNS)) == []


@given(st.lists(st.integers(0, 300), min_size=1, max_size=60), st.integers(1, 20), st.integers(1, 500))
def test_slices_are_small_and_all_of_it(sizes: list[int], rows_max: int, bytes_max: int) -> None:
    batch = pa.record_batch({"value": pa.array([b"x" * size for size in sizes], pa.binary())})
    found = list(slices(batch, rows_max, bytes_max))
    assert all(part.num_rows <= rows_max for part in found)
    assert all(part.num_rows == 1 or part.nbytes <= 2 * bytes_max for part in found)
    assert [value for part in found for value in part.column("value").to_pylist()] == [b"x" * size for size in sizes]
