"""The definite/indefinite rule, line by line of its table."""

from __future__ import annotations

import pytest

from tidelog.model.errors import (
    DiskFull,
    InternalError,
    InvalidBatch,
    LeaderNotAvailable,
    LogOffline,
    OutOfOrderSequence,
    Overloaded,
    ProducerFenced,
    RequestTimeout,
    ShuttingDown,
    TidelogError,
    TimedOutAfterAppend,
    TooLarge,
    UnknownTopic,
)
from tidelog.producer.verdicts import Verdict, expired, judge
from tidelog.transport.errors import ConnectFailed, NoAnswer

PASSING = [ConnectFailed, DiskFull, LeaderNotAvailable, LogOffline, Overloaded, RequestTimeout, ShuttingDown]
LASTING = [InvalidBatch, TooLarge, UnknownTopic]
UNKNOWN = [InternalError, NoAnswer, TimedOutAfterAppend]


@pytest.mark.parametrize("uncertain", [False, True])
@pytest.mark.parametrize("numbered", [False, True])
@pytest.mark.parametrize("kind", PASSING)
def test_what_passes_is_tried_again(kind: type[TidelogError], numbered: bool, uncertain: bool) -> None:
    assert judge(kind("x"), numbered=numbered, uncertain=uncertain) is Verdict.RETRY


@pytest.mark.parametrize("kind", LASTING)
def test_what_lasts_fails_for_certain(kind: type[TidelogError]) -> None:
    assert judge(kind("x"), numbered=True, uncertain=False) is Verdict.FAIL


@pytest.mark.parametrize("kind", [*LASTING, OutOfOrderSequence])
def test_a_certain_error_after_an_unknown_outcome_settles_nothing(kind: type[TidelogError]) -> None:
    assert judge(kind("x"), numbered=True, uncertain=True) is Verdict.LOSE


@pytest.mark.parametrize("kind", UNKNOWN)
def test_unknown_outcomes_are_repeated_only_with_numbers(kind: type[TidelogError]) -> None:
    assert judge(kind("x"), numbered=True, uncertain=False) is Verdict.RETRY
    assert judge(kind("x"), numbered=False, uncertain=False) is Verdict.LOSE


def test_a_gap_is_closed_by_numbering_anew() -> None:
    assert judge(OutOfOrderSequence("x"), numbered=True, uncertain=False) is Verdict.RENUMBER
    assert judge(OutOfOrderSequence("x"), numbered=False, uncertain=False) is Verdict.FAIL


def test_a_fenced_producer_is_finished() -> None:
    assert judge(ProducerFenced("x"), numbered=True, uncertain=True) is Verdict.FATAL


def test_running_out_of_time_is_certain_only_if_nothing_unknown_happened() -> None:
    assert expired(uncertain=False) is Verdict.FAIL
    assert expired(uncertain=True) is Verdict.LOSE
