"""Verdicts on logs, by what brokers show after they are back.

An entry with an intact copy somewhere has to be read as it was written, sooner or later; any other entry has to be
answered `DamagedBatch`, and never passed over. The log has to take a new record, behind all of these, and every replica
has to answer the same.

No other log can replace an entry of the metadata log: if one has no good copy left, no broker may become ready, and one
of them has to say what to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from enum import StrEnum
from typing import NamedTuple, TypeVar

from tidelog.sim.sweep.cases import Case

T = TypeVar("T")


class Verdict(StrEnum):
    """Verdict on a log, the worst first."""

    WRONG = "wrong"
    LOST = "lost"
    SILENT = "silent"
    STUCK = "stuck"
    UNREPAIRED = "unrepaired"
    UNTOLD = "untold"
    """The metadata log rightly waits for an entry without any good copy, and no broker reports it."""
    RECOVERED = "recovered"


class Result(NamedTuple):
    """Result of one case. `lost` entries had no good copy left, and `answered` of these were answered as damaged;
    `seconds` is the time until all reads had a verdict."""

    case: Case
    verdict: Verdict
    detail: str
    lost: int
    answered: int
    seconds: float


def compare(
    records: Mapping[int, T], offsets: Iterable[int], expected: Mapping[int, T], good: Set[int], after: T
) -> Iterator[tuple[Verdict, str]]:
    """Yields what is wrong with a read that should have shown these offsets, and why. `good` are the offsets of which a
    good copy was left; `after` is the value written behind all others."""
    for offset in offsets:
        value, written = records.get(offset), expected.get(offset)
        gone = Verdict.LOST if offset in good else Verdict.SILENT
        if value is None:
            yield gone, f"offset {offset} is passed over"
        elif value == after and written not in (None, after):
            yield gone, f"offset {offset} was given to another record"
        elif value not in (after, written):
            yield Verdict.WRONG, f"offset {offset} is {value!r}, not {written!r}"


def worst(problems: Iterable[tuple[str, Verdict, str]]) -> tuple[Verdict, str]:
    """Returns the worst verdict and its text; `problems` are (place, verdict, text)."""
    texts = {verdict: f"{where}: {text}" for where, verdict, text in problems}
    verdict = next((kind for kind in Verdict if kind in texts), Verdict.RECOVERED)
    return verdict, texts.get(verdict, "")
