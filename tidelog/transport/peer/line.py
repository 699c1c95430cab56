"""`Line`: one end of a connection between two brokers; the common part of the calling and the answering end.

Both ends send a hello: the caller's is the first frame of the connection, the answerer's the second, and no other frame
is accepted before them. The identity of a broker changes when it learns its cluster's id or is registered. Each end
therefore sends a new hello before its next frame after such a change, and the other end checks it again. So a
connection opened while one side had no cluster ends when the two turn out to belong to different clusters.

With a cluster secret both ends send a challenge before the hello, and the first hello of each is followed by a proof
(`proof.py`). A hello without a valid proof has no effect.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from tidelog.model.levels import LEVEL_MIN
from tidelog.model.ports import Buffer, FrameConnection
from tidelog.transport.peer.common import Common
from tidelog.transport.peer.errors import Fault, PeerBusy, PeerRefused
from tidelog.transport.peer.frames import BadFrame, Frame, Kind, pack, unpack
from tidelog.transport.peer.hello import Hello
from tidelog.transport.peer.names import name_refusal
from tidelog.transport.peer.proof import NO_CHANNEL, Challenge, Proofs, Role, secret_missing, secrets_differ


class Line(ABC):
    """One end of a connection between brokers, a `FrameReceiver`. Closes on invalid frames; `error` is the reason."""

    def __init__(self, connection: FrameConnection, common: Common, role: Role) -> None:
        self.connection = connection
        self.common = common
        self._role = role
        self._proofs = Proofs(common.secret, role, connection.certificates) if common.secret is not None else None
        self.theirs: Hello | None = None
        """The latest hello of the other end; None before the first."""
        self.level = LEVEL_MIN
        """The highest feature level that both ends support; messages are encoded at it."""
        self.error: PeerRefused | None = None
        """The error with which either end has closed the connection; None while open."""
        self.is_open = True
        self._mine: Hello | None = None
        connection.frame_bytes_max = common.bounds.hello_bytes_max
        common.add(self)

    # -- sending -----------------------------------------------------------------------------------------------------

    def greet(self) -> None:
        """Sends a hello, unless the other end has the present one."""
        mine = self.common.hello()
        if mine is self._mine or not self.is_open:
            return
        if mine != self._mine:
            if self.theirs is not None and (why := self.common.refusal(mine, self.theirs)):
                self.refuse(why)
                return
            header = self.common.codec.encode_hello(mine)
            proofs = self._proofs if self._mine is None else None
            self.connection.send(pack(Kind.HELLO, header, [proofs.prove(header)] if proofs is not None else ()))
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
        """Sends a frame, after a new hello if this broker's identity has changed."""
        self.greet()
        self.connection.send(pack(kind, header, payload, correlation=correlation, timeout_ms=timeout_ms))

    def refuse(self, why: str) -> None:
        """Sends the reason for a rejection to the other end, and closes the connection."""
        self._end_for(PeerRefused(why))

    def turn_away(self, why: str) -> None:
        """Rejects the other end temporarily: it may reconnect."""
        self._end_for(PeerBusy(why))

    def _end_for(self, error: PeerRefused) -> None:
        if not self.is_open:
            return
        self.common.statistics.refusals += 1
        self.common.complain(self.connection.remote, error.message)
        self.error = error
        self.connection.send(pack(Kind.REFUSAL, self.common.codec.encode(Fault.of(self.error))))
        self.close()

    def close(self) -> None:
        """Sends and accepts no more frames; `connection_lost` follows."""
        self.is_open = False
        self.connection.close()

    # -- receiving ---------------------------------------------------------------------------------------------------

    def frame_received(self, frame: memoryview) -> None:
        """Decodes and handles a frame; an invalid frame closes the connection."""
        if not self.is_open:
            return
        try:
            parts = unpack(frame)
            if parts.kind is Kind.HELLO:
                self._take_hello(parts)
            elif parts.kind is Kind.REFUSAL:
                self._refused(self.common.codec.fault(parts.header))
            elif self.theirs is not None:
                self.take(parts)
            elif parts.kind is Kind.CHALLENGE:
                self._take_challenge(parts.header)
            else:
                raise BadFrame(f"the first frame is no hello, but of kind {parts.kind.name}")
        except BadFrame as error:
            self.refuse(str(error))

    # -- proofs ------------------------------------------------------------------------------------------------------

    def challenge(self) -> None:
        """Sends a challenge, which requests a proof from the other end."""
        assert self._proofs is not None
        header = self.common.codec.encode(Challenge.draw(self._node_id, self.common.entropy))
        self._proofs.said(header)
        self.connection.send(pack(Kind.CHALLENGE, header))

    def _take_challenge(self, header: memoryview) -> None:
        challenge = self.common.codec.challenge(header)
        if self._proofs is None:
            self._refuse_unproved(secret_missing(self._node_id, self._role, is_mine=True))
        elif not self._proofs.may_be_challenged:
            raise BadFrame("a challenge comes at the beginning of a connection, and once")
        elif objection := self.stranger(challenge.node_id):
            self.refuse(objection)
        else:
            self._proofs.said(bytes(header))
            self.challenged()

    def _doubt(self, hello: Frame) -> str | None:
        """Returns the reason why a first hello and its proof are invalid; None if they are valid."""
        if self._proofs is None:
            return None
        if not self._proofs.may_be_proved:
            return secret_missing(self._node_id, self._role, is_mine=False)
        is_proved = self._proofs.is_proved(bytes(hello.header), bytes(hello.payload))
        has_channel = self.connection.certificates != NO_CHANNEL
        return None if is_proved else secrets_differ(self._node_id, self._role, has_channel=has_channel)

    def _refuse_unproved(self, reason: str) -> None:
        self.common.statistics.unproved += 1
        self.refuse(reason)

    @property
    def _node_id(self) -> int:
        return self.common.hello().node_id

    # -- hellos ------------------------------------------------------------------------------------------------------

    def _take_hello(self, frame: Frame) -> None:
        theirs = self.common.codec.hello(frame.header)
        if self.theirs is None and (doubt := self._doubt(frame)):
            self._refuse_unproved(doubt)
        else:
            self._hear(theirs)

    def _hear(self, theirs: Hello) -> None:
        common = self.common
        objection = (
            name_refusal(theirs, self.connection.own_name, self.connection.peer_name)
            or common.refusal(common.hello(), theirs)
            or self.objection(theirs)
            or common.incarnations.hear(theirs)
        )
        if objection:
            self.refuse(objection)
            return
        is_first = self.theirs is None
        self.theirs = theirs
        self.level = common.hello().levels.common(theirs.levels) or LEVEL_MIN
        if is_first:
            self.connection.frame_bytes_max = self.common.bounds.frame_bytes_max
            self.greeted()

    def _refused(self, fault: Fault) -> None:
        self.error = fault.to_refusal()
        self.close()

    def objection(self, theirs: Hello) -> str | None:
        """Returns the reason for rejecting a hello, None if there is none: the other end is another node than expected,
        or its node id or process has changed since its last hello. `refusal` has the reasons that come first."""
        if reason := self.stranger(theirs.node_id):
            return reason
        earlier = self.theirs
        if earlier is not None and (earlier.node_id, earlier.incarnation) != (theirs.node_id, theirs.incarnation):
            return f"{earlier.describe()} now says that it is {theirs.describe()}"
        return None

    def stranger(self, node_id: int) -> str | None:
        """Returns the reason for rejecting the node id in the other end's hello, for example if this end has called
        another node; None if it is accepted."""
        return None

    def connection_lost(self, error: Exception | None) -> None:
        """Releases the state of this end after the loss of the connection."""
        self.is_open = False
        self.common.remove(self)
        self.ended(error)

    # -- for the two kinds of ends -----------------------------------------------------------------------------------

    @abstractmethod
    def challenged(self) -> None:
        """Called when the other end has sent a challenge."""

    @abstractmethod
    def greeted(self) -> None:
        """Called when the other end's first hello was accepted."""

    @abstractmethod
    def take(self, frame: Frame) -> None:
        """Handles a frame that is neither hello nor refusal. May raise `BadFrame`."""

    @abstractmethod
    def ended(self, error: Exception | None) -> None:
        """Called once, after the connection is lost."""
