"""HTTP requests to one broker, and the three outcomes of a request.

A request costs a client 60 to 110 us of CPU, nearly all of it inside aiohttp. Therefore cookies, automatic headers,
redirects, proxies, decompression and aiohttp's JSON are not used. A body of several batches is written buffer by buffer
(`Pieces`), never joined, because a fresh megabyte costs more in page faults than its way through the kernel.

How a request ends decides about retries, so only this module distinguishes the outcomes:

- an HTTP response, whatever its status: `Answer`;
- no connection, so the request was certainly not sent: `ConnectFailed`;
- a cut or a timeout after that, so the outcome is unknown: `NoAnswer`.

A pooled connection is closed after `KEEPALIVE_S` without a request, before the broker closes it. Otherwise the next
request of an idle client might meet a closed connection, and its outcome would be unknown.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.connector import NEEDS_CLEANUP_CLOSED
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
    """An HTTP response of a broker: status, headers (case-insensitive names), and the whole body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def error(self) -> TidelogError | None:
        """The exception for a response with a status of 300 or more; None for a success. Brokers send no redirects, so
        a redirect is an error."""
        return None if self.status < 300 else error_from_answer(self.status, self.headers, self.body)

    @property
    def lost(self) -> tuple[LostRange, ...]:
        """The offset ranges inside a fetched range that were given up as lost by an operator. Raises `NoAnswer` if the
        header is malformed."""
        return lost_from_answer(self.headers.get(LOST_HEADER))

    @property
    def retry_after_s(self) -> float:
        """The `Retry-After` seconds of a response with which a broker rejects an overload or an exceeded quota;
        otherwise 0.

        The header counts whole seconds and comes with each 429 and 503. Other 503 responses concern conditions that
        mostly pass sooner, such as a leader's lease that the next heartbeat brings, so the client's own backoff decides
        there.
        """
        text = self.headers.get("Retry-After", "")
        is_given = text.isascii() and text.isdigit() and isinstance(self.error, Overloaded | QuotaExceeded)
        return float(text) if is_given else 0.0


class Pieces(Payload):
    """An HTTP request body of several buffers, which are written one after the other without joining them."""

    _autoclose = True  # nothing to close: the buffers are the caller's

    def __init__(self, pieces: Sequence[Buffer], content_type: str = BATCHES_TYPE) -> None:
        super().__init__(pieces, content_type=content_type)
        self._pieces = pieces
        self._size = sum(map(len, pieces))

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Returns the body as text; required by aiohttp's `Payload` and unused for batches."""
        return b"".join(self._pieces).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Writes all buffers, with flow control of the connection."""
        for piece in self._pieces:
            await writer.write(piece)

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Writes all buffers. `content_length` is ignored: it equals their total size."""
        await self.write(writer)


class Connections:
    """A bounded pool of keep-alive HTTP connections, opened and closed inside one event loop."""

    def __init__(
        self,
        *,
        connections_max: int,
        client_id: str = "",
        context: ssl.SSLContext | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        """`client_id` and the `credentials` are sent as headers of each request; `context` is the TLS context for
        https. Raises `ValueError` for a client id that is no valid header value."""
        if not (client_id.isprintable() and len(client_id) <= CLIENT_ID_CHARS_MAX):
            raise ValueError(f"a client id has at most {CLIENT_ID_CHARS_MAX} characters, all of them printable")
        self._headers = {CLIENT_ID: client_id} if client_id else {}
        self._connections_max = connections_max
        self._context = context
        self._credentials = credentials
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Creates the pool, without connecting to a broker. Idempotent."""
        if self._session is not None:
            return
        connector = aiohttp.TCPConnector(
            limit=self._connections_max,
            limit_per_host=self._connections_max,
            keepalive_timeout=KEEPALIVE_S,
            use_dns_cache=True,
            ttl_dns_cache=30,
            ssl=self._context or True,
            # Older Pythons end a TLS connection only when its peer says goodbye, too: a client that was closed before
            # that left the socket open. Newer ones need no help, and aiohttp warns of it there.
            enable_cleanup_closed=NEEDS_CLEANUP_CLOSED,
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
        """Closes all connections. Idempotent."""
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
        """Sends a request once, and a second time if the broker rejects the credentials and newer ones can be read.
        Raises `ConnectFailed`, `NoAnswer` or `ClientClosed`; a response with an error status is returned as an
        `Answer`."""
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
