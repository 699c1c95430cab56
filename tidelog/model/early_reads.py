"""Early reads: released records above the high watermark, of topics with `commit.order` `key` or `none`.

The leader of such a topic releases batches above the high watermark, while a hole below them is open: a majority has
them, and nothing that they wait for is missing. A reader that asks for it gets them, besides the records up to the high
watermark. Since the high watermark comes to these offsets later, the reader tells the broker which offsets above it are
read already, and the answer tells which ones it holds, both in one form: `120-129,140-140`, of each range the first and
the last offset.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise
from typing import Final, get_args

from tidelog.model.cluster import TOTAL, CommitOrder
from tidelog.model.errors import InvalidRequest
from tidelog.model.ids import OFFSET_MAX

ORDERS: Final[tuple[str, ...]] = get_args(CommitOrder)
"""The orders in which records can be read. They are called as those of `commit.order`."""
ABOVE_HEADER: Final = "Tidelog-Above"
"""The header of an answer that names the offsets above the high watermark that it holds."""
ABOVE_RANGES_MAX: Final = 1_000
"""The number of ranges above the high watermark that a reader can name."""
_RANGE: Final = re.compile(r"([0-9]{1,19})-([0-9]{1,19})", re.ASCII)
_SHOWN_CHARS_MAX: Final = 60


def is_read_early(commit_order: str, order: str) -> bool:
    """Returns True if a reader in this order can be given what a topic with this `commit.order` has released.

    A topic in no order releases records of one key in any order, so a reader by key has to read it up to the high
    watermark.
    """
    return order != TOTAL and commit_order in ("key", order)


class AboveOffsets:
    """Offsets above the high watermark that a reader has, or that an answer holds: ranges that are sorted and do not
    overlap, each a first offset and the offset behind the last. Ranges that touch are joined."""

    __slots__ = ("_ends", "_starts")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in ranges:
            if self._ends and start == self._ends[-1]:
                self._ends[-1] = end
            else:
                self._starts.append(start)
                self._ends.append(end)

    def __len__(self) -> int:
        """Returns the number of ranges."""
        return len(self._starts)

    def __str__(self) -> str:
        return ",".join(f"{start}-{end - 1}" for start, end in zip(self._starts, self._ends, strict=True))

    def first_missing(self, start: int, end: int) -> int:
        """Returns the first offset from `start` on that is none of these; `end` if all before that are."""
        index = bisect_right(self._starts, start) - 1
        return min(max(start, self._ends[index]), end) if index >= 0 else start


def parse_above(text: str) -> AboveOffsets:
    """Returns the offsets that a reader has named; an empty text names none. Raises `InvalidRequest`."""
    if not text:
        return AboveOffsets()
    count = text.count(",") + 1
    if count > ABOVE_RANGES_MAX:
        raise InvalidRequest(
            f"above has {count} ranges, and at most {ABOVE_RANGES_MAX} are allowed: read with order=total until the "
            "high watermark has passed some of them"
        )
    ranges = [_parse_range(part) for part in text.split(",")]
    for (_, end), (start, _) in pairwise(ranges):
        if start < end:
            raise InvalidRequest(
                f"above has a range that begins at {start}, behind one that ends at {end - 1}: sort them"
            )
    return AboveOffsets(ranges)


def _parse_range(text: str) -> tuple[int, int]:
    match = _RANGE.fullmatch(text)
    if match is None:
        raise InvalidRequest(f"above: {text[:_SHOWN_CHARS_MAX]!a} is no range; write FIRST-LAST, such as 120-129")
    first, last = map(int, match.groups())
    if not first <= last <= OFFSET_MAX:
        raise InvalidRequest(
            f"above: {text} has to end where it begins or behind that, and at the most at {OFFSET_MAX}"
        )
    return first, last + 1
