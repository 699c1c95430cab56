"""Makes what a client shows to say who it is, a token or a user's name and password, as one HTTP header.

What is secret is in no `repr`, no error and no log.
"""

from __future__ import annotations

from base64 import b64encode

from tidelog.model.errors import InvalidRequest


class Credentials:
    """The value of the header `Authorization`."""

    __slots__ = ("header",)

    def __init__(self, header: str) -> None:
        self.header = header

    def __repr__(self) -> str:
        """Returns nothing of the secret."""
        return f"Credentials({self.header.partition(' ')[0]})"


def basic(user: str, password: str) -> Credentials:
    """Returns the credentials of a user. Raises `InvalidRequest` for a name that HTTP cannot say."""
    if ":" in user:
        raise InvalidRequest("a user's name has no colon")
    return Credentials("Basic " + b64encode(f"{user}:{password}".encode()).decode())


def bearer(token: str) -> Credentials:
    """Returns the credentials of a token `ID.SECRET`. Raises `InvalidRequest` for what is none."""
    if not token.isascii() or not token.isprintable() or " " in token or "." not in token:
        raise InvalidRequest("a token is written as ID.SECRET, on one line")
    return Credentials(f"Bearer {token}")
