"""The state that all connections of one node share: its hello, secret and bounds, and the log of refusals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
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
"""Judges what a peer has answered to a request. Raises `BadFrame`, `ForeignSender` or `ImplausibleNumber`."""
COMPLAINT_S: Final = 60.0
"""The seconds after which the same is logged again about the same machine."""
REASONS_MAX: Final = 8
"""How many reasons are told of one machine in that time: a stranger can give another one each time."""
COMPLAINTS_MAX: Final = 64
"""Machines whose last complaint is remembered."""


class Common:
    """The state that all connections of a node share."""

    def __init__(
        self,
        hello: Callable[[], Hello],
        codec: MessageCodec,
        bounds: PeerBounds,
        clock: Clock,
        entropy: Entropy,
        statistics: PeerStatistics,
        secret: ClusterSecret | None,
        check_answer: CheckAnswer,
    ) -> None:
        self.hello = hello
        self.codec = codec
        self.bounds = bounds
        self.clock = clock
        self.entropy = entropy
        self.statistics = statistics
        self.secret = secret
        self.check_answer = check_answer
        self.incarnations = Incarnations()
        self.on_refused: list[Callable[[Hello], None]] = []
        self.on_complaint: list[Callable[[str, str], None]] = []
        """Called with the address of whoever is refused, and why, each time."""
        self.logger: Any = structlog.get_logger("tidelog.peer").bind(node_id=hello().node_id)
        self.lines: dict[Line, None] = {}
        """All that are not lost yet, in the order they were made."""
        self._complaints: dict[str, tuple[float, list[str]]] = {}
        """Since when which reasons were logged, by host."""
        self._no_lines = asyncio.Event()
        self._no_lines.set()

    def add(self, line: Line) -> None:
        self.lines[line] = None
        self._no_lines.clear()

    def remove(self, line: Line) -> None:
        del self.lines[line]
        if not self.lines:
            self._no_lines.set()

    def refusal(self, mine: Hello, theirs: Hello) -> str | None:
        """Judges as `hello.refusal`, and calls `on_refused` with a hello that is refused."""
        objection = refusal(mine, theirs)
        if objection is not None:
            for hear in self.on_refused:
                hear(theirs)
        return objection

    def refuse_stale(self) -> None:
        """Ends the connections with lives of nodes that are over."""
        for line in list(self.lines):
            if line.theirs is not None and self.incarnations.is_stale(line.theirs):
                line.refuse(f"{line.theirs.describe()} is over: a later life of this node is known")

    def complain(self, remote: str, why: str) -> None:
        """Logs why a connection is refused, but not each time that the same machine tries again: the same reason once
        in a while, and no more than a few of them. `statistics` counts all."""
        for hear in self.on_complaint:
            hear(remote, why)
        self._warn("a peer connection is refused", remote, why)

    def doubt(self, remote: str, reason: str, why: str) -> None:
        """Counts an answer that is not believed, and logs it as `complain` does."""
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
        """Returns when the last connection is lost."""
        await self._no_lines.wait()
