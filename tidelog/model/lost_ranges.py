"""Offsets that an operator has given up: their records are lost, and that loss was accepted.

A read that comes to such a range goes on behind it, and its answer says so: `Tidelog-Lost: 17-20, 31-31`. As in every
other text the offsets are inclusive there; here, as everywhere in the program, a range ends before `end`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from tidelog.model.errors import InvalidRequest
from tidelog.model.ids import OFFSET_MAX

LOST_HEADER: Final = "Tidelog-Lost"
LOST_TOLD_MAX: Final = 64
"""An answer passes so many ranges at most, and ends before the next one: common clients refuse headers of 8 KiB."""


class LostRange(NamedTuple):
    """Offsets from `start` to before `end`, whose records nobody has any more."""

    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.start}-{self.end - 1}"


def format_lost(ranges: Iterable[LostRange]) -> str:
    """The header's value."""
    return ", ".join(map(str, ranges))


def parse_lost(text: str) -> tuple[LostRange, ...]:
    """The ranges that a header's value names; none for an empty one. Raises `InvalidRequest` for anything else."""
    return tuple(_parse_one(part.strip()) for part in text.split(",")) if text else ()


def _parse_one(text: str) -> LostRange:
    first, _, last = text.partition("-")
    if not all(part.isascii() and part.isdigit() and len(part) <= len(str(OFFSET_MAX)) for part in (first, last)):
        raise InvalidRequest(f"{LOST_HEADER}: {text!r} is no range of offsets")
    if int(first) > int(last):
        raise InvalidRequest(f"{LOST_HEADER}: the range {text} ends before it begins")
    return LostRange(int(first), int(last) + 1)


def within(ranges: Iterable[LostRange], start: int, end: int) -> tuple[LostRange, ...]:
    """The parts of these ranges that lie in [start, end), sorted."""
    return tuple(
        LostRange(max(start, lost.start), min(end, lost.end))
        for lost in sorted(ranges)
        if lost.start < end and lost.end > start
    )
