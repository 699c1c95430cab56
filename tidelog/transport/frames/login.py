"""SASL authentication of a client on a Kafka listener, with the same credentials as over HTTP.

    HTTP credentials         inside TLS, the first that is offered        in plain text
    none                     no authentication                            no authentication
    a name and a password    PLAIN, SCRAM-SHA-512, SCRAM-SHA-256          SCRAM-SHA-512, SCRAM-SHA-256
    a token                  OAUTHBEARER                                  none

PLAIN and OAUTHBEARER send the secret, which SCRAM does not (`scram.py`). If the listener offers none of these, records
go over HTTP; also on a listener without authentication, where a client with credentials would be anonymous.

Pure.
"""

from __future__ import annotations

from base64 import b64decode
from dataclasses import dataclass, field
from typing import Final

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
SCRAM: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256")
"""The mechanisms of SCRAM, the stronger one first."""


@dataclass(frozen=True, slots=True)
class Login:
    """The SASL mechanisms with which a client may authenticate, and what each needs."""

    mechanisms: tuple[str, ...]
    """In the order in which they are tried."""
    message: bytes = field(repr=False)
    """The one message of PLAIN or OAUTHBEARER, with the secret in it."""
    user: str = ""
    password: str = field(default="", repr=False)


def login_of(header: str, *, is_encrypted: bool) -> Login:
    """Returns the SASL login with the same credentials as an HTTP header `Authorization`."""
    kind, _, shown = header.partition(" ")
    if kind == "Basic":
        name, _, password = b64decode(shown).decode().partition(":")
        mechanisms = (PLAIN, *SCRAM) if is_encrypted else SCRAM
        return Login(mechanisms, f"\0{name}\0{password}".encode(), name, password)
    return Login((OAUTHBEARER,) if is_encrypted else (), f"n,,\x01auth=Bearer {shown}\x01\x01".encode())
