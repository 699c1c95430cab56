"""Which connections of a listener are at rest, and since when."""

from __future__ import annotations

from typing import Any, cast

from tidelog.broker.http.limits import Limits
from tidelog.broker.http.resting import Resting

LIMITS = Limits(rested_s=10.0)


class Client:
    """A connection as `Resting` sees it."""

    address = "10.0.0.1"
    has_requested = True
    is_busy = is_probe = False
    gave_way = False

    def give_way(self) -> None:
        self.gave_way = True


def test_a_connection_is_at_rest_since_its_answer_and_not_since_its_request() -> None:
    resting = Resting(LIMITS)
    client: Any = Client()
    resting.heard(client, 0.0)
    resting.heard_again(client, 60.0)
    resting.close_one(69.0, probe=False)
    assert not client.gave_way
    resting.close_one(70.0, probe=False)
    assert client.gave_way


def test_a_connection_that_was_lost_during_its_answer_stays_forgotten() -> None:
    resting = Resting(LIMITS)
    client = cast("Any", Client())
    resting.heard(client, 0.0)
    resting.forget(client)
    resting.heard_again(client, 1.0)
    assert resting.is_empty
