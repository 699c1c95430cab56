"""Errors in settings, with messages that say what to write instead.

At a broker's start they are a `ConfigError`, over HTTP an `InvalidRequest`. The messages are made here, so that the
same mistake gets the same text in both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidelog.model.errors import InvalidRequest
from tidelog.model.kafka_codes import KafkaCode

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails


class ConfigError(InvalidRequest, kafka=KafkaCode.INVALID_CONFIG):
    """Settings with which the broker cannot start. The message names the source, the setting and a remedy."""


def problems(error: ValidationError, given: Mapping[str, object]) -> list[tuple[str, str]]:
    """Returns each invalid setting as its name and a text with the given value and what is wrong with it.

    The name is empty if each value is valid by itself and their combination is not.
    """
    return [_problem(details, given) for details in error.errors(include_url=False)]


def plain_words(message: str) -> str:
    """Returns pydantic's message about a value, reworded for users."""
    return message.removeprefix("Value error, ").replace("Input should be", "must be")


def _problem(details: ErrorDetails, given: Mapping[str, object]) -> tuple[str, str]:
    message = plain_words(details["msg"])
    if not details["loc"]:
        return "", message
    name = str(details["loc"][0])
    return name, f"{given[name]!r}: {message}"
