"""Authenticates the caller by the `Authorization` header of a request (RFC 9110): `Bearer ID.SECRET`, `Bearer` with a
JSON Web Token, or `Basic`; without the header, by the client certificate of its connection.

Every failure gets the same 401, whose `WWW-Authenticate` header names the schemes that this broker accepts.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tidelog.broker.face.login import NO_PROOF, Login, Proof
from tidelog.model.certificate_names import Rule
from tidelog.model.credentials import refused

CHALLENGES: Final = {
    "token": 'Bearer realm="tidelog"',
    "jwt": 'Bearer realm="tidelog"',
    "basic": 'Basic realm="tidelog", charset="UTF-8"',
}
"""The `WWW-Authenticate` challenge of each method; certificates have none, because they are presented before any
request.
"""


class Authentication:
    """The authentication methods of one listener; without any, all callers are anonymous."""

    def __init__(self, methods: Sequence[str], login: Login, rules: Sequence[Rule] = ()) -> None:
        """The `rules` map a certificate's subject to a principal."""
        self.challenge = ", ".join(dict.fromkeys(CHALLENGES[method] for method in methods if method in CHALLENGES))
        """The header `WWW-Authenticate` of a 401; empty if no method has a challenge."""
        self._methods = methods
        self._login = login
        self._rules = rules

    @property
    def keys(self) -> object:
        """The issuer's keys for JSON Web Tokens: a different object after every change of the keys."""
        return None if self._login.jwts is None else self._login.jwts.keys

    def still_holds(self, proof: Proof) -> bool:
        """Returns False once the credential of `proof` was changed, deleted or has expired."""
        return self._login.still_holds(proof)

    async def prove(self, header: str | None, host: str, certificate: Mapping[str, Any] | None) -> Proof:
        """Returns the principal of the caller at address `host`, with the credential that proves it. Raises
        `NotAuthenticated`, `TooManyAttempts`, `Overloaded`.
        """
        if not self._methods:
            return NO_PROOF
        if header is None and certificate is not None and "certificate" in self._methods:
            return self._login.by_certificate(certificate, self._rules)
        scheme, _, credentials = (header or "").partition(" ")
        scheme = scheme.lower()
        if scheme == "bearer":
            tokens, jwts = "token" in self._methods, "jwt" in self._methods
            return self._login.by_bearer(credentials.strip(), takes_own=tokens, takes_jwts=jwts)
        if scheme == "basic" and "basic" in self._methods:
            name, password = _name_and_password(credentials.strip())
            return await self._login.by_password(name, password, host)
        raise refused("nothing shown" if header is None else "scheme")


def _name_and_password(credentials: str) -> tuple[str, str]:
    try:
        name, colon, password = b64decode(credentials, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        raise refused("malformed") from None
    if not colon:
        raise refused("malformed")
    return name, password
