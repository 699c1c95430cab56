"""One end of a connection between two brokers: what calling and answering ends have in common.

Both greet. The caller's `Hello` is the first frame of a connection, the callee's the second, and nothing else is taken
before them. What a broker says of itself changes: it learns the id of its cluster, it is registered. So each end says
hello again before the next frame that it sends after such a change, and the other end judges it again. A connection
that was opened while one side knew no cluster thereby ends when the two turn out to belong to different ones.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final

import structlog

from tidelog.model.levels import LEVEL_MIN
from tidelog.model.ports import Buffer, Clock, FrameConnection
from tidelog.transport.peer.bounds import PeerBounds
from tidelog.transport.peer.errors import Fault, PeerRefused
from tidelog.transport.peer.frames import BadFrame, Frame, Kind, MessageCodec, pack, unpack
from tidelog.transport.peer.hello import Hello, Incarnations, refusal

COMPLAINT_S: Final = 60.0
"""How often the same is said about the same machine."""
COMPLAINTS_MAX: Final = 64
"""Machines whose last complaint is remembered."""


class Common:
    """What all connections of a node share."""

    def __init__(self, hello: Callable[[], Hello], codec: MessageCodec, bounds: PeerBounds, clock: Clock) -> None:
        self.hello = hello
        self.codec = codec
        self.bounds = bounds
        self.clock = clock
        self.incarnations = Incarnations()
        self.on_refused: list[Callable[[Hello], None]] = []
        self.on_complaint: list[Callable[[str, str], None]] = []
        """Called with the address of whoever is refused, and why, each time."""
        self.logger: Any = structlog.get_logger("tidelog.peer").bind(node_id=hello().node_id)
        self.lines: dict[Line, None] = {}
        """All that are not lost yet, in the order they were made."""
        self._complaints: dict[str, tuple[str, float]] = {}
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
        """Judges as `hello.refusal`, and tells of whoever is refused."""
        why = refusal(mine, theirs)
        if why is not None:
            for hear in self.on_refused:
                hear(theirs)
        return why

    def refuse_stale(self) -> None:
        """Ends the connections with lives of nodes that are over."""
        for line in list(self.lines):
            if line.theirs is not None and self.incarnations.is_stale(line.theirs):
                line.refuse(f"{line.theirs.describe()} is over: a later life of this node is known")

    def complain(self, remote: str, why: str) -> None:
        """Logs why a connection is refused, but not each time that the same machine tries again for the same reason."""
        for hear in self.on_complaint:
            hear(remote, why)
        host = remote.rpartition(":")[0]
        now_s = asyncio.get_running_loop().time()
        last_why, last_s = self._complaints.pop(host, ("", 0.0))
        if last_why != why or now_s >= last_s + COMPLAINT_S:
            self.logger.warning("a peer connection is refused", remote=remote, reason=why)
            last_s = now_s
        self._complaints[host] = (why, last_s)
        if len(self._complaints) > COMPLAINTS_MAX:
            del self._complaints[next(iter(self._complaints))]

    async def wait_no_lines(self) -> None:
        """Returns when the last connection is lost."""
        await self._no_lines.wait()


class Line(ABC):
    """A `FrameReceiver`. Ends by itself on bad frames; `error` then says why."""

    def __init__(self, connection: FrameConnection, common: Common) -> None:
        self.connection = connection
        self.common = common
        self.theirs: Hello | None = None
        """What the other end said last; None before it said anything."""
        self.level = LEVEL_MIN
        """The highest feature level that both ends speak; what is sent here is encoded at it."""
        self.error: PeerRefused | None = None
        """Why this end or the other wants no more of it."""
        self.is_open = True
        self._mine: Hello | None = None
        connection.frame_bytes_max = common.bounds.hello_bytes_max
        common.add(self)

    # -- sending -----------------------------------------------------------------------------------------------------

    def greet(self) -> None:
        """Says hello, unless the other end knows all there is to say."""
        mine = self.common.hello()
        if mine is self._mine or not self.is_open:
            return
        if mine != self._mine:
            if self.theirs is not None and (why := self.common.refusal(mine, self.theirs)):
                self.refuse(why)
                return
            self.connection.send(pack(Kind.HELLO, self.common.codec.encode_hello(mine)))
        self._mine = mine

    def send(
        self,
        kind: Kind,
        header: bytes = b"",
        payload: Sequence[Buffer] = (),
        *,
        correlation: int = 0,
        timeout_ms: int = 0,
    ) -> None:
        """Sends a frame, behind a new hello if there is news."""
        self.greet()
        self.connection.send(pack(kind, header, payload, correlation=correlation, timeout_ms=timeout_ms))

    def refuse(self, why: str) -> None:
        """Tells the other end why, and closes."""
        if not self.is_open:
            return
        self.common.complain(self.connection.remote, why)
        self.error = PeerRefused(why)
        self.connection.send(pack(Kind.REFUSAL, self.common.codec.encode(Fault.of(self.error))))
        self.close()

    def close(self) -> None:
        """Takes and sends no more; `connection_lost` follows."""
        self.is_open = False
        self.connection.close()

    # -- receiving ---------------------------------------------------------------------------------------------------

    def frame_received(self, frame: memoryview) -> None:
        """Takes a frame apart and acts on it; a bad one ends the connection."""
        if not self.is_open:
            return
        try:
            parts = unpack(frame)
            if parts.kind is Kind.HELLO:
                self._hear(self.common.codec.hello(parts.header))
            elif parts.kind is Kind.REFUSAL:
                self._refused(self.common.codec.fault(parts.header))
            elif self.theirs is None:
                raise BadFrame(f"the first frame is no hello, but of kind {parts.kind.name}")
            else:
                self.take(parts)
        except BadFrame as error:
            self.refuse(str(error))

    def _hear(self, theirs: Hello) -> None:
        common = self.common
        why = common.refusal(common.hello(), theirs) or self.objection(theirs) or common.incarnations.hear(theirs)
        if why:
            self.refuse(why)
            return
        is_first = self.theirs is None
        self.theirs = theirs
        self.level = common.hello().levels.common(theirs.levels) or LEVEL_MIN
        self.common.refuse_stale()
        if is_first:
            self.connection.frame_bytes_max = self.common.bounds.frame_bytes_max
            self.greeted()

    def _refused(self, fault: Fault) -> None:
        self.error = PeerRefused(fault.message)
        self.close()

    def objection(self, theirs: Hello) -> str | None:
        """What else may be wrong with a hello."""
        said = self.theirs
        if said is not None and (said.node_id, said.incarnation) != (theirs.node_id, theirs.incarnation):
            return f"{said.describe()} now says that it is {theirs.describe()}"
        return None

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is gone."""
        self.is_open = False
        self.common.remove(self)
        self.ended(error)

    # -- for the two kinds of ends -----------------------------------------------------------------------------------

    @abstractmethod
    def greeted(self) -> None:
        """The other end's first hello was fine."""
        ...

    @abstractmethod
    def take(self, frame: Frame) -> None:
        """A frame that is neither hello nor refusal. May raise `BadFrame`."""
        ...

    @abstractmethod
    def ended(self, error: Exception | None) -> None:
        """Nothing will come any more."""
        ...
