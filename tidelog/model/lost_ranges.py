"""Offsets that an operator has given up: their records are lost, and that loss was accepted.

A read that reaches such a range skips it, and its answer has the header `Tidelog-Lost: 17-20, 31-31`. In the header the
last offset is included, as in all texts for people; in the program `end` is excluded.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from tidelog.model.errors import InvalidRequest
from tidelog.model.ids import OFFSET_MAX

LOST_HEADER: Final = "Tidelog-Lost"
LOST_TOLD_MAX: Final = 64
"""Maximum lost ranges in one answer, which ends before the next range: common clients refuse headers of 8 KiB."""


class LostRange(NamedTuple):
    """A range of lost offsets, from `start` to before `end`."""

    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.start}-{self.end - 1}"


def format_lost(ranges: Iterable[LostRange]) -> str:
    """Returns the ranges as the value of the header `Tidelog-Lost`."""
    return ", ".join(map(str, ranges))


def parse_lost(text: str) -> tuple[LostRange, ...]:
    """Parses the value of the header `Tidelog-Lost`; an empty value has no ranges. Raises `InvalidRequest`."""
    return tuple(_parse_one(part.strip()) for part in text.split(",")) if text else ()


def _parse_one(text: str) -> LostRange:
    first, _, last = text.partition("-")
    if not all(part.isascii() and part.isdigit() and len(part) <= len(str(OFFSET_MAX)) for part in (first, last)):
        raise InvalidRequest(f"{LOST_HEADER}: {text!r} is no range of offsets")
    if int(first) > int(last):
        raise InvalidRequest(f"{LOST_HEADER}: the range {text} ends before it begins")
    return LostRange(int(first), int(last) + 1)


def within(ranges: Iterable[LostRange], start: int, end: int) -> tuple[LostRange, ...]:
    """Returns the parts of the ranges that lie in [start, end), sorted."""
    return tuple(
        LostRange(max(start, lost.start), min(end, lost.end))
        for lost in sorted(ranges)
        if lost.start < end and lost.end > start
    )
