"""SASL authentication of a client on a Kafka listener, with the same credentials as over HTTP.

    HTTP credentials         SASL mechanism                   otherwise
    none                     no authentication                HTTP
    a name and a password    PLAIN, inside TLS                HTTP
    a token                  OAUTHBEARER, inside TLS          HTTP

On a listener without authentication a client with credentials would be anonymous, so it uses HTTP then.

Pure.
"""

from __future__ import annotations

from base64 import b64decode
from typing import Final, NamedTuple

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"


class Login(NamedTuple):
    """A SASL mechanism and its single client message."""

    mechanism: str
    message: bytes


def login_of(header: str) -> Login:
    """Returns the SASL login with the same credentials as an HTTP header `Authorization`."""
    kind, _, shown = header.partition(" ")
    if kind == "Basic":
        name, _, password = b64decode(shown).decode().partition(":")
        return Login(PLAIN, f"\0{name}\0{password}".encode())
    return Login(OAUTHBEARER, f"n,,\x01auth=Bearer {shown}\x01\x01".encode())
