"""Error answers become the exceptions they stand for, and unknown ones the nearest: definite stays definite."""

from __future__ import annotations

import pytest

from tidelog.model import errors
from tidelog.model.errors import (
    CorruptBatch,
    InternalError,
    InvalidBatch,
    InvalidRequest,
    LeaderNotAvailable,
    NotEnoughReplicas,
    OffsetOutOfRange,
    TidelogError,
    TopicExists,
)
from tidelog.transport.errors import ConnectFailed, DeliveryUnknown, NoAnswer, error_from_answer, error_from_code

KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, TidelogError) and "code" in vars(kind)
]


def answer(code: int, message: str = "why") -> bytes:
    return b'{"error_code":%d,"message":"%s","more":[1]}' % (code, message.encode())


@pytest.mark.parametrize("kind", KINDS)
def test_every_code_comes_back_as_its_exception(kind: type[TidelogError]) -> None:
    error = error_from_answer(kind.code // 100, {}, answer(kind.code))
    assert type(error) is kind
    assert error.message == "why"


@pytest.mark.parametrize(
    ("finer", "base"),
    [(TopicExists, InvalidRequest), (CorruptBatch, InvalidBatch), (NotEnoughReplicas, LeaderNotAvailable)],
)
def test_a_finer_kind_comes_back_as_the_one_that_has_its_code(
    finer: type[TidelogError], base: type[TidelogError]
) -> None:
    assert type(error_from_code(finer.code, "why")) is base


def test_the_range_comes_from_the_headers() -> None:
    headers = {"Tidelog-Log-Start-Offset": "5", "Tidelog-Log-End-Offset": "9"}
    error = error_from_answer(416, headers, answer(41601))
    assert isinstance(error, OffsetOutOfRange)
    assert (error.log_start_offset, error.log_end_offset) == (5, 9)


@pytest.mark.parametrize("code", [40099, 42299, 49999, 42900, 50399, 50799, 50099, 50299, 50499])
def test_unknown_codes_keep_what_their_status_promises(code: int) -> None:
    error = error_from_code(code, "news")
    status = code // 100
    assert error.definite == (status < 500 or status in (503, 507))
    assert str(code) in error.message
    assert error.retriable or status not in (429, 503, 504, 507)


@pytest.mark.parametrize(
    ("status", "kind"), [(404, InvalidRequest), (301, InvalidRequest), (500, InternalError), (502, InternalError)]
)
def test_an_answer_that_is_not_ours_is_judged_by_its_status(status: int, kind: type[TidelogError]) -> None:
    error = error_from_answer(status, {}, b"<html>nginx</html>")
    assert type(error) is kind
    assert "is this a tidelog broker?" in error.message


def test_no_answer_is_unknown_and_no_connection_is_not() -> None:
    assert ConnectFailed("x").definite
    assert not NoAnswer("x").definite
    assert not DeliveryUnknown("x").definite
