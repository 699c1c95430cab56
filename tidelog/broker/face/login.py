"""Authenticates callers of all listeners: by a token, by user name and password, by SCRAM, by a client certificate, or
by a JSON Web Token of another issuer (`jwt_login.py`).

A token is looked up by its id and its secret compared by hash. A password takes some 30 ms of a thread, one after the
other, with a bounded queue; so a right password is cached for a minute, as a hash with a random key, until its user
changes. An unknown user costs as much time and gets the same error as a wrong password.
"""

from __future__ import annotations

import asyncio
import hmac
import ssl
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, Final, NamedTuple

from tidelog.broker.face.attempts import Attempts
from tidelog.broker.face.jwt_login import JwtLogin, Signed
from tidelog.broker.face.scram_login import NONCE_BYTES, ScramExchange
from tidelog.model.access import ANONYMOUS, Principal
from tidelog.model.certificate_names import Rule, principal_of
from tidelog.model.credentials import NEVER, Access, Token, User, refused, secret_hash
from tidelog.model.errors import InvalidRequest, Overloaded
from tidelog.model.jwt import is_jwt
from tidelog.model.passwords import HASH_BYTES, PASSWORD_BYTES_MAX, SALT_BYTES, is_right, made_user, nobodys_hash
from tidelog.model.ports import BlockingRunner, Clock, Entropy

REMEMBERED_S: Final = 60.0
REMEMBERED_MAX: Final = 10_000
WAITING_MAX: Final = 64
WAIT_S_MAX: Final = 10.0
NAME_BYTES_MAX: Final = 1_024
FIRST_SECRET_CHARS_MIN: Final = 32


class Certificate(NamedTuple):
    """The expiry of a client certificate."""

    expires_ms: int


class Proof(NamedTuple):
    """An authenticated principal, and the credential that proves it. The proof is valid while the credential is in the
    metadata unchanged and has not expired.
    """

    principal: Principal
    rests_on: Token | User | Certificate | Signed | None = None


NO_PROOF: Final = Proof(ANONYMOUS)
"""The proof of anonymous callers, where authentication is off."""


class _Verified(NamedTuple):
    user: User
    until_s: float


class Login:
    """Authentication at one broker, with a cache of passwords verified in the last minute."""

    def __init__(
        self,
        access: Callable[[], Access],
        clock: Clock,
        entropy: Entropy,
        runner: BlockingRunner | None = None,
        verify: Callable[[str, str], bool] = is_right,
    ) -> None:
        """Without a `runner` (thread), passwords are hashed on the event loop."""
        self.first_token: Token | None = None
        """A token from a file beside the settings, for the first administrator of a new cluster."""
        self.jwts: JwtLogin | None = None
        """Authentication by JSON Web Tokens; None if it is not configured."""
        self.verifications = 0
        """Number of passwords compared with a hash so far."""
        self._access = access
        self._clock = clock
        self._entropy = entropy
        self._runner = runner
        self._verify = verify
        self._key = bytes.fromhex(entropy.token_hex(32))
        self._nobodys_hash = nobodys_hash(
            bytes.fromhex(entropy.token_hex(SALT_BYTES)), bytes.fromhex(entropy.token_hex(HASH_BYTES))
        )
        self._attempts = Attempts()
        self._verified: dict[bytes, _Verified] = {}
        self._under_way: dict[bytes, asyncio.Task[Proof]] = {}
        self._waiting = 0

    # -- tokens --------------------------------------------------------------------------------------------------------

    def by_token(self, text: str) -> Proof:
        """Returns the proof for a token written as `id.secret`. Raises `NotAuthenticated`."""
        if not text.isascii():
            raise refused("token")
        token_id, _, secret = text.partition(".")
        token = self._token(token_id)
        shown = secret_hash(secret)
        is_same = hmac.compare_digest(shown, self._nobodys_hash if token is None else token.secret_hash)
        if token is None or not is_same or self._is_over(token):
            raise refused("token")
        return Proof(token.caller, token)

    def _is_over(self, token: Token) -> bool:
        """Returns True if the token has expired. Reads the clock only for tokens that expire: each request asks, and
        most do not.
        """
        return token.expires_ms != NEVER and token.is_over(self._clock.wall_ms())

    def is_token(self, text: str) -> bool:
        """Returns True if this cluster has a token with the id before the first dot. Its secret may have dots, so that
        it looks like a JSON Web Token.
        """
        return self._token(text.partition(".")[0]) is not None

    def by_bearer(self, text: str, *, takes_own: bool, takes_jwts: bool) -> Proof:
        """Returns the proof for a bearer token, of this cluster or a JSON Web Token. Raises `NotAuthenticated`."""
        if self.jwts is not None and takes_jwts and is_jwt(text) and not self.is_token(text):
            return Proof(*self.jwts.prove(text))
        if takes_own:
            return self.by_token(text)
        raise refused("scheme")

    def _token(self, token_id: str) -> Token | None:
        first = self.first_token
        if first is not None and first.token_id == token_id:
            return first
        return self._access().tokens.get(token_id)

    def by_certificate(self, certificate: Mapping[str, Any], rules: Sequence[Rule]) -> Proof:
        """Returns the proof for a client certificate that TLS has verified; `rules` map its subject to a principal.
        Raises `NotAuthenticated`, also once it has expired: a connection may outlive its certificate.
        """
        principal = principal_of(certificate, rules)
        proof = Certificate(1000 * ssl.cert_time_to_seconds(certificate["notAfter"]))
        if principal is None or not self._clock.wall_ms() < proof.expires_ms:
            raise refused("certificate")
        return Proof(principal, proof)

    def still_holds(self, proof: Proof) -> bool:
        """Returns False once the credential of `proof` was changed, deleted or has expired."""
        match proof.rests_on:
            case Token() as token:
                return self._token(token.token_id) == token and not self._is_over(token)
            case Certificate() as certificate:
                return self._clock.wall_ms() < certificate.expires_ms
            case Signed() as signed:
                return self.jwts is not None and self.jwts.still_holds(signed)
            case User() as user:
                return self._access().users.get(user.name) == user
        return True

    # -- passwords -----------------------------------------------------------------------------------------------------

    async def by_password(self, name: str, password: str, host: str) -> Proof:
        """Returns the proof for a user name and password. Raises `NotAuthenticated`; `TooManyAttempts` if too many
        logins have failed or are under way; `Overloaded` if too many passwords wait to be verified.
        """
        if len(name) > NAME_BYTES_MAX or len(password) > PASSWORD_BYTES_MAX:
            raise refused("password")
        key = self._key_of(name, password, host)
        verified = self._verified.get(key)
        if verified is not None and self._clock.monotonic_s() < verified.until_s:
            proof = Proof(Principal("User", name), verified.user)
            if self.still_holds(proof):
                return proof
        under_way = self._under_way.get(key)
        if under_way is None:
            if self._waiting >= WAITING_MAX:
                raise Overloaded("too many passwords are being verified; try again in a moment")
            self._attempts.begin((name, host), self._clock.monotonic_s())
            under_way = asyncio.create_task(self._verify_anew(key, name, password, host))
            self._under_way[key] = under_way
            under_way.add_done_callback(partial(self._end, key))
        try:
            async with asyncio.timeout(WAIT_S_MAX):
                return await asyncio.shield(under_way)
        except TimeoutError:
            raise Overloaded("verifying the password takes too long; try again in a moment") from None

    def _key_of(self, name: str, password: str, host: str) -> bytes:
        parts = [part.encode() for part in (name, host, password)]
        return hmac.digest(self._key, b"".join(b"%d:%b" % (len(part), part) for part in parts), sha256)

    async def _verify_anew(self, key: bytes, name: str, password: str, host: str) -> Proof:
        user = self._access().users.get(name)
        call = partial(self._verify, self._nobodys_hash if user is None else user.password_hash, password)
        self._waiting += 1
        try:
            is_same = call() if self._runner is None else await self._runner.run(call)
        finally:
            self._waiting -= 1
            self.verifications += 1
        if user is None or not is_same or self._access().users.get(name) != user:
            raise refused("password")
        self._attempts.succeeded((name, host))
        self._verified[key] = _Verified(user, self._clock.monotonic_s() + REMEMBERED_S)
        if len(self._verified) > REMEMBERED_MAX:
            del self._verified[next(iter(self._verified))]
        return Proof(Principal("User", name), user)

    def _end(self, key: bytes, task: asyncio.Task[Proof]) -> None:
        del self._under_way[key]
        if not task.cancelled():
            task.exception()  # whoever waited has got it, or is gone

    # -- SCRAM ---------------------------------------------------------------------------------------------------------

    def begin_scram(self, exchange: ScramExchange, message: bytes, host: str) -> bytes:
        """Returns the server's first SCRAM message, the answer to the client's first one. Raises `NotAuthenticated`,
        `TooManyAttempts`.
        """
        name = exchange.read_first(message)
        if len(name) > NAME_BYTES_MAX:
            raise refused("password")
        self._attempts.begin((name, host), self._clock.monotonic_s())
        return exchange.first(self._access().users.get(name), self._key, self._entropy.token_hex(NONCE_BYTES))

    def end_scram(self, exchange: ScramExchange, message: bytes, host: str) -> tuple[Proof, bytes]:
        """Returns the logged-in user's principal and record, and the server's final SCRAM message. Raises
        `NotAuthenticated`."""
        answer = exchange.final(message)
        user = exchange.user
        if user is None or self._access().users.get(user.name) != user:
            raise refused("password")
        self._attempts.succeeded((user.name, host))
        return Proof(Principal("User", user.name), user), answer

    # -- what is made --------------------------------------------------------------------------------------------------

    async def made_user(self, name: str, password: str) -> User:
        """Returns a new user with the hashes and SCRAM keys of its password, to be stored in the metadata."""
        salts = tuple(bytes.fromhex(self._entropy.token_hex(SALT_BYTES)) for _ in range(3))
        call = partial(made_user, name, password, salts)
        return call() if self._runner is None else await self._runner.run(call)

    def made_token(self, principal: Principal, expires_ms: int, description: str) -> tuple[Token, str]:
        """Returns a new token and its secret, of which only the hash is stored."""
        secret = self._entropy.token_hex(32)
        token_id = self._entropy.token_hex(8)
        now_ms = self._clock.wall_ms()
        return Token(token_id, secret_hash(secret), str(principal), now_ms, expires_ms, description), secret


def first_token(text: str, super_users: Sequence[str]) -> Token:
    """Returns the token written in a file beside the settings, for the first super user. Raises `InvalidRequest` if the
    text is malformed or there is no super user.
    """
    token_id, dot, secret = text.partition(".")
    if not dot or not token_id or len(secret) < FIRST_SECRET_CHARS_MIN or not text.isascii() or " " in text:
        raise InvalidRequest(
            f"a token is written as ID.SECRET, and a secret has {FIRST_SECRET_CHARS_MIN} characters at least"
        )
    if not super_users:
        raise InvalidRequest("the token stands for the first of super.users, and there is none")
    return Token(token_id, secret_hash(secret), super_users[0], created_ms=0)
