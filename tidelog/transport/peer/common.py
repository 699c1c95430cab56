"""The state common to all connections of one broker to its peers: hello, secret, bounds, and the log of rejected
connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec
import structlog

from tidelog.model.ports import Clock, Entropy
from tidelog.transport.peer.bounds import PeerBounds
from tidelog.transport.peer.frames import MessageCodec
from tidelog.transport.peer.handler import Answer
from tidelog.transport.peer.hello import Hello, Incarnations, refusal
from tidelog.transport.peer.proof import ClusterSecret
from tidelog.transport.peer.statistics import PeerStatistics

if TYPE_CHECKING:
    from tidelog.transport.peer.line import Line

CheckAnswer = Callable[[Hello, msgspec.Struct, Answer], None]
"""A function that checks a peer's response to a request. Raises `BadFrame`, `ForeignSender` or `ImplausibleNumber`."""
COMPLAINT_S: Final = 60.0
"""Seconds before the same warning about the same host is logged again."""
REASONS_MAX: Final = 8
"""Maximum distinct warnings about one host within `COMPLAINT_S`, because a stranger can cause a new one each time."""
COMPLAINTS_MAX: Final = 64
"""Maximum hosts whose last warnings are remembered."""


@dataclass(eq=False)
class Common:
    """The state common to all peer connections of a broker."""

    hello: Callable[[], Hello]
    codec: MessageCodec
    bounds: PeerBounds
    clock: Clock
    entropy: Entropy
    secret: ClusterSecret | None
    check_answer: CheckAnswer
    statistics: PeerStatistics = field(default_factory=PeerStatistics)
    incarnations: Incarnations = field(default_factory=Incarnations)
    on_refused: list[Callable[[Hello], None]] = field(default_factory=list)
    on_complaint: list[Callable[[str, str], None]] = field(default_factory=list)
    """Listeners, called with the remote address and the reason each time that a connection is rejected."""
    lines: dict[Line, None] = field(default_factory=dict)
    """Open connections, in the order of their opening."""
    _complaints: dict[str, tuple[float, list[str]]] = field(default_factory=dict)
    """For each host, the time of the first warning of the present `COMPLAINT_S` period, and the distinct warnings in
    it."""
    _no_lines: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.logger: Any = structlog.get_logger("tidelog.peer").bind(node_id=self.hello().node_id)
        self._no_lines.set()

    def add(self, line: Line) -> None:
        self.lines[line] = None
        self._no_lines.clear()

    def remove(self, line: Line) -> None:
        del self.lines[line]
        if not self.lines:
            self._no_lines.set()

    def refusal(self, mine: Hello, theirs: Hello) -> str | None:
        """Returns the reason why two brokers must not talk to each other, or None (`hello.refusal`). Calls `on_refused`
        with a rejected hello."""
        objection = refusal(mine, theirs)
        if objection is not None:
            for hear in self.on_refused:
                hear(theirs)
        return objection

    def refuse_stale(self) -> None:
        """Closes the connections of processes that the metadata has as replaced by a later process of the same node."""
        for line in list(self.lines):
            if line.theirs is not None and self.incarnations.is_stale(line.theirs):
                line.refuse(f"{line.theirs.describe()} is over: a later life of this node is known")

    def complain(self, remote: str, why: str) -> None:
        """Logs the reason for a rejected connection, with limits: a repeated reason of one host once per `COMPLAINT_S`,
        and a few reasons per host. `statistics` counts all."""
        for hear in self.on_complaint:
            hear(remote, why)
        self._warn("a peer connection is refused", remote, why)

    def doubt(self, remote: str, reason: str, why: str) -> None:
        """Counts a rejected response, and logs it with the same limits as `complain`."""
        self.statistics.refused[reason] += 1
        self._warn("an answer of a peer is not believed", remote, why)

    def _warn(self, event: str, remote: str, reason: str) -> None:
        host = remote.rpartition(":")[0]
        now_s = asyncio.get_running_loop().time()
        since_s, reasons = self._complaints.pop(host, (now_s, []))
        if now_s >= since_s + COMPLAINT_S:
            since_s, reasons = now_s, []
        if reason not in reasons and len(reasons) < REASONS_MAX:
            self.logger.warning(event, remote=remote, reason=reason)
            reasons.append(reason)
        self._complaints[host] = (since_s, reasons)
        if len(self._complaints) > COMPLAINTS_MAX:
            del self._complaints[next(iter(self._complaints))]

    async def wait_no_lines(self) -> None:
        """Waits until the last connection is lost."""
        await self._no_lines.wait()
