"""SASL login of a connection (SaslHandshake and SaslAuthenticate).

PLAIN and OAUTHBEARER transmit a secret in clear, so they are offered over TLS only (`config/schema.py` checks that).
OAUTHBEARER takes the bearer tokens of HTTP: a token `ID.SECRET` of this cluster, or a JSON Web Token. A failed login
gets the same message whatever was wrong, and ends the connection. If the login expires or is revoked later, the
connection is closed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tidelog.broker.face.login import Login, Proof
from tidelog.broker.face.scram_login import ScramExchange
from tidelog.model.credentials import NEVER, refused
from tidelog.model.errors import NotAuthenticated, TidelogError
from tidelog.model.kafka_codes import KafkaCode
from tidelog.model.ports import Clock

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
_BEARER: Final = "auth=bearer "
_END: Final = "\x01"


class SaslLogin:
    """The SASL login of one connection."""

    def __init__(self, login: Login, mechanisms: Sequence[str], host: str, clock: Clock) -> None:
        self.proof: Proof | None = None
        """The authenticated principal and its credential; None before the login has succeeded."""
        self.has_failed = False
        """True if the login has failed and the connection must be closed after its answer."""
        self.cause = ""
        """Reason of the failure, for the audit log."""
        self._login = login
        self._mechanisms = mechanisms
        self._host = host
        self._clock = clock
        self._mechanism = ""
        self._scram: ScramExchange | None = None

    def handshake(self, request: Any) -> dict[str, Any]:
        """Chooses a SASL mechanism. Returns the answer, as nested dicts with the field names of the library kio."""
        code = 0
        if self._mechanism:
            code, self.has_failed = KafkaCode.ILLEGAL_SASL_STATE, True
        elif request.mechanism not in self._mechanisms:
            code = KafkaCode.UNSUPPORTED_SASL_MECHANISM
        else:
            self._mechanism = request.mechanism
        return {"error_code": code, "mechanisms": list(self._mechanisms)}

    async def authenticate(self, request: Any) -> dict[str, Any]:
        """Handles the client's next SASL message. Returns the answer, as nested dicts with the field names of the
        library kio."""
        if not self._mechanism or self.proof is not None:
            self.has_failed = True
            return _answer(KafkaCode.ILLEGAL_SASL_STATE, "SaslHandshake comes first, and each login once")
        try:
            answer = await self._next(bytes(request.auth_bytes))
        except TidelogError as error:
            self.has_failed = True
            self.cause = error.cause if isinstance(error, NotAuthenticated) else error.message
            return _answer(KafkaCode.SASL_AUTHENTICATION_FAILED, error.message)
        return {**_answer(0, None), "auth_bytes": answer, "session_lifetime": self._lifetime_ms()}

    async def _next(self, message: bytes) -> bytes:
        if self._mechanism == PLAIN:
            name, password = _name_and_password(message)
            self.proof = await self._login.by_password(name, password, self._host)
            return b""
        if self._mechanism == OAUTHBEARER:
            self.proof = self._login.by_bearer(_token(message), takes_own=True, takes_jwts=True)
            return b""
        if self._scram is None:
            self._scram = ScramExchange(self._mechanism)
            return self._login.begin_scram(self._scram, message, self._host)
        self.proof, answer = self._login.end_scram(self._scram, message, self._host)
        return answer

    def _lifetime_ms(self) -> int:
        """Returns the ms until the login expires, so that the client logs in again in time; 0 if it never expires."""
        expires_ms = NEVER if self.proof is None else getattr(self.proof.rests_on, "expires_ms", NEVER)
        return 0 if expires_ms == NEVER else max(1, int(expires_ms) - self._clock.wall_ms())


def _answer(code: int, message: str | None) -> dict[str, Any]:
    return {"error_code": code, "error_message": message, "auth_bytes": b"", "session_lifetime": 0}


def _name_and_password(message: bytes) -> tuple[str, str]:
    try:
        parts = message.decode().split("\0")
    except UnicodeDecodeError:
        raise refused("malformed") from None
    if len(parts) != 3 or not parts[1] or parts[0] not in ("", parts[1]):
        raise refused("malformed")
    return parts[1], parts[2]


def _token(message: bytes) -> str:
    """Returns the token of an OAUTHBEARER message (RFC 7628)."""
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise refused("malformed") from None
    for part in text.split(_END):
        if part.lower().startswith(_BEARER):
            return part[len(_BEARER) :].strip()
    raise refused("malformed")
