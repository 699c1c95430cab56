"""What a client makes of an answer's headers."""

from __future__ import annotations

import msgspec
import pytest

from tidelog.model.errors import LeaderNotAvailable, Overloaded, QuotaExceeded
from tidelog.transport.connections import Answer
from tidelog.transport.errors import ErrorBody

WAIT = "2"


@pytest.mark.parametrize(
    ("code", "waits_s"),
    [
        pytest.param(Overloaded.code, 2.0, id="overloaded"),
        pytest.param(QuotaExceeded.code, 2.0, id="a share is used up"),
        pytest.param(LeaderNotAvailable.code, 0.0, id="a leader whose lease is over, for less than a second mostly"),
    ],
)
def test_a_broker_that_is_overloaded_may_ask_for_time_and_no_other(code: int, waits_s: float) -> None:
    body = msgspec.json.encode(ErrorBody(code, "not now"))
    assert Answer(code // 100, {"Retry-After": WAIT}, body).retry_after_s == waits_s


def test_without_a_body_the_status_says_who_is_overloaded() -> None:
    assert Answer(429, {"Retry-After": WAIT}, b"").retry_after_s == 2.0
    assert Answer(503, {"Retry-After": "soon"}, b"").retry_after_s == 0.0
