"""The `Context` of an HTTP listener: the broker's parts and the listener's shared state, passed to every handler."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

from tidelog.broker.face.admission import Admission
from tidelog.broker.face.busy import Busy
from tidelog.broker.face.face import BrokerFace
from tidelog.broker.face.shares import PACE_S_MAX
from tidelog.broker.face.statistics import Histogram, Stages
from tidelog.broker.http.guard import Guard, Pass
from tidelog.broker.http.limits import Limits
from tidelog.broker.http.metrics import RequestMetrics
from tidelog.broker.http.metrics_page import MetricsPage
from tidelog.broker.http.topic_texts import TopicTexts
from tidelog.model.access import ANY_NAME, Operation, Resource
from tidelog.model.cluster import Endpoint, Topic
from tidelog.model.errors import NotAuthorized
from tidelog.model.ids import TopicId
from tidelog.model.ports import LogLevel

ROTATIONS_MAX = 10_000

T = TypeVar("T")
_DESCRIBE: Final = Operation.DESCRIBE


class Rights(Protocol):
    """The part of a `Call` that authorization needs."""

    refused: tuple[Operation, Resource] | None

    @property
    def entry(self) -> Pass | None:
        """The authenticated caller; None at a listener without access control."""


@dataclass(slots=True)
class Context:
    """The parts of one HTTP listener: the broker it serves, its bounds, and the state that its requests share."""

    face: BrokerFace
    admission: Admission
    limits: Limits
    advertised: Endpoint
    """The address given to clients."""
    metrics: RequestMetrics
    metrics_page: MetricsPage
    """The page of `/metrics`; one per broker, so that several brokers can run in one process."""
    log_level: LogLevel
    scheme: str
    """The URL scheme for clients, `http` or `https`."""
    openapi: Callable[[], bytes]
    """Returns the document of `/openapi.json`, which is made at the first request so that the start is not delayed."""
    guard: Guard | None = None
    """Authentication and authorization; None if access control is off."""
    topic_texts: TopicTexts = field(default_factory=TopicTexts)
    busy: Busy = field(default_factory=Busy)
    """Load of the event loop's thread."""
    _rotations: dict[TopicId, int] = field(default_factory=dict)

    def require(self, call: Rights, operation: Operation, kind: str, names: Iterable[str]) -> None:
        """Raises `NotAuthorized` unless the caller may perform the operation on all named resources of the type `kind`,
        such as topics or groups.
        """
        if self.guard is None or call.entry is None:
            return
        resources = [Resource(kind, name) for name in names]
        try:
            self.guard.require(call.entry, operation, resources)
        except NotAuthorized:
            entry, guard = call.entry, self.guard
            refused = next(
                (resource for resource in resources if not guard.may(entry, operation, resource)), resources[0]
            )
            call.refused = call.refused or (operation, refused)
            raise

    def require_subscription(self, call: Rights, topics: Iterable[str], pattern: str | None) -> None:
        """Raises `NotAuthorized` unless the caller may read these topics; with a pattern, all topics, since it may
        match any.
        """
        self.require(call, Operation.READ, "Topic", [*topics, *([ANY_NAME] if pattern else ())])

    def may(self, call: Rights, operation: Operation, kind: str, name: str) -> bool:
        """Returns True if the caller may perform the operation on the resource `name` of the type `kind`."""
        return self.guard is None or call.entry is None or self.guard.may(call.entry, operation, Resource(kind, name))

    def visible(self, call: Rights, kind: str, names: Iterable[str], operation: Operation = _DESCRIBE) -> list[str]:
        """Returns the names of the resources that the caller may see."""
        if self.guard is None:
            return list(names)
        return [name for name in names if self.may(call, operation, kind, name)]

    async def timed(self, stage: Histogram, work: Awaitable[T]) -> T:
        """Awaits `work`, one stage of a request; records its duration in the histogram `stage`, even if it fails."""
        now_s = self.face.clock.monotonic_s
        started_s = now_s()
        try:
            return await work
        finally:
            stage.observe(now_s() - started_s)

    async def held_up(self, turn: Awaitable[None]) -> None:
        """Awaits `turn`, a delay that a quota imposes on a stream that has begun. Ends early, without an error, when
        the listener shuts down.
        """
        async with self.admission.waits.until(asyncio.get_running_loop().time() + PACE_S_MAX):
            await turn

    @property
    def stages(self) -> Stages:
        """Histograms of the time that requests spend in each stage."""
        return self.face.statistics.counts.stages

    def rotate(self, topic: Topic) -> int:
        """Returns the next partition of a topic, round-robin, for a request whose records have neither key nor
        partition.
        """
        turn = self._rotations.pop(topic.topic_id, -1) + 1
        self._rotations[topic.topic_id] = turn
        if len(self._rotations) > ROTATIONS_MAX:
            del self._rotations[next(iter(self._rotations))]
        return turn % len(topic.partitions)
