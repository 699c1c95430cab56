"""The login of a client on a connection to a listener for Kafka's protocol: by SASL, with what it shows over HTTP.

    what HTTP shows          the listener offers              else
    nothing                  no login                         HTTP
    a name and a password    PLAIN, inside TLS                HTTP
    a token                  OAUTHBEARER, inside TLS          HTTP

A listener without a login would take who has shown something over HTTP for nobody, so that goes by HTTP, too.

Pure.
"""

from __future__ import annotations

from base64 import b64decode
from typing import Final, NamedTuple

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"


class Login(NamedTuple):
    """A way to log in, and its one message."""

    mechanism: str
    message: bytes


def login_of(header: str) -> Login:
    """Returns the login that says the same as a header `Authorization`."""
    kind, _, shown = header.partition(" ")
    if kind == "Basic":
        name, _, password = b64decode(shown).decode().partition(":")
        return Login(PLAIN, f"\0{name}\0{password}".encode())
    return Login(OAUTHBEARER, f"n,,\x01auth=Bearer {shown}\x01\x01".encode())
