"""The principal of a connection: anonymous, logged in by SASL, or named by a TLS certificate.

A login may expire or be revoked while the connection lasts (its user, token or key deleted, its certificate outdated).
It is checked again at the first request after users or ACLs have changed, and at each request if it has an expiry time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tidelog.broker.face.face import BrokerFace
from tidelog.broker.face.login import NO_PROOF, Proof
from tidelog.broker.kafka.apis import BEFORE_LOGIN, Key
from tidelog.broker.kafka.sasl import SaslLogin
from tidelog.model.access import ANONYMOUS, Caller
from tidelog.model.certificate_names import Rule
from tidelog.model.errors import NotAuthenticated

MAPPED: Final = "::ffff:"
"""Prefix of an IPv6 address that stands for an IPv4 address."""


class Identity:
    """The client at the other end of one connection."""

    def __init__(self, face: BrokerFace, rules: tuple[Rule, ...], address: str) -> None:
        """`rules` map certificate subjects to principals."""
        host = address.removeprefix(MAPPED) if "." in address else address
        mechanisms = face.cluster.config.sasl_enabled_mechanisms
        self.caller = Caller(ANONYMOUS, host)
        self.sasl = SaslLogin(face.login, mechanisms, host, face.clock) if mechanisms else None
        """The SASL login; None if this listener needs no login."""
        self.is_known = self.sasl is None
        """False while the client has still to log in."""
        self._face = face
        self._rules = rules
        self._proof: Proof = NO_PROOF
        self._access: object = None
        """Users and ACLs (a snapshot object) at the last check of the login."""
        self._holder: str | None = None
        """User for whom the connection is counted in the connection quota; None if it is not counted."""

    def refuse(self, key: Key, certificate: Mapping[str, Any] | None) -> None:
        """Raises `NotAuthenticated` if the client has not logged in yet or its login is no longer valid;
        `TooManyConnections` if its user has too many connections."""
        if not self.is_known and key not in BEFORE_LOGIN:
            raise NotAuthenticated(f"{key.label} came before a login (sasl.enabled.mechanisms)")
        if self.sasl is None and certificate is not None and self._proof is NO_PROOF:
            self._take(self._face.login.by_certificate(certificate, self._rules))
        if self._proof is not NO_PROOF and not self._holds_still():
            raise NotAuthenticated("the login of this connection holds no more")
        if self._face.shares.are_set and self.is_known:
            self._hold()

    def _holds_still(self) -> bool:
        access = self._face.cluster.image.access
        if access is self._access and not hasattr(self._proof.rests_on, "expires_ms"):
            return True
        self._access = access
        return self._face.login.still_holds(self._proof)

    def logged_in(self) -> None:
        """Makes the principal of a finished SASL login the caller of this connection."""
        if self.sasl is not None and self.sasl.proof is not None and self.sasl.proof is not self._proof:
            self.is_known = True
            self._take(self.sasl.proof)

    def _take(self, proof: Proof) -> None:
        self._proof = proof
        self.caller = Caller(proof.principal, self.caller.host)

    def _hold(self) -> None:
        user = self.caller.principal.name
        if user != self._holder:
            self.release()
            self._face.shares.hold(user)
            self._holder = user

    def release(self) -> None:
        """Stops counting the connection for its user."""
        holder, self._holder = self._holder, None
        if holder is not None:
            self._face.shares.release(holder)
