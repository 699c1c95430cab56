"""The credentials that a client shows, a token or a user's name and password, as one HTTP header.

A file may come to hold another token or password: those of other issuers end within the hour, and are replaced while
programs run. So it is read again once in a while, and at once when a broker does not take what was shown. What is
secret is in no `repr`, no error and no log.
"""

from __future__ import annotations

import contextlib
import math
from base64 import b64encode
from collections.abc import Callable
from typing import Final

from tidelog.model.errors import InvalidRequest

LOOK_S: Final = 1.0
"""The seconds (s) after which a file may be read again."""


class Credentials:
    """The value of the header `Authorization`."""

    __slots__ = ("_looked_s", "_make", "header")

    def __init__(self, make: Callable[[], str]) -> None:
        """Raises what `make` does, which is called again later."""
        self.header = make()
        self._make = make
        self._looked_s = -math.inf

    def __repr__(self) -> str:
        """Returns nothing of the secret."""
        return f"Credentials({self.header.partition(' ')[0]})"

    def look(self, now_s: float) -> None:
        """Makes the header anew if it is time for that. A file that is of no use now is left for later."""
        if now_s >= self._looked_s + LOOK_S:
            self._looked_s = now_s
            with contextlib.suppress(InvalidRequest):
                self.header = self._make()

    def are_others(self, shown: str, now_s: float) -> bool:
        """Returns True if there is something else to show than what a broker has not taken."""
        self._looked_s = -math.inf
        self.look(now_s)
        return self.header != shown


def basic(user: str, password: Callable[[], str]) -> Credentials:
    """Returns the credentials of a user. Raises `InvalidRequest` for a name that HTTP cannot say, and what `password`
    raises."""
    if ":" in user:
        raise InvalidRequest("a user's name has no colon")
    return Credentials(lambda: "Basic " + b64encode(f"{user}:{password()}".encode()).decode())


def bearer(read: Callable[[], str]) -> Credentials:
    """Returns the credentials of a token `ID.SECRET`, or a JSON Web Token. Raises `InvalidRequest` for what is none,
    and what `read` raises."""
    return Credentials(lambda: _bearer(read()))


def _bearer(token: str) -> str:
    if not token.isascii() or not token.isprintable() or " " in token or "." not in token:
        raise InvalidRequest("a token is written as ID.SECRET, on one line")
    return f"Bearer {token}"
