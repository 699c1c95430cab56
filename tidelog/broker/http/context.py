"""What a handler gets: the `Context` of its listener, and the `Call` it is to answer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING

from aiohttp import web
from prometheus_client import CollectorRegistry

from tidelog.broker.http import params
from tidelog.broker.http.limits import Limits
from tidelog.broker.http.metrics import RequestMetrics
from tidelog.broker.runtime.budget import ByteBudget
from tidelog.model.cluster import Topic
from tidelog.model.errors import ShuttingDown
from tidelog.model.ids import TopicId
from tidelog.model.names import check_topic_name

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.http.route import Route

ROTATIONS_MAX = 10_000


class Wait:
    """One wait; see `Waits.until`."""

    __slots__ = ("_all", "_timeout")

    def __init__(self, all_timeouts: dict[asyncio.Timeout, None], timeout: asyncio.Timeout) -> None:
        self._all = all_timeouts
        self._timeout = timeout

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()
        self._all[self._timeout] = None

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        del self._all[self._timeout]
        try:
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError:
            return True
        return False


class Waits:
    """The requests that wait for something to happen, so that a shutdown can end all waits early."""

    def __init__(self) -> None:
        self._timeouts: dict[asyncio.Timeout, None] = {}
        self._is_ended = False

    def __len__(self) -> int:
        return len(self._timeouts)

    @property
    def is_ended(self) -> bool:
        """True once the listener shuts down: nobody should begin to wait any more."""
        return self._is_ended

    def until(self, deadline_s: float) -> Wait:
        """An async context: what is inside ends at `deadline_s` (loop time) or at the shutdown, if it has not by
        itself; all three look the same from outside."""
        return Wait(self._timeouts, asyncio.timeout_at(0 if self._is_ended else deadline_s))

    def end_all(self) -> None:
        """Ends all waits now, and those to come as they begin."""
        self._is_ended = True
        for timeout in list(self._timeouts):
            if not timeout.expired():
                timeout.reschedule(0)


@dataclass(slots=True)
class Context:
    """One listener: the broker it speaks for, its bounds, and what its requests share."""

    broker: Broker
    limits: Limits
    metrics: RequestMetrics
    bodies: ByteBudget
    """Memory for request bodies, from before they are read until their request is answered."""
    answers: ByteBudget
    """Memory for record data on its way to clients."""
    waits: Waits
    registry: CollectorRegistry
    """What `/metrics` shows; one per broker, so that several can live in one process."""
    openapi: bytes
    """The document of `/openapi.json`."""
    _rotations: dict[TopicId, int] = field(default_factory=dict)

    def rotate(self, topic: Topic) -> int:
        """The next partition of a topic for a request whose records name none: all partitions take turns."""
        turn = self._rotations.pop(topic.topic_id, -1) + 1
        self._rotations[topic.topic_id] = turn
        if len(self._rotations) > ROTATIONS_MAX:
            del self._rotations[next(iter(self._rotations))]
        return turn % len(topic.partitions)

    def refuse_if_ending(self) -> None:
        """`ShuttingDown` if the listener is about to close."""
        if self.waits.is_ended:
            raise ShuttingDown("this broker is shutting down; go to another one")


@dataclass(slots=True)
class Call:
    """One request on its way through a handler. `path` holds the decoded values of the route's placeholders."""

    request: web.BaseRequest
    route: Route
    path: Mapping[str, str]
    started_s: float
    """Loop time when the request's head was complete."""
    is_open: bool = False
    """True once a streamed answer has begun: from then on nothing can be said but by cutting the connection."""
    received_bytes: int = 0
    """Bytes of the body so far."""
    body_bytes: int = 0
    """What this call has taken from `Context.bodies`."""
    answer_bytes: int = 0
    """What this call has taken from `Context.answers`."""
    sent_bytes: int = 0
    """Bytes of a streamed answer so far."""
    _query: dict[str, str] | None = None

    @property
    def query(self) -> dict[str, str]:
        """The query parameters. `InvalidRequest` if they are badly written."""
        if self._query is None:
            self._query = params.parse_query(self.request.rel_url.raw_query_string)
        return self._query

    def deadline_s(self, context: Context) -> float:
        """When a produce must be answered, in loop time: `timeout_ms` after the request came; the broker's limit is
        the default, and the most."""
        return self.started_s + self.duration_s(context, "timeout_ms", context.limits.request_timeout_ms_max)

    def duration_s(self, context: Context, name: str, default_ms: int) -> float:
        """The parameter `name`, in ms, or the default; never more than the broker allows."""
        asked = params.optional_integer(self.query, name, default_ms)
        return min(asked, context.limits.request_timeout_ms_max) / 1000

    def topic_name(self) -> str:
        """The topic of the path. `InvalidRequest` if that is no name."""
        return check_topic_name(self.path["topic"])

    def partition_number(self) -> int:
        """The partition of the path. `InvalidRequest` if that is no number."""
        return params.partition_number(self.path["partition"])
