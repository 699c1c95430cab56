"""Subscriptions by regular expression, in RE2 syntax as in KIP-848 (Kafka uses RE2/J).

Any client that may join a group can send a pattern, which is matched on the broker's event loop against every topic.
RE2 takes time linear in the name's length for any pattern; a backtracking matcher could be kept busy for years by six
characters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import re2

from tidelog.model.errors import InvalidRequest

PATTERN_LENGTH_MAX: Final = 255
PROGRAM_BYTES_MAX: Final = 1 << 20
"""The largest size of one compiled pattern, in bytes."""


def matcher(pattern: str) -> Callable[[str], bool]:
    """Returns a function that tells whether the pattern matches a whole name. Raises `InvalidRequest` for an invalid
    pattern."""
    if len(pattern) > PATTERN_LENGTH_MAX:
        raise InvalidRequest(f"a pattern has at most {PATTERN_LENGTH_MAX} characters; this one has {len(pattern)}")
    options = re2.Options()
    # The length alone bounds little: `\pL{1000}` has nine characters, and compiled it has more than 16 MiB.
    options.max_mem = PROGRAM_BYTES_MAX
    # RE2 writes to the process's standard error otherwise, at any client's request.
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except UnicodeEncodeError:
        raise InvalidRequest(f"{pattern!a} is no text") from None
    except re2.error as error:
        (reason,) = error.args
        raise InvalidRequest(f"{pattern!a} is no pattern of RE2: {reason.decode(errors='replace')}") from None
    # The whole name has to match, as in KIP-848: who asks for `orders` does not get `orders-failed`.
    return lambda name: compiled.fullmatch(name) is not None
