"""How far each broker has applied the metadata log, as its reports to the active controller say.

Many decisions are answered when all live brokers have applied them, so that the next request to any broker sees the
effect. A report that no broker can have come to is refused: recorded, it would make a good directory look old later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import structlog

from tidelog.broker.runtime.purgatory import Watchers
from tidelog.controller.commands import (
    AddPartitions,
    AlterTopicConfigs,
    BrokerHeartbeat,
    CreateOffsetsTopic,
    CreateTopic,
    DeleteTopic,
    MetadataApplied,
    RaiseLevel,
    RemoveBroker,
)
from tidelog.controller.partition_commands import AlterReassignments, ElectLeaders, HandOver
from tidelog.controller.sessions import Sessions
from tidelog.model.cluster import ClusterImage
from tidelog.model.errors import ImplausibleNumber
from tidelog.model.ids import NodeId

APPLIED_S_MAX = 5.0
"""Seconds that an answer waits at most for the slowest live broker to apply the decision."""
AHEAD_MAX = 2**32
"""The most records by which a broker's reported position may be ahead of this controller's; a larger number is refused
as implausible."""

AWAITED = (
    CreateTopic,
    CreateOffsetsTopic,
    DeleteTopic,
    AddPartitions,
    AlterTopicConfigs,
    RemoveBroker,
    RaiseLevel,
    ElectLeaders,
    HandOver,
    AlterReassignments,
)
"""The commands that are answered only when every live broker has applied their records, so that the next request to any
broker sees the effect."""

logger = structlog.get_logger("tidelog.controller")


class AppliedPositions:
    """The positions that the live brokers have reported to the controller on this broker, and the answers that wait for
    them."""

    def __init__(
        self, node_id: NodeId, sessions: Sessions, image: Callable[[], ClusterImage], is_serving: Callable[[], bool]
    ) -> None:
        """`sessions` keep what is reported. Answers wait only while `is_serving` is true."""
        self.changed = Watchers()
        """Watchers to be woken when `is_serving` or the live brokers change."""
        self._node_id = node_id
        self._sessions = sessions
        self._image = image
        self._is_serving = is_serving

    def check(self, report: BrokerHeartbeat | MetadataApplied) -> None:
        """Raises `ImplausibleNumber` if a broker reports a position that no broker can have reached."""
        image = self._image()
        broker = image.brokers.get(NodeId(report.node_id))
        numbers = [("position", report.position, image.position)]
        if isinstance(report, BrokerHeartbeat):
            numbers.append(("snapshot", report.snapshot_position, image.position))
            numbers.append(("time mark", report.stamp, 0 if broker is None else broker.stamp))
        for name, number, base in numbers:
            if number - base > AHEAD_MAX:
                raise ImplausibleNumber(f"node {report.node_id} names the {name} {number}, and {base} is known here")

    def note(self, report: BrokerHeartbeat | MetadataApplied) -> None:
        """Records a broker's report, which `check` has accepted."""
        now_s = asyncio.get_running_loop().time()
        self._sessions.follow(self._image(), now_s)
        hear = partial(self._sessions.heard, report.node_id, report.broker_epoch, now_s, position=report.position)
        if isinstance(report, MetadataApplied):
            hear()
        else:
            clock_ms = None if report.wall_ms is None else report.wall_ms - int(now_s * 1000)
            hear(snapshot=(report.snapshot_position, report.snapshot_hash), stamp=report.stamp, clock_ms=clock_ms)
        self.changed.wake_all()

    def lags(self) -> dict[NodeId, int]:
        """Returns the number of records by which each live broker is behind in applying the metadata log."""
        image = self._image()
        sessions = {broker.node_id: self._sessions.of(broker.node_id) for broker in image.live_brokers}
        positions = {node: session.position for node, session in sessions.items() if session is not None}
        return {node: max(0, image.position - positions[node]) for node in sorted(positions)}

    async def wait_for(self, position: int) -> None:
        """Waits until the live brokers have applied the metadata up to `position`, for at most `APPLIED_S_MAX`
        seconds."""
        try:
            async with asyncio.timeout(APPLIED_S_MAX):
                while self._is_serving() and not self._is_applied(position):
                    await self.changed.wait()
        except TimeoutError:
            logger.warning("a broker is slow to apply the metadata log", position=position)

    def _is_applied(self, position: int) -> bool:
        sessions = [
            self._sessions.of(broker.node_id)
            for broker in self._image().live_brokers
            if broker.node_id != self._node_id
        ]
        return all(session is not None and session.position >= position for session in sessions)
