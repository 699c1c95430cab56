"""Errors in settings, worded so that the reader knows what to type instead.

At process start that is a `ConfigError` on the terminal; over HTTP it is `InvalidRequest`. Both are worded here, so
that one mistake reads the same wherever it is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidelog.model.errors import InvalidRequest
from tidelog.model.kafka_codes import KafkaCode

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails


class ConfigError(InvalidRequest):
    """The broker cannot start with these settings; the message names the source, the setting and the way out."""

    kafka = KafkaCode.INVALID_CONFIG


def problems(error: ValidationError, given: Mapping[str, object]) -> list[tuple[str, str]]:
    """Returns each failed setting as `(name, its value as given and what is wrong with it)`.

    The name is empty if each value is fine, and it is their combination that is not.
    """
    return [_problem(details, given) for details in error.errors(include_url=False)]


def plain_words(message: str) -> str:
    """Returns what pydantic says of a value, as a sentence that a user expects."""
    return message.removeprefix("Value error, ").replace("Input should be", "must be")


def _problem(details: ErrorDetails, given: Mapping[str, object]) -> tuple[str, str]:
    message = plain_words(details["msg"])
    if not details["loc"]:
        return "", message
    name = str(details["loc"][0])
    return name, f"{given[name]!r}: {message}"
