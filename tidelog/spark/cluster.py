"""A blocking client of one cluster, for Spark's processes, which have no event loop.

It asks any broker for metadata and offsets, and a partition's leader for its records. Requests that may be repeated are
retried until `timeout_s` has passed without progress (`Patience`). Responses and errors are classified by
`transport.errors`, as in the other clients.

Spark reuses a task's process for later tasks, so connections are kept as well (`shared_cluster`).
"""

from __future__ import annotations

import http.client
import os
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from urllib.parse import quote, urlsplit

import msgspec

from tidelog.adapters.secret_file import read_secret
from tidelog.adapters.system import SystemEntropy
from tidelog.model.errors import NotAuthenticated, TidelogError
from tidelog.model.lost_ranges import LOST_HEADER, LostRange
from tidelog.transport.addresses import BOOTSTRAP_TIMEOUT_S, HTTPS
from tidelog.transport.backoff import Backoff
from tidelog.transport.errors import (
    ConnectFailed,
    NoAnswer,
    decode_answer,
    error_from_answer,
    lost_from_answer,
    no_broker_answers,
)
from tidelog.transport.metadata import ClusterMetadata, with_scheme
from tidelog.transport.offsets import JSON_HEADERS, PARTITIONS_MAX, OffsetQuery, OffsetsAnswer, PartitionOffsets
from tidelog.transport.security import PLAIN, Security, scheme_of, tls_fault

REQUEST_TIMEOUT_S = 30.0
"""Seconds without a response after which an attempt fails."""
BATCHES_HEADERS: Mapping[str, str] = MappingProxyType({"Content-Type": "application/vnd.tidelog.batches"})
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class Patience:
    """The retry time of one operation: until `timeout_s` seconds have passed since the last progress."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._backoff = Backoff(SystemEntropy())
        self._give_up_s = time.monotonic() + timeout_s

    def progress(self) -> None:
        """Restarts the retry time, after progress."""
        self._backoff.reset()
        self._give_up_s = time.monotonic() + self._timeout_s

    def pause(self, error: TidelogError) -> None:
        """Waits before the next attempt. Raises `error` if the retry time is over."""
        wait_s = self._backoff.next_s()
        if time.monotonic() + wait_s >= self._give_up_s:
            raise error
        time.sleep(wait_s)  # a task has a process of its own, and no event loop


class Cluster:
    """Requests to the brokers of one cluster, one at a time. Not thread-safe."""

    def __init__(
        self,
        bootstrap: Sequence[str],
        *,
        timeout_s: float,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        security: Security = PLAIN,
    ) -> None:
        """`bootstrap` are base URLs of one scheme. The files named by `security` are read here, on the machine that
        connects."""
        self._credentials = security.credentials(read_secret)
        self.timeout_s = timeout_s
        self._request_timeout_s = request_timeout_s
        self._addresses = list(bootstrap)
        self._scheme = scheme_of(bootstrap)
        self._context = security.context() if self._scheme == HTTPS else None
        self._connections: dict[str, http.client.HTTPConnection] = {}

    def close(self) -> None:
        """Closes all connections. Requests may still be sent afterwards, on new connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def be_patient(self, timeout_s: float) -> None:
        """Sets the retry time to `timeout_s` seconds, and the request timeout to `REQUEST_TIMEOUT_S`, also on open
        connections. Called after the first, impatient contact with the cluster."""
        self.timeout_s, self._request_timeout_s = timeout_s, REQUEST_TIMEOUT_S
        for connection in self._connections.values():
            connection.timeout = REQUEST_TIMEOUT_S
            if connection.sock is not None:  # the broker has not closed it with its answer
                connection.sock.settimeout(REQUEST_TIMEOUT_S)

    def patience(self) -> Patience:
        """Returns a new `Patience`, for a caller with its own retry loop."""
        return Patience(self.timeout_s)

    # -- what any broker answers ---------------------------------------------------------------------------------

    def metadata(self, topics: Sequence[str] | None = None) -> ClusterMetadata:
        """Fetches the metadata of all brokers and of these topics, or of all topics; missing topics are left out."""
        query = "" if topics is None else "?topics=" + ",".join(quote(name, safe="") for name in topics)
        metadata = with_scheme(decode_answer(ClusterMetadata, self.call("GET", f"/metadata{query}")), self._scheme)
        self._addresses = list(dict.fromkeys((*self._addresses, *(broker.address for broker in metadata.brokers))))
        return metadata

    def offsets(self, queries: Sequence[OffsetQuery], *, wait_ms: int = 0) -> list[PartitionOffsets]:
        """Fetches the offsets of partitions: one entry per query, in the same order; a partition's error is in its
        entry. With `wait_ms`, for a single request, the broker responds as soon as a high watermark differs from the
        given one."""
        offsets: list[PartitionOffsets] = []
        for start in range(0, len(queries), PARTITIONS_MAX):
            document = {"partitions": queries[start : start + PARTITIONS_MAX], "wait_ms": wait_ms}
            body = self.call("POST", "/offsets", body=msgspec.json.encode(document), headers=JSON_HEADERS)
            offsets += decode_answer(OffsetsAnswer, body).partitions
        return offsets

    def call(
        self, method: str, target: str, *, body: bytes | None = None, headers: Mapping[str, str] = _NO_HEADERS
    ) -> bytes:
        """Returns the body of a successful response of any broker, with retries, so only for idempotent requests.
        Raises the last error."""
        patience = self.patience()
        while True:
            address = self._addresses[0]
            try:
                return self.send(method, address, target, body=body, headers=headers)
            except TidelogError as error:
                if error.definite and not error.retriable:
                    raise
                self._addresses = [*self._addresses[1:], address]
                patience.pause(error)

    # -- one try at one broker -----------------------------------------------------------------------------------

    def send(
        self,
        method: str,
        address: str,
        target: str,
        *,
        body: bytes | bytearray | None = None,
        headers: Mapping[str, str] = _NO_HEADERS,
    ) -> bytes:
        """Sends a request once and returns the body of its response. Raises `ConnectFailed`, `NoAnswer`, or the error
        in the response."""
        response = self._begin(method, address, target, body, headers)
        try:
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise self.cut(address, error) from error
        if response.status >= 300:
            raise error_from_answer(response.status, dict(response.headers), content)
        return content

    def open(self, address: str, target: str) -> Stream:
        """Sends a request once and returns its response as a stream. Raises `ConnectFailed`, `NoAnswer`, or the error
        in the response."""
        response = self._begin("GET", address, target, None, _NO_HEADERS)
        if response.status >= 300:
            raise error_from_answer(response.status, dict(response.headers), response.read())
        return Stream(self, address, response)

    def _begin(
        self, method: str, address: str, target: str, body: bytes | bytearray | None, headers: Mapping[str, str]
    ) -> http.client.HTTPResponse:
        """Sends a request, and returns the response after its headers were read. Repeats the request once if the broker
        rejects the credentials and newer ones can be read."""
        credentials = self._credentials
        if credentials is None:
            return self._ask(method, address, target, body, headers)
        credentials.look(time.monotonic())
        shown = credentials.header
        response = self._ask(method, address, target, body, {**headers, "Authorization": shown})
        if response.status != NotAuthenticated.code // 100 or not credentials.are_others(shown, time.monotonic()):
            return response
        self.drop(address)  # rather than read what nobody wants
        return self._ask(method, address, target, body, {**headers, "Authorization": credentials.header})

    def _ask(
        self, method: str, address: str, target: str, body: bytes | bytearray | None, headers: Mapping[str, str]
    ) -> http.client.HTTPResponse:
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = self._connect(address)
        try:
            connection.request(method, target, body, headers)
            return connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise self.cut(address, error) from error

    def _connect(self, address: str) -> http.client.HTTPConnection:
        parts = urlsplit(address)
        assert parts.hostname is not None
        connection: http.client.HTTPConnection
        if self._context is None:
            connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=self._request_timeout_s)
        else:
            connection = http.client.HTTPSConnection(
                parts.hostname, parts.port, timeout=self._request_timeout_s, context=self._context
            )
        try:
            connection.connect()
        except OSError as error:
            raise ConnectFailed(f"no connection to {address}: {tls_fault(error) or error}") from error
        return connection

    def cut(self, address: str, error: Exception) -> NoAnswer:
        """Closes a failed connection, and returns the error: the state of such a connection is unknown, so it is never
        reused."""
        self.drop(address)
        if (why := tls_fault(error)) is not None:
            return NoAnswer(f"{address}: {why}")
        return NoAnswer(f"{address}: no whole answer came ({error!r})")

    def drop(self, address: str) -> None:
        """Closes the connection to a broker; the next request opens a new one."""
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()


class Stream:
    """A response whose body is read in pieces, to its end or until `close`."""

    def __init__(self, cluster: Cluster, address: str, response: http.client.HTTPResponse) -> None:
        self._cluster, self._address, self._response = cluster, address, response
        self._failure: NoAnswer | None = None

    def number(self, header: str) -> int:
        """Returns the integer value of a header; -1 if it is missing."""
        text = self._response.headers.get(header, "")
        return int(text) if text.isascii() and text.isdigit() else -1

    @property
    def lost(self) -> tuple[LostRange, ...]:
        """The given-up lost offset ranges within the response. Raises `NoAnswer` if the header is malformed."""
        return lost_from_answer(self._response.headers.get(LOST_HEADER))

    def read_into(self, buffer: memoryview) -> int:
        """Reads the next bytes into the buffer and returns their number, 0 at the end. Raises `NoAnswer` if the
        response is cut off, after the bytes that arrived."""
        if self._failure is None:
            try:
                return self._response.readinto(buffer)
            except http.client.IncompleteRead as error:
                self._failure = self._cluster.cut(self._address, error)
                if error.partial:
                    return len(error.partial)  # they are in the buffer, and as good as ever
            except (OSError, http.client.HTTPException) as error:
                self._failure = self._cluster.cut(self._address, error)
        raise self._failure

    def close(self) -> None:
        """Abandons the unread part; the connection is reused only if everything was read."""
        if not self._response.isclosed():
            self._cluster.drop(self._address)


def find_cluster(bootstrap: Sequence[str], *, timeout_s: float, security: Security = PLAIN) -> Cluster:
    """Returns a client of the cluster, once a broker has responded at one of these addresses.

    Called by the driver when a query starts: tasks and later batches wait `timeout_s` for a restarting broker, but a
    wrong address should be reported sooner. Raises `ConnectFailed` with the addresses.
    """
    find_s = min(BOOTSTRAP_TIMEOUT_S, timeout_s)
    cluster = Cluster(bootstrap, timeout_s=find_s, request_timeout_s=find_s / len(bootstrap), security=security)
    try:
        cluster.metadata([])
    except TidelogError as error:
        cluster.close()
        if isinstance(error, (ConnectFailed, NoAnswer)):
            raise no_broker_answers(bootstrap, find_s, error) from error
        raise
    cluster.be_patient(timeout_s)
    return cluster


_SHARED: dict[tuple[int, tuple[str, ...], float, Security], Cluster] = {}


def shared_cluster(bootstrap: tuple[str, ...], timeout_s: float, security: Security = PLAIN) -> Cluster:
    """Returns this process's client of a cluster, with the open connections of earlier tasks. The cache key contains
    the process id, since Spark forks workers and sockets must not be shared with a parent."""
    key = (os.getpid(), bootstrap, timeout_s, security)
    if key not in _SHARED:
        _SHARED[key] = Cluster(bootstrap, timeout_s=timeout_s, security=security)
    return _SHARED[key]
