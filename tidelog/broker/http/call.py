"""A `Call`: one request on its way through a handler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aiohttp import web

from tidelog.broker.face.shares import Client, Share
from tidelog.broker.http import params
from tidelog.broker.http.context import Context
from tidelog.broker.http.guard import Pass
from tidelog.model.access import ANONYMOUS, Caller, Operation, Principal, Resource
from tidelog.model.errors import TidelogError
from tidelog.model.names import check_topic_name

CLIENT_ID = "X-Client-Id"
CLIENT_ID_CHARS_MAX = 256


@dataclass(slots=True)
class Call:
    """A request under way: its HTTP request, route prefix and caller, and what it has used of the listener's budgets.

    `path` holds the decoded values of the route's placeholders.
    """

    request: web.BaseRequest
    prefix: str
    """The path prefix by which REST v3 was called, `/v3` or `/kafka/v3`; empty for all other routes."""
    path: Mapping[str, str]
    started_s: float
    """Loop time when the request's head was complete."""
    is_open: bool = False
    """True once the head of a streamed answer was sent: after that an error can only be shown by cutting the
    connection.
    """
    received_bytes: int = 0
    """Bytes of the body that have arrived so far."""
    body_bytes: int = 0
    """Bytes that this call holds of the memory budget `Admission.bodies`."""
    answer_bytes: int = 0
    """Bytes that this call holds of the memory budget `Admission.answers`."""
    sent_bytes: int = 0
    """Bytes of a streamed answer that were sent so far."""
    entry: Pass | None = None
    """The authenticated caller; None at a listener without access control."""
    error: TidelogError | None = None
    """The error of a failed request, without its traceback."""
    refused: tuple[Operation, Resource] | None = None
    """The first operation and resource that the handler denied; parts of the request may still have been served."""
    request_id: str = ""
    """The request id in the audit log and in the answer; empty if no audit log is kept."""
    subject: str = ""
    """The name of the affected object for the audit log, where the path does not have it."""
    share: Share | None = None
    """The quota use of this request; None if there are no quotas."""
    _query: dict[str, str] | None = None

    @property
    def principal(self) -> Principal:
        """The principal of the caller, anonymous without authentication."""
        return ANONYMOUS if self.entry is None else self.entry.caller.principal

    @property
    def caller(self) -> Caller:
        """The caller's principal and address."""
        return Caller(ANONYMOUS, self.request.remote or "") if self.entry is None else self.entry.caller

    @property
    def query(self) -> dict[str, str]:
        """The query parameters. Raises `InvalidRequest` if the query string is malformed."""
        if self._query is None:
            self._query = params.parse_query(self.request.rel_url.raw_query_string)
        return self._query

    def deadline_s(self, context: Context) -> float:
        """Returns the loop time by which a produce request must be answered: `timeout_ms` after it arrived; the
        broker's limit is the default and the maximum.
        """
        return self.started_s + self.duration_s(context, "timeout_ms", context.limits.request_timeout_ms_max)

    def duration_s(self, context: Context, name: str, default_ms: int) -> float:
        """Returns the query parameter `name` (ms), or the default, in seconds; never more than the broker's limit."""
        duration_ms = params.optional_integer(self.query, name, default_ms)
        return min(duration_ms, context.limits.request_timeout_ms_max) / 1000

    def topic_name(self) -> str:
        """Returns the topic name of the path. Raises `InvalidRequest` if it is not a valid topic name."""
        return check_topic_name(self.path["topic"])

    def partition_number(self) -> int:
        """Returns the partition number of the path, whether or not the topic has it. Raises `InvalidRequest` if it is
        not a number.
        """
        return params.integer("the partition", self.path["partition"], high=params.INT32_MAX)


def client_of(call: Call) -> Client:
    """Returns the caller's principal and client id (header `X-Client-Id`)."""
    return Client(call.principal, call.request.headers.get(CLIENT_ID, "")[:CLIENT_ID_CHARS_MAX])
