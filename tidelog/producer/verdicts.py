"""The reaction of the producer to a produce error: the rules for definite and indefinite errors.

    error of an attempt                       numbered                         not numbered
    ----------------------------------------  -------------------------------  ------------------
    definite, retriable (503, 507, 408, 429)  RETRY                            RETRY
    definite, final (400, 413, 404, ...)      FAIL                             FAIL
    indefinite (504, 500, cut connection)     RETRY, same numbers; *uncertain* LOSE (a repeat might append twice)
    sequence gap (40904)                      RENUMBER                         FAIL
    fenced (40905)                            FATAL                            FATAL

Numbered batches have idempotent sequence numbers. After an indefinite attempt a request is *uncertain*: an earlier copy
may be in the log, so a later definite error is only about the later attempt. A FAIL then becomes LOSE: the outcome of
the records is unknown.

A gap for a certain request means that the broker lost records it had acknowledged, or forgot the producer: the batch is
certainly not in the log, and is sent again under a bumped epoch. For an uncertain request that would risk a second
copy.

Pure.
"""

from __future__ import annotations

import enum

from tidelog.model.errors import OutOfOrderSequence, ProducerFenced, TidelogError


class Verdict(enum.Enum):
    """The sender's reaction to a produce error."""

    RETRY = "send the same bytes again"
    RENUMBER = "bump the epoch, number anew, send again"
    FAIL = "surely not appended: fail the records, reuse their numbers"
    LOSE = "fate unknown: fail the records so, fence what may still be under way"
    FATAL = "another producer took over this id: stop"


def judge(error: TidelogError, *, numbered: bool, uncertain: bool) -> Verdict:
    """Returns the reaction to `error`. `numbered`: the batches have sequence numbers; `uncertain`: an earlier attempt
    may have appended them."""
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
    """Returns the reaction to an expired delivery timeout: lost if the outcome is `uncertain`, else failed."""
    return Verdict.LOSE if uncertain else Verdict.FAIL
