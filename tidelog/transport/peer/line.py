"""An end of a connection between two brokers: the parts that calling and answering ends have in common.

Both greet. The caller's `Hello` is the first frame of a connection, the callee's the second, and nothing else is taken
before them. What a broker says of itself changes: it learns the id of its cluster, it is registered. So each end says
hello again before the next frame that it sends after such a change, and the other end judges it again. A connection
that was opened while one side knew no cluster thereby ends when the two turn out to belong to different ones.

With a secret of the cluster both challenge each other before they greet, and the first hello of each comes with a proof
(`proof.py`). A hello without the right proof changes nothing: nobody judges it or remembers it.
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
    """An end of a connection, a `FrameReceiver`. Ends by itself on bad frames; `error` then says why."""

    def __init__(self, connection: FrameConnection, common: Common, role: Role) -> None:
        self.connection = connection
        self.common = common
        self._role = role
        self._proofs = Proofs(common.secret, role, connection.certificates) if common.secret is not None else None
        self.theirs: Hello | None = None
        """The newest hello of the other end; None before its first."""
        self.level = LEVEL_MIN
        """The highest feature level that both ends speak; what is sent here is encoded at it."""
        self.error: PeerRefused | None = None
        """The error with which this end or the other has ended the connection."""
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
        """Sends a frame, behind a new hello if there is news."""
        self.greet()
        self.connection.send(pack(kind, header, payload, correlation=correlation, timeout_ms=timeout_ms))

    def refuse(self, why: str) -> None:
        """Refuses the other end, tells it why, and closes."""
        self._end_for(PeerRefused(why))

    def turn_away(self, why: str) -> None:
        """Refuses the other end for now: it may come again."""
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
        """Asks the other end for a proof."""
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
        """Returns why a first hello is not believed; None if it is."""
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
        """Returns what else is wrong with a hello, or None."""
        if reason := self.stranger(theirs.node_id):
            return reason
        earlier = self.theirs
        if earlier is not None and (earlier.node_id, earlier.incarnation) != (theirs.node_id, theirs.incarnation):
            return f"{earlier.describe()} now says that it is {theirs.describe()}"
        return None

    def stranger(self, node_id: int) -> str | None:
        """Returns why the other end should not be this node; None if it may."""
        return None

    def connection_lost(self, error: Exception | None) -> None:
        """Ends this end, since the connection is gone."""
        self.is_open = False
        self.common.remove(self)
        self.ended(error)

    # -- for the two kinds of ends -----------------------------------------------------------------------------------

    @abstractmethod
    def challenged(self) -> None:
        """Is called when the other end wants a proof."""
        ...

    @abstractmethod
    def greeted(self) -> None:
        """Is called when the other end's first hello was fine."""
        ...

    @abstractmethod
    def take(self, frame: Frame) -> None:
        """Takes a frame that is neither hello nor refusal. May raise `BadFrame`."""
        ...

    @abstractmethod
    def ended(self, error: Exception | None) -> None:
        """Is called once, when nothing will come any more."""
        ...
