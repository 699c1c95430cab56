"""Subscriptions by pattern."""

from __future__ import annotations

import re
from typing import Final

from tidelog.model.errors import InvalidRequest

PATTERN_LENGTH_MAX: Final = 255


def compiled(pattern: str) -> re.Pattern[str]:
    """Raises `InvalidRequest`."""
    if len(pattern) > PATTERN_LENGTH_MAX:
        raise InvalidRequest(f"a pattern has at most {PATTERN_LENGTH_MAX} characters; this one has {len(pattern)}")
    try:
        return re.compile(pattern)
    except (re.error, OverflowError) as error:
        raise InvalidRequest(f"{pattern!a} is no pattern: {error}") from None
