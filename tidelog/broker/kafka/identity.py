"""A connection knows who is at its other end: nobody yet, whoever has logged in, or the one whom a certificate names.

What a login rests on (a user, a token, a key, a certificate's time) may end before the connection does. It is looked at
again with the first request after logins or rights have changed, and with each request if it ends at a certain time.
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
"""The beginning of an IPv6 address that is an IPv4 address."""


class Identity:
    """The client of one connection."""

    def __init__(self, face: BrokerFace, rules: tuple[Rule, ...], address: str) -> None:
        """The `rules` say whom a certificate stands for."""
        host = address.removeprefix(MAPPED) if "." in address else address
        mechanisms = face.cluster.config.sasl_enabled_mechanisms
        self.caller = Caller(ANONYMOUS, host)
        self.sasl = SaslLogin(face.login, mechanisms, host, face.clock) if mechanisms else None
        """The login under way; None if nobody has to log in."""
        self._face = face
        self._rules = rules
        self._proof: Proof = NO_PROOF
        self._access: object = None
        """The state of logins and rights by which the proof was looked at last."""
        self._holder: str | None = None
        """The user that the connection is counted for, if there are quotas."""

    @property
    def is_known(self) -> bool:
        """Returns False while a login is still to come."""
        return self.sasl is None or self.sasl.proof is not None

    def refuse(self, key: Key, certificate: Mapping[str, Any] | None) -> None:
        """Raises `NotAuthenticated` if who calls has to log in first, or would not be let in again; and
        `TooManyConnections` if the user has enough others."""
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
        """Takes who has just logged in, if anybody has, for the caller."""
        if self.sasl is not None and self.sasl.proof is not None and self.sasl.proof is not self._proof:
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
        """Counts the connection out, which is no more, or is another user's now."""
        holder, self._holder = self._holder, None
        if holder is not None:
            self._face.shares.release(holder)
