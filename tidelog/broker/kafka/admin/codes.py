"""Error codes that only admin requests use, and the outcome of one item of a request."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from tidelog.broker.kafka.codes import code_of
from tidelog.model.errors import InvalidRequest, TidelogError


class AdminCode(enum.IntEnum):
    """Kafka's names and numbers of errors that HTTP reports under one general code for an invalid request."""

    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    LOG_DIR_NOT_FOUND = 57
    TOPIC_DELETION_DISABLED = 73
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    UNACCEPTABLE_CREDENTIAL = 93


class Refused(Exception):
    """An error in one item of a request, with Kafka's code for it. Nothing of that item was done."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Outcome(NamedTuple):
    """The outcome of one item of a request: an error code, 0 for success, and a message if there is an error."""

    code: int
    message: str | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """The outcome under the field names that most answers use: `error_code` and `error_message`."""
        return {"error_code": self.code, "error_message": self.message}


DONE: Final = Outcome(0)


def outcome_of(error: TidelogError | Refused, kind: str = "Topic") -> Outcome:
    """Returns the error code and message for an error about a resource of type `kind`."""
    if isinstance(error, Refused):
        return Outcome(error.code, error.message)
    return Outcome(code_of(error, kind), error.message)


@contextmanager
def told_as(code: int) -> Iterator[None]:
    """Turns an `InvalidRequest` raised in the `with` block into `Refused` with this code; its subclasses pass
    unchanged."""
    try:
        yield
    except InvalidRequest as error:
        if type(error) is not InvalidRequest:
            raise
        raise Refused(code, error.message) from None
