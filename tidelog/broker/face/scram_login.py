"""Logs a user in by SCRAM (`model/scram.py`), with the keys that were made when the password was set.

An unknown user is answered like any other, with a salt that is always the same for one name, and refused at the end: so
nobody learns who there is. Failures count as those of passwords do.
"""

from __future__ import annotations

import hmac
from typing import Final

from tidelog.model.credentials import ScramKeys, User, refused
from tidelog.model.passwords import SALT_BYTES, SCRAM_HASHES, SCRAM_ITERATIONS
from tidelog.model.scram import ServerFirst, answer_first, read_first, verify_final

NONCE_BYTES: Final = 18


class ScramExchange:
    """The login of one user; `first`, then `final`. The user is known when both have succeeded."""

    def __init__(self, mechanism: str) -> None:
        self._mechanism = mechanism
        self._server: ServerFirst | None = None
        self.user: User | None = None
        """The user whose keys are asked for; None if there is no such user, or none with keys."""
        self.name = ""

    def read_first(self, message: bytes) -> str:
        """Returns the name of who wants to log in. Raises `NotAuthenticated`."""
        self._first = read_first(message)
        self.name = self._first.user
        return self.name

    def first(self, user: User | None, secret: bytes, nonce: str) -> bytes:
        """Returns the answer to the first message. `secret` is this broker's, for users that there are not."""
        stored_keys = [keys for keys in (user.scram if user is not None else ()) if keys.mechanism == self._mechanism]
        self.user = user if stored_keys else None
        keys = stored_keys[0] if stored_keys else _nobodys(self._mechanism, self.name, secret)
        self._server = answer_first(self._first, keys, nonce)
        return self._server.text.encode()

    def final(self, message: bytes) -> bytes:
        """Returns the answer to the last message. Raises `NotAuthenticated`."""
        assert self._server is not None
        answer = verify_final(self._server, message)
        if answer is None or self.user is None:
            raise refused("password")
        return answer


def _nobodys(mechanism: str, name: str, secret: bytes) -> ScramKeys:
    salt = hmac.digest(secret, name.encode(), "sha256")[:SALT_BYTES]
    key = hmac.digest(secret, b"key " + name.encode(), SCRAM_HASHES[mechanism])
    return ScramKeys(mechanism, salt.hex(), key.hex(), key.hex(), SCRAM_ITERATIONS)
