"""HTTP requests to one broker: the cheapest way through aiohttp, and every way that a request can end.

A request costs a client 60 to 110 us of CPU, nearly all of it inside aiohttp; what can be left away is: cookies,
automatic headers, redirects, proxies, decompression, JSON. Bodies of several batches go out as they are
(`Pieces`), never joined, because a fresh megabyte costs more in page faults than its way through the kernel.

How a request ends decides about retries, so it is told apart here and nowhere else:

- an answer, whatever its status: `Answer`;
- no connection: `ConnectFailed`, surely not sent;
- anything after that, a cut or a timeout: `NoAnswer`, unknown.

A pooled connection is given up after `KEEPALIVE_S` of rest, before a broker closes it, so that an idle client does
not take a connection that dies under its next request for an unknown outcome.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.hdrs import AUTHORIZATION
from aiohttp.payload import Payload
from yarl import URL

from tidelog.model.errors import NotAuthenticated, Overloaded, QuotaExceeded, TidelogError
from tidelog.model.lost_ranges import LOST_HEADER, LostRange
from tidelog.model.ports import Buffer
from tidelog.transport.credentials import Credentials
from tidelog.transport.errors import ClientClosed, ConnectFailed, NoAnswer, error_from_answer, lost_from_answer
from tidelog.transport.security import tls_fault

BATCHES_TYPE = "application/vnd.tidelog.batches"
CLIENT_ID = "X-Client-Id"
CLIENT_ID_CHARS_MAX = 256
KEEPALIVE_S = 20.0
CONNECT_TIMEOUT_S = 10.0
ANSWER_BYTES_MAX = 128 << 20
READ_BUFFER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a broker: status, headers (any case), the whole body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def error(self) -> TidelogError | None:
        """The exception this answer stands for; None for a success. Redirects are no success: nobody sends them."""
        return None if self.status < 300 else error_from_answer(self.status, self.headers, self.body)

    @property
    def lost(self) -> tuple[LostRange, ...]:
        """The accepted losses that a read has passed. Raises `NoAnswer` if they make no sense."""
        return lost_from_answer(self.headers.get(LOST_HEADER))

    @property
    def retry_after_s(self) -> float:
        """Seconds that a broker asked the client to stay away, because it is overloaded, or the client's share is used
        up; 0 if it did not.

        The header counts whole seconds and comes with each 429 and 503. What other refusals are for mostly passes
        sooner, as a leader's lease comes with the next heartbeat: when to repeat those is for the client's own backoff
        to say.
        """
        text = self.headers.get("Retry-After", "")
        is_asked = text.isascii() and text.isdigit() and isinstance(self.error, Overloaded | QuotaExceeded)
        return float(text) if is_asked else 0.0


class Pieces(Payload):
    """A request body in several buffers, written one after the other without joining them."""

    _autoclose = True  # nothing to close: the buffers are the caller's

    def __init__(self, pieces: Sequence[Buffer], content_type: str = BATCHES_TYPE) -> None:
        super().__init__(pieces, content_type=content_type)
        self._pieces = pieces
        self._size = sum(map(len, pieces))

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Returns the body as text, as aiohttp's `Payload` asks for; batches never are."""
        return b"".join(self._pieces).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Writes all pieces, waiting where the connection is slower than we are."""
        for piece in self._pieces:
            await writer.write(piece)

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Writes all pieces, as `write` does: the length is known and right."""
        await self.write(writer)


class Connections:
    """A bounded pool of keep-alive connections. Opened and closed inside one event loop."""

    def __init__(
        self,
        *,
        connections_max: int,
        client_id: str = "",
        context: ssl.SSLContext | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        """Each request says the `client_id`, and shows the `credentials`; `context` is for https. Raises `ValueError`
        for a client id that no header can hold."""
        if not (client_id.isprintable() and len(client_id) <= CLIENT_ID_CHARS_MAX):
            raise ValueError(f"a client id has at most {CLIENT_ID_CHARS_MAX} characters, all of them printable")
        self._headers = {CLIENT_ID: client_id} if client_id else {}
        self._connections_max = connections_max
        self._context = context
        self._credentials = credentials
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Takes the pool into use; needs no broker. Idempotent."""
        if self._session is not None:
            return
        connector = aiohttp.TCPConnector(
            limit=self._connections_max,
            limit_per_host=self._connections_max,
            keepalive_timeout=KEEPALIVE_S,
            use_dns_cache=True,
            ttl_dns_cache=30,
            ssl=self._context or True,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            headers=self._headers or None,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("Accept-Encoding", "User-Agent"),
            auto_decompress=False,
            trust_env=False,
            read_bufsize=READ_BUFFER_BYTES,
        )

    async def close(self) -> None:
        """Cuts all connections. Idempotent."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def request(
        self,
        method: str,
        url: URL,
        *,
        body: bytes | Pieces | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float,
    ) -> Answer:
        """Sends a request once; a second time if a broker does not take the credentials and there are new ones. Raises
        `ConnectFailed`, `NoAnswer` or `ClientClosed`; an error status is an `Answer`."""
        credentials, loop = self._credentials, asyncio.get_running_loop()
        if credentials is None:
            return await self._request(method, url, body, headers, timeout_s)
        began_s = loop.time()
        credentials.look(began_s)
        shown = credentials.header
        answer = await self._request(method, url, body, {**(headers or {}), AUTHORIZATION: shown}, timeout_s)
        now_s = loop.time()
        left_s = began_s + timeout_s - now_s
        is_refused = answer.status == NotAuthenticated.code // 100
        if not is_refused or left_s <= 0 or not credentials.are_others(shown, now_s):
            return answer
        again = {**(headers or {}), AUTHORIZATION: credentials.header}
        return await self._request(method, url, body, again, left_s)

    async def _request(
        self,
        method: str,
        url: URL,
        body: bytes | Pieces | None,
        headers: Mapping[str, str] | None,
        timeout_s: float,
    ) -> Answer:
        if self._session is None:
            raise ClientClosed("this client is closed")
        timeout = aiohttp.ClientTimeout(total=max(timeout_s, 0.001), sock_connect=CONNECT_TIMEOUT_S)
        try:
            async with self._session.request(
                method, url, data=body, headers=headers, allow_redirects=False, timeout=timeout
            ) as response:
                if (response.content_length or 0) > ANSWER_BYTES_MAX:
                    raise NoAnswer(f"{url}: the answer is larger than {ANSWER_BYTES_MAX} bytes; ask for less at once")
                return Answer(response.status, response.headers, await response.read())
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise ConnectFailed(f"no connection to {url.origin()}: {tls_fault(error) or error}") from error
        except TimeoutError as error:
            raise NoAnswer(f"{url}: no answer within {timeout_s:.1f} s") from error
        except (aiohttp.ClientError, OSError) as error:
            if (fault := tls_fault(error)) is not None:  # in TLS 1.3 a client is refused after it has begun to send
                raise ConnectFailed(f"no connection to {url.origin()}: {fault}") from error
            raise NoAnswer(f"{url}: the connection was cut before the answer came ({error!r})") from error
