"""A cluster's stored credentials: users with passwords, tokens and ACLs, but never a secret itself.

A password is stored as an argon2id hash, and as SCRAM keys (RFC 5802) for listeners that support SCRAM. A token, 256
random bits, is stored as a plain SHA-256: a slower hash would gain nothing.
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
"""Expiry time of a token that does not expire."""

_principal: Final = lru_cache(maxsize=1_024)(check_principal)  # each request that shows a token asks


class ScramKeys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A server's data to verify one user by one SCRAM mechanism; byte strings are in hexadecimal."""

    mechanism: str
    salt: str
    stored_key: str
    server_key: str
    iterations: Int64

    def __repr__(self) -> str:
        """Returns a text without the keys, so that no log line shows them."""
        return f"ScramKeys({self.mechanism})"


class User(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A user who logs in with a password."""

    name: str
    password_hash: str
    scram: tuple[ScramKeys, ...] = ()

    def __repr__(self) -> str:
        """Returns a text without the password's hash, so that no log line shows it."""
        return f"User({self.name!r})"


class Token(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A token. Whoever shows its secret is authenticated as its principal."""

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
        """Principal that the token authenticates."""
        return _principal(self.principal)


def secret_hash(secret: str) -> str:
    """Returns the hash of a token's secret, which is stored instead of the secret."""
    return sha256(secret.encode()).hexdigest()


def refused(cause: str = "") -> NotAuthenticated:
    """Returns the error for a caller that cannot be authenticated. Its message is always the same; `cause` is for the
    audit log."""
    return NotAuthenticated(
        "who is calling is not known: show a valid token, or a user's name and password", cause=cause
    )


@dataclass(frozen=True, slots=True)
class Access:
    """All users, tokens and ACLs. The object is replaced when any of them changes, so a change shows in its
    identity."""

    users: Mapping[str, User] = field(default_factory=lambda: MappingProxyType({}))
    """Users by name, in order of names."""
    tokens: Mapping[str, Token] = field(default_factory=lambda: MappingProxyType({}))
    """Tokens by id, in order of ids."""
    acls: tuple[Acl, ...] = ()
    """ACLs, sorted, each once."""


NO_ACCESS: Final = Access()
"""Access data of a cluster without users, tokens and ACLs."""
