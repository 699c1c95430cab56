"""Credentials of a client, a token or a user's name and password, as the HTTP header `Authorization`.

Tokens and passwords in files change while programs run; tokens of some issuers expire within the hour. So the file is
read again periodically, and at once when a broker rejects the credentials. No `repr`, error or log contains the secret.
"""

from __future__ import annotations

import contextlib
import math
from base64 import b64encode
from collections.abc import Callable
from typing import Final

from tidelog.model.errors import InvalidRequest

LOOK_S: Final = 1.0
"""Seconds after which a credentials file is read again."""


class Credentials:
    """The value of the header `Authorization`, renewed from its source from time to time."""

    __slots__ = ("_looked_s", "_make", "header")

    def __init__(self, make: Callable[[], str]) -> None:
        """`make` returns the value of the header; it is called here and again later. Raises what `make` raises."""
        self.header = make()
        self._make = make
        self._looked_s = -math.inf

    def __repr__(self) -> str:
        """Returns a text without the secret."""
        return f"Credentials({self.header.partition(' ')[0]})"

    def look(self, now_s: float) -> None:
        """Renews the header if `LOOK_S` have passed since the last time. Keeps the present header if the file is
        invalid."""
        if now_s >= self._looked_s + LOOK_S:
            self._looked_s = now_s
            with contextlib.suppress(InvalidRequest):
                self.header = self._make()

    def are_others(self, shown: str, now_s: float) -> bool:
        """Renews the header now. Returns True if it differs from `shown`, the header that a broker rejected."""
        self._looked_s = -math.inf
        self.look(now_s)
        return self.header != shown


def basic(user: str, password: Callable[[], str]) -> Credentials:
    """Returns the credentials of a user, for HTTP basic authentication. Raises `InvalidRequest` for a name with a
    colon, and what `password` raises."""
    if ":" in user:
        raise InvalidRequest("a user's name has no colon")
    return Credentials(lambda: "Basic " + b64encode(f"{user}:{password()}".encode()).decode())


def bearer(read: Callable[[], str]) -> Credentials:
    """Returns the credentials of a token: `ID.SECRET` or a JSON Web Token. Raises `InvalidRequest` for any other text,
    and what `read` raises."""
    return Credentials(lambda: _bearer(read()))


def _bearer(token: str) -> str:
    if not token.isascii() or not token.isprintable() or " " in token or "." not in token:
        raise InvalidRequest("a token is written as ID.SECRET, on one line")
    return f"Bearer {token}"
