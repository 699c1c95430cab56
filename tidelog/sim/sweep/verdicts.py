"""Verdicts on logs, by what is told of them after the replicas are back.

An entry that has a good copy somewhere has to be read as it was written, sooner or later; any other one has to be
answered `DamagedBatch`, and never passed over. The log has to take a new record, behind all of these, and every replica
has to say the same of them.

Nothing can stand in for an entry of the metadata log: if one has no good copy left, no broker may become ready, and
one of them has to say what to do.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from tidelog.sim.sweep.cases import Case


class Verdict(StrEnum):
    """The fate of a log, the worst first."""

    WRONG = "wrong"
    LOST = "lost"
    SILENT = "silent"
    STUCK = "stuck"
    UNREPAIRED = "unrepaired"
    UNTOLD = "untold"
    """The metadata log waits for an entry without any good copy, as it must, and no broker says so."""
    RECOVERED = "recovered"


class Result(NamedTuple):
    """The fate of one case. `lost` entries had no good copy left, and `answered` of these were answered as damaged;
    `seconds` is how long it took until all was told."""

    case: Case
    verdict: Verdict
    detail: str
    lost: int
    answered: int
    seconds: float
