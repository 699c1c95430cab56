"""Logs callers in by JSON Web Tokens, which an issuer outside the cluster has signed (`model/jwt.py`).

To verify a signature takes the event loop 50 to 200 us. So it comes last, and a token that was good is remembered until
it ends, under a hash whose key is drawn at the start; the token itself is not kept. It is good no longer than the key
that has signed it is among those in force.
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
    """The facts that a token's validity rests on: its end, and the key that has signed it."""

    expires_ms: int
    key: str


class KeySource(Protocol):
    """A source of the issuer's keys, which may change."""

    @property
    def keys(self) -> JwtKeys:
        """Returns the keys in force."""
        ...

    @property
    def reloads(self) -> Mapping[str, int]:
        """How often they were read again, by outcome."""
        ...


class JwtLogin:
    """The tokens that one broker was shown, and has verified."""

    def __init__(self, terms: JwtTerms, source: KeySource, clock: Clock, entropy: Entropy) -> None:
        self.verifications = 0
        """The number of signatures that were verified."""
        self.source = source
        self._terms = terms
        self._clock = clock
        self._key = bytes.fromhex(entropy.token_hex(32))
        self._known: dict[bytes, tuple[Principal, Signed]] = {}

    @property
    def keys(self) -> JwtKeys:
        """The keys in force."""
        return self.source.keys

    def prove(self, text: str) -> tuple[Principal, Signed]:
        """Returns whose token this is. Raises `NotAuthenticated`."""
        name = hmac.digest(self._key, text.encode(), sha256)
        remembered = self._known.get(name)
        if remembered is not None and self.still_holds(remembered[1]):
            return remembered
        token = taken_apart(text)
        principal, expires_ms = judged(token, self._terms, self._clock.wall_ms())
        self.verifications += 1
        key = self.keys.verified_by(token)
        if key is None:
            raise refused("jwt: key or signature")
        proof = self._known[name] = (principal, Signed(expires_ms, key))
        if len(self._known) > REMEMBERED_MAX:
            del self._known[next(iter(self._known))]
        return proof

    def still_holds(self, signed: Signed) -> bool:
        """Returns False once the token has ended, or its key is gone."""
        return self._clock.wall_ms() < signed.expires_ms and signed.key in self.keys


def terms_of(config: BrokerConfig) -> JwtTerms:
    """Returns what the settings ask of a token."""
    assert config.sasl_oauthbearer_expected_issuer is not None
    return JwtTerms(
        config.jwt_algorithms,
        config.sasl_oauthbearer_expected_issuer,
        config.sasl_oauthbearer_expected_audience,
        config.sasl_oauthbearer_sub_claim_name,
        config.sasl_oauthbearer_clock_skew_seconds,
    )
