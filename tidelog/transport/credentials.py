"""Makes what a client shows to say who it is: a token from a file, or a user's name and password, as one HTTP header.

The names are Kafka's (`sasl_mechanism`, `sasl_username`, `sasl_password`), but for the token, which Kafka has not. What
is secret is in no `repr`, no error and no log.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable

from tidelog.model.errors import InvalidRequest


class Credentials:
    """The value of the header `Authorization`."""

    __slots__ = ("header",)

    def __init__(self, header: str) -> None:
        self.header = header

    def __repr__(self) -> str:
        """Returns nothing of the secret."""
        return f"Credentials({self.header.partition(' ')[0]})"


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
        return bearer(read_secret(token_file))
    if sasl_username is None and not passwords and sasl_mechanism is None:
        return None
    if sasl_username is None or len(passwords) != 1:
        raise InvalidRequest("sasl_username goes with one of sasl_password and sasl_password_file")
    password = sasl_password if sasl_password is not None else read_secret(passwords[0])
    if ":" in sasl_username:
        raise InvalidRequest("a user's name has no colon")
    return Credentials("Basic " + b64encode(f"{sasl_username}:{password}".encode()).decode())


def bearer(token: str) -> Credentials:
    """Returns the credentials of a token `ID.SECRET`. Raises `InvalidRequest` for what is none."""
    if not token.isascii() or not token.isprintable() or " " in token or "." not in token:
        raise InvalidRequest("a token is written as ID.SECRET, on one line")
    return Credentials(f"Bearer {token}")
