"""Authenticates a user by SCRAM (`model/scram.py`), with the keys made when the password was set.

An unknown user gets an ordinary first answer, with a salt that is always the same for that name, and is refused at the
end, so that user names cannot be probed. Failures count as those of passwords do.
"""

from __future__ import annotations

import hmac
from typing import Final

from tidelog.model.credentials import ScramKeys, User, refused
from tidelog.model.passwords import SALT_BYTES, SCRAM_HASHES, SCRAM_ITERATIONS
from tidelog.model.scram import ServerFirst, answer_first, read_first, verify_final

NONCE_BYTES: Final = 18


class ScramExchange:
    """The server's side of one SCRAM login: `read_first`, `first`, then `final`."""

    def __init__(self, mechanism: str) -> None:
        self._mechanism = mechanism
        self._server: ServerFirst | None = None
        self.user: User | None = None
        """The user who logs in; None if there is no such user, or it has no keys for this mechanism."""
        self.name = ""

    def read_first(self, message: bytes) -> str:
        """Parses the client's first message and returns the user name. Raises `NotAuthenticated`."""
        self._first = read_first(message)
        self.name = self._first.user
        return self.name

    def first(self, user: User | None, secret: bytes, nonce: str) -> bytes:
        """Returns the server's first message. `secret` of this broker derives the salt of an unknown user."""
        stored_keys = [keys for keys in (user.scram if user is not None else ()) if keys.mechanism == self._mechanism]
        self.user = user if stored_keys else None
        keys = stored_keys[0] if stored_keys else _nobodys(self._mechanism, self.name, secret)
        self._server = answer_first(self._first, keys, nonce)
        return self._server.text.encode()

    def final(self, message: bytes) -> bytes:
        """Verifies the client's final message and returns the server's. Raises `NotAuthenticated`."""
        assert self._server is not None
        answer = verify_final(self._server, message)
        if answer is None or self.user is None:
            raise refused("password")
        return answer


def _nobodys(mechanism: str, name: str, secret: bytes) -> ScramKeys:
    salt = hmac.digest(secret, name.encode(), "sha256")[:SALT_BYTES]
    key = hmac.digest(secret, b"key " + name.encode(), SCRAM_HASHES[mechanism])
    return ScramKeys(mechanism, salt.hex(), key.hex(), key.hex(), SCRAM_ITERATIONS)
