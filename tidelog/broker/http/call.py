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
    """`path` holds the decoded values of the route's placeholders."""

    request: web.BaseRequest
    prefix: str
    """Under which name REST v3 was asked: `/v3` or `/kafka/v3`; empty for all others."""
    path: Mapping[str, str]
    started_s: float
    """Loop time when the request's head was complete."""
    is_open: bool = False
    """True once a streamed answer has begun: from then on nothing can be said but by cutting the connection."""
    received_bytes: int = 0
    """Bytes of the body so far."""
    body_bytes: int = 0
    """The bytes that this call has taken from `Admission.bodies`."""
    answer_bytes: int = 0
    """The bytes that this call has taken from `Admission.answers`."""
    sent_bytes: int = 0
    """Bytes of a streamed answer so far."""
    entry: Pass | None = None
    """Holds what it was let in with; None at a listener that lets everybody do everything."""
    error: TidelogError | None = None
    """The reason why it was refused; its origin is forgotten."""
    refused: tuple[Operation, Resource] | None = None
    """The first right that it lacks, of those that its body asks for; others of it may have been served."""
    request_id: str = ""
    """Names it in the audit log, and to its client; empty if no audit log is kept."""
    subject: str = ""
    """Says for the audit log what it is about, where its path does not."""
    share: Share | None = None
    """The part of its caller's share that it uses; None if there are no quotas."""
    _query: dict[str, str] | None = None

    @property
    def principal(self) -> Principal:
        """Returns who is calling."""
        return ANONYMOUS if self.entry is None else self.entry.caller.principal

    @property
    def caller(self) -> Caller:
        """Returns who is calling, and from where."""
        return Caller(ANONYMOUS, self.request.remote or "") if self.entry is None else self.entry.caller

    @property
    def query(self) -> dict[str, str]:
        """The query parameters. Raises `InvalidRequest` if they are badly written."""
        if self._query is None:
            self._query = params.parse_query(self.request.rel_url.raw_query_string)
        return self._query

    def deadline_s(self, context: Context) -> float:
        """When a produce must be answered, in loop time: `timeout_ms` after the request came; the broker's limit is
        the default, and the most."""
        return self.started_s + self.duration_s(context, "timeout_ms", context.limits.request_timeout_ms_max)

    def duration_s(self, context: Context, name: str, default_ms: int) -> float:
        """Returns the parameter `name`, in ms, or the default; never more than the broker allows."""
        duration_ms = params.optional_integer(self.query, name, default_ms)
        return min(duration_ms, context.limits.request_timeout_ms_max) / 1000

    def topic_name(self) -> str:
        """Returns the topic of the path. Raises `InvalidRequest` if that is no name."""
        return check_topic_name(self.path["topic"])

    def partition_number(self) -> int:
        """Returns the partition of the path, whether or not the topic has it. Raises `InvalidRequest` if that is no
        number."""
        return params.integer("the partition", self.path["partition"], high=params.INT32_MAX)


def client_of(call: Call) -> Client:
    """Returns who is calling, and under which client id."""
    return Client(call.principal, call.request.headers.get(CLIENT_ID, "")[:CLIENT_ID_CHARS_MAX])
