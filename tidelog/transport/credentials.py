"""Makes what a client shows to say who it is: a token from a file, or a user's name and password, as one HTTP header.

A file may come to hold another token or password: those of other issuers end within the hour, and are replaced while
programs run. So it is read again once in a while, and at once when a broker does not take what was shown.

The names are Kafka's (`sasl_mechanism`, `sasl_username`, `sasl_password`), but for the token, which Kafka has not. What
is secret is in no `repr`, no error and no log.
"""

from __future__ import annotations

import contextlib
import math
from base64 import b64encode
from collections.abc import Callable
from functools import partial
from typing import Final

from tidelog.model.errors import InvalidRequest

LOOK_S: Final = 1.0
"""A file is read again no sooner."""


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


def client_credentials(
    read_secret: Callable[[str], str],
    *,
    sasl_mechanism: str | None = None,
    sasl_username: str | None = None,
    sasl_password: str | None = None,
    sasl_password_file: str | None = None,
    token_file: str | None = None,
) -> Credentials | None:
    """Returns what these parameters of a client say; None if they are all absent. `read_secret` reads a file that only
    its owner may read. Raises `InvalidRequest`, and what `read_secret` raises."""
    passwords = [given for given in (sasl_password, sasl_password_file) if given is not None]
    if sasl_mechanism not in (None, "PLAIN"):
        raise InvalidRequest(f"sasl_mechanism {sasl_mechanism!r} is not known over HTTP; take PLAIN, or a token_file")
    if token_file is not None:
        if sasl_username is not None or passwords:
            raise InvalidRequest("give a token_file, or a user's name and password, not both")
        return bearer(partial(read_secret, token_file))
    if sasl_username is None and not passwords and sasl_mechanism is None:
        return None
    if sasl_username is None or len(passwords) != 1:
        raise InvalidRequest("sasl_username goes with one of sasl_password and sasl_password_file")
    if ":" in sasl_username:
        raise InvalidRequest("a user's name has no colon")
    password = partial(str, sasl_password) if sasl_password is not None else partial(read_secret, passwords[0])
    return Credentials(lambda: "Basic " + b64encode(f"{sasl_username}:{password()}".encode()).decode())


def bearer(read: Callable[[], str]) -> Credentials:
    """Returns the credentials of a token `ID.SECRET`, or a JSON Web Token. Raises `InvalidRequest` for what is none,
    and what `read` raises."""
    return Credentials(lambda: _bearer(read()))


def _bearer(token: str) -> str:
    if not token.isascii() or not token.isprintable() or " " in token or "." not in token:
        raise InvalidRequest("a token is written as ID.SECRET, on one line")
    return f"Bearer {token}"
