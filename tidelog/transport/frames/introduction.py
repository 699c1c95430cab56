"""The first requests of a client on a new connection to a Kafka listener: ApiVersions, then SASL authentication
(`login.py`).

A broker counts a login by SCRAM as failed until it has succeeded, and takes only a few of those at a time from one user
and address (`broker/face/attempts.py`). So the connections of a client to one broker log in one after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial

from tidelog.model.errors import InvalidRequest, NotAuthenticated
from tidelog.model.kafka_wire import Malformed
from tidelog.model.ports import Entropy
from tidelog.transport.credentials import Credentials
from tidelog.transport.errors import NoAnswer
from tidelog.transport.frames import codec
from tidelog.transport.frames.line import Line
from tidelog.transport.frames.login import SCRAM, Login, login_of
from tidelog.transport.frames.scram import NONCE_BYTES, ScramClient

InThread = Callable[[Callable[[], bytes]], Awaitable[bytes]]
"""Makes a blocking call in a thread."""


@dataclass(eq=False)
class Introduction:
    """The version check and the authentication of one client on each of its connections. Logins are proved with
    numbers from `entropy`, and hashed `in_thread`."""

    _client_id: str
    _credentials: Credentials | None
    _: KW_ONLY
    is_encrypted: bool
    entropy: Entropy
    in_thread: InThread
    _turns: dict[str, asyncio.Lock] = field(default_factory=dict, init=False)
    """Held by the connection to a broker that logs in by SCRAM."""

    async def give(self, line: Line, broker: str) -> None:
        """Checks the API versions of the listener, and authenticates. Raises `InvalidRequest` if either fails, but
        `NotAuthenticated` if a login by SCRAM does."""
        if not codec.has_what_is_needed(await line.ask(codec.versions(self._client_id))):
            raise InvalidRequest("it has no Produce or Fetch of the versions that are needed")
        if self._credentials is None:
            await self._require_no_login(line)
            return
        self._credentials.look(asyncio.get_running_loop().time())
        login = login_of(self._credentials.header, is_encrypted=self.is_encrypted)
        mechanism = await self._choose(line, login.mechanisms)
        if mechanism in SCRAM:
            async with self._turns.setdefault(broker, asyncio.Lock()):
                await self._prove(line, mechanism, login)
        else:
            await self._say(line, login.message)

    async def _require_no_login(self, line: Line) -> None:
        """Raises `InvalidRequest` if the listener requires authentication."""
        try:
            await line.ask(codec.no_topics(self._client_id))
        except NoAnswer:
            raise InvalidRequest("it asks for a login, and this client has none") from None

    async def _choose(self, line: Line, mechanisms: Sequence[str]) -> str:
        """Returns the first mechanism that the listener takes. Raises `InvalidRequest`."""
        if not mechanisms:
            raise InvalidRequest("a token is not shown in plain text")
        left = list(mechanisms)
        while True:
            is_taken, offered = codec.read_handshake(await line.ask(codec.handshake(self._client_id, left[0])))
            if is_taken:
                return left[0]
            left = [mechanism for mechanism in left[1:] if mechanism in offered]
            if not left:
                ways = " or ".join(mechanisms)
                raise InvalidRequest(f"it offers no login by {ways}, only: {', '.join(offered) or 'none'}")

    async def _prove(self, line: Line, mechanism: str, login: Login) -> None:
        """Logs in by SCRAM. Raises `NotAuthenticated`, also if the listener has not proved who it is."""
        scram = ScramClient(mechanism, login.user, login.password, self.entropy.token_hex(NONCE_BYTES))
        try:
            challenge = scram.read_challenge(await self._say(line, scram.first()))
            salted = await self.in_thread(partial(scram.salted, challenge))
            scram.verify(await self._say(line, scram.final(challenge, salted)))
        except (InvalidRequest, Malformed) as error:
            # Not for HTTP to try: that would show the password to a broker that could not be proved to know it.
            raise NotAuthenticated(f"the login by {mechanism} has failed: {error.message}") from error

    async def _say(self, line: Line, message: bytes) -> bytes:
        """Sends a message of a login, and returns the answer. Raises `InvalidRequest` if the login has failed."""
        failure, answer = codec.read_authenticated(await line.ask(codec.authenticate(self._client_id, message)))
        if failure is not None:
            raise InvalidRequest(failure)
        return answer
