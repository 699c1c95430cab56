"""The knowledge that a cluster has of those who log in: users with passwords, tokens, ACLs, and never a secret.

Of a password there are an argon2id hash, and the keys of SCRAM (RFC 5802) for listeners that speak it. Of a token,
which is 256 random bits that nobody has chosen, there is a plain SHA-256: nothing is gained by making that slow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from types import MappingProxyType
from typing import Final

import msgspec

from tidelog.model.access import Acl, Principal, check_principal
from tidelog.model.errors import NotAuthenticated
from tidelog.model.wire_numbers import Int64

NEVER: Final = 0
"""The expiry time of a token that does not expire."""

_principal: Final = lru_cache(maxsize=1_024)(check_principal)  # each request that shows a token asks


class ScramKeys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Holds what a server needs to verify one user by one mechanism; bytes are in hexadecimal digits."""

    mechanism: str
    salt: str
    stored_key: str
    server_key: str
    iterations: Int64

    def __repr__(self) -> str:
        """Returns a text without the keys, so that no log line shows them."""
        return f"ScramKeys({self.mechanism})"


class User(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A user who logs in by a password."""

    name: str
    password_hash: str
    scram: tuple[ScramKeys, ...] = ()

    def __repr__(self) -> str:
        """Returns a text without the password's hash, so that no log line shows it."""
        return f"User({self.name!r})"


class Token(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A token: whoever shows its secret is the principal."""

    token_id: str
    secret_hash: str
    principal: str
    created_ms: Int64
    expires_ms: Int64 = NEVER
    description: str = ""

    def __repr__(self) -> str:
        """Returns a text without the secret's hash, so that no log line shows it."""
        return f"Token({self.token_id}, {self.principal})"

    def is_over(self, now_ms: int) -> bool:
        """Returns True if the token has expired at that time."""
        return self.expires_ms != NEVER and self.expires_ms <= now_ms

    @property
    def caller(self) -> Principal:
        """The principal that the token stands for."""
        return _principal(self.principal)


def secret_hash(secret: str) -> str:
    """Returns the hash of a token's secret, which is kept in its place."""
    return sha256(secret.encode()).hexdigest()


def refused(cause: str = "") -> NotAuthenticated:
    """Returns the one answer to all who are not known, whatever the `cause`."""
    return NotAuthenticated(
        "who is calling is not known: show a valid token, or a user's name and password", cause=cause
    )


@dataclass(frozen=True, slots=True)
class Access:
    """All of it. It is one object as long as nothing of it changes, so that a look at that tells whether it has."""

    users: Mapping[str, User] = field(default_factory=lambda: MappingProxyType({}))
    """Users by name, in their order."""
    tokens: Mapping[str, Token] = field(default_factory=lambda: MappingProxyType({}))
    """Tokens by id, in their order."""
    acls: tuple[Acl, ...] = ()
    """In their order, each once."""


NO_ACCESS: Final = Access()
"""The users, tokens and ACLs of a cluster that has none of them."""
