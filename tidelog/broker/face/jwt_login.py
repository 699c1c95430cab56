"""Authenticates callers by JSON Web Tokens, which an issuer outside the cluster signed (`model/jwt.py`).

Verifying a signature blocks the event loop for 50 to 200 us. So it is the last check, and a valid token is cached until
it expires, as a hash with a random key; the token itself is not kept. A cached token becomes invalid when the key that
signed it is withdrawn.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from hashlib import sha256
from typing import Final, NamedTuple, Protocol

from tidelog.config.schema import BrokerConfig
from tidelog.model.access import Principal
from tidelog.model.credentials import refused
from tidelog.model.jwt import JwtKeys, JwtTerms, judged, taken_apart
from tidelog.model.ports import Clock, Entropy

REMEMBERED_MAX: Final = 10_000


class Signed(NamedTuple):
    """The expiry of a verified token, and the key that signed it. The token is valid until it expires or the key is
    withdrawn.
    """

    expires_ms: int
    key: str


class KeySource(Protocol):
    """The issuer's public keys, which may change."""

    @property
    def keys(self) -> JwtKeys:
        """The keys in force now."""

    @property
    def reloads(self) -> Mapping[str, int]:
        """Number of times that the keys were read again, by outcome: `done`, or `refused` if they could not be used."""


class JwtLogin:
    """Authentication by JSON Web Tokens at one broker, with a cache of verified tokens."""

    def __init__(self, terms: JwtTerms, source: KeySource, clock: Clock, entropy: Entropy) -> None:
        self.verifications = 0
        """Number of signatures verified so far."""
        self.source = source
        self._terms = terms
        self._clock = clock
        self._key = bytes.fromhex(entropy.token_hex(32))
        self._verified: dict[bytes, tuple[Principal, Signed]] = {}

    @property
    def keys(self) -> JwtKeys:
        """The issuer's keys in force now."""
        return self.source.keys

    def prove(self, text: str) -> tuple[Principal, Signed]:
        """Returns the principal of a token, with its expiry and key. Raises `NotAuthenticated`."""
        name = hmac.digest(self._key, text.encode(), sha256)
        remembered = self._verified.get(name)
        if remembered is not None and self.still_holds(remembered[1]):
            return remembered
        token = taken_apart(text)
        principal, expires_ms = judged(token, self._terms, self._clock.wall_ms())
        self.verifications += 1
        key = self.keys.verified_by(token)
        if key is None:
            raise refused("jwt: key or signature")
        proof = self._verified[name] = (principal, Signed(expires_ms, key))
        if len(self._verified) > REMEMBERED_MAX:
            del self._verified[next(iter(self._verified))]
        return proof

    def still_holds(self, signed: Signed) -> bool:
        """Returns False once the token has expired or its key was withdrawn."""
        return self._clock.wall_ms() < signed.expires_ms and signed.key in self.keys


def terms_of(config: BrokerConfig) -> JwtTerms:
    """Returns the settings' requirements for a token: algorithms, issuer, audience, principal claim and clock skew."""
    assert config.sasl_oauthbearer_expected_issuer is not None
    return JwtTerms(
        config.jwt_algorithms,
        config.sasl_oauthbearer_expected_issuer,
        config.sasl_oauthbearer_expected_audience,
        config.sasl_oauthbearer_sub_claim_name,
        config.sasl_oauthbearer_clock_skew_seconds,
    )
