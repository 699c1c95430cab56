"""Codes that only administration says, and how an item of a request is told what became of it."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from tidelog.broker.kafka.codes import code_of
from tidelog.model.errors import InvalidRequest, TidelogError


class AdminCode(enum.IntEnum):
    """Names and numbers are Kafka's. HTTP has one code for all that is wrong with a request, and a message."""

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
    """An item of a request is wrong in a way that Kafka has a code for. Nothing was done of it."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Outcome(NamedTuple):
    """The end of one item: a code, and a message where there is an error."""

    code: int
    message: str | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """Returns it under the names that most answers have for it."""
        return {"error_code": self.code, "error_message": self.message}


DONE: Final = Outcome(0)


def outcome_of(error: TidelogError | Refused, kind: str = "Topic") -> Outcome:
    """Returns what a client is told of an error about a resource of this type."""
    if isinstance(error, Refused):
        return Outcome(error.code, error.message)
    return Outcome(code_of(error, kind), error.message)


@contextmanager
def told_as(code: int) -> Iterator[None]:
    """Raises `Refused` with this code for an `InvalidRequest` that is no finer kind of it."""
    try:
        yield
    except InvalidRequest as error:
        if type(error) is not InvalidRequest:
            raise
        raise Refused(code, error.message) from None
