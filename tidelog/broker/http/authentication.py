"""Reads who is calling from the `Authorization` header of a request (RFC 9110): `Bearer ID.SECRET`, or `Basic`.

Whatever is wrong, the answer is the same 401, which names the ways to log in that this broker takes.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Sequence
from typing import Final

from tidelog.broker.face.login import NO_PROOF, Login, Proof, refused

CHALLENGES: Final = {"token": 'Bearer realm="tidelog"', "basic": 'Basic realm="tidelog", charset="UTF-8"'}


class Authentication:
    """The ways to log in at one listener; without any, everybody is anonymous."""

    def __init__(self, methods: Sequence[str], login: Login) -> None:
        self.challenge = ", ".join(CHALLENGES[method] for method in methods)
        """The header `WWW-Authenticate` of a 401."""
        self._methods = methods
        self._login = login

    def still_holds(self, proof: Proof) -> bool:
        """Returns False once the caller would not be let in again."""
        return self._login.still_holds(proof)

    async def prove(self, header: str | None, host: str) -> Proof:
        """Returns who is calling from an address. Raises `NotAuthenticated`, `TooManyAttempts`, `Overloaded`."""
        if not self._methods:
            return NO_PROOF
        scheme, _, credentials = (header or "").partition(" ")
        scheme = scheme.lower()
        if scheme == "bearer" and "token" in self._methods:
            return self._login.by_token(credentials.strip())
        if scheme == "basic" and "basic" in self._methods:
            name, password = _name_and_password(credentials.strip())
            return await self._login.by_password(name, password, host)
        raise refused()


def _name_and_password(credentials: str) -> tuple[str, str]:
    try:
        name, colon, password = b64decode(credentials, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        raise refused() from None
    if not colon:
        raise refused()
    return name, password
