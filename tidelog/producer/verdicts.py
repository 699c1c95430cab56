"""The meaning of an error for the request it hit: the definite/indefinite rule, spelled out for producing.

    error of a try                            numbered                         not numbered
    ----------------------------------------  -------------------------------  ------------------
    definite, retriable (503, 507, 408, 429)  RETRY                            RETRY
    definite, final (400, 413, 404, ...)      FAIL                             FAIL
    indefinite (504, 500, cut connection)     RETRY, same numbers; *uncertain* LOSE (a repeat might append twice)
    sequence gap (40904)                      RENUMBER                         FAIL
    fenced (40905)                            FATAL                            FATAL

Once a try ended indefinitely the request is *uncertain*: an earlier copy may be in the log, so a later definite error
only speaks for itself. Whatever would have been a definite FAIL is then a LOSE: the records' fate is unknown.

A gap on a certain request means that the broker lost records it had acknowledged, or forgot the producer: the batch is
surely not in the log, and goes out again under a bumped epoch. On an uncertain one that would risk a second copy.

Pure.
"""

from __future__ import annotations

import enum

from tidelog.model.errors import OutOfOrderSequence, ProducerFenced, TidelogError


class Verdict(enum.Enum):
    """The next act of the sender."""

    RETRY = "send the same bytes again"
    RENUMBER = "bump the epoch, number anew, send again"
    FAIL = "surely not appended: fail the records, reuse their numbers"
    LOSE = "fate unknown: fail the records so, fence what may still be under way"
    FATAL = "another producer took over this id: stop"


def judge(error: TidelogError, *, numbered: bool, uncertain: bool) -> Verdict:
    """Returns the verdict on `error`; `uncertain`: a try before this one may have appended the batches."""
    if isinstance(error, ProducerFenced):
        return Verdict.FATAL
    if not error.definite:
        return Verdict.RETRY if numbered else Verdict.LOSE
    if error.retriable:
        return Verdict.RETRY
    if isinstance(error, OutOfOrderSequence) and numbered and not uncertain:
        return Verdict.RENUMBER
    return Verdict.LOSE if uncertain else Verdict.FAIL


def expired(*, uncertain: bool) -> Verdict:
    """Returns the verdict when the delivery timeout has passed."""
    return Verdict.LOSE if uncertain else Verdict.FAIL
