"""A broker among the others: its listener for them, and its connections to them.

Between two brokers that know each other there are two connections per direction, one a lane. Requests go one way on
each and answers come back on the same, in any order; nothing is sent twice by this layer, and nothing is ordered but
the frames of one connection. What it promises about a request is only this: it is executed at most once for each time
that it was sent, by the broker it was meant for, of this cluster, in a life that is not known to be over.

Threading: everything runs on the event loop, and no call but the awaited ones waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from tidelog.model.errors import ShuttingDown
from tidelog.model.levels import NO_ADDITIONS, Additions
from tidelog.model.ports import Buffer, Clock, Entropy, FrameConnection, Network, NetworkListener
from tidelog.transport.peer.answering import AnsweringEnd
from tidelog.transport.peer.bounds import Lane, PeerBounds
from tidelog.transport.peer.calling import CallingEnd
from tidelog.transport.peer.common import CheckAnswer, Common
from tidelog.transport.peer.connector import Dialler
from tidelog.transport.peer.errors import PeerUnreachable
from tidelog.transport.peer.frames import MessageCodec
from tidelog.transport.peer.handler import Answer, PeerHandler
from tidelog.transport.peer.hello import Hello
from tidelog.transport.peer.peer import Peer
from tidelog.transport.peer.proof import ClusterSecret
from tidelog.transport.peer.statistics import PeerStatistics

DEFAULT_BOUNDS = PeerBounds()


def _any_answer(_answerer: Hello, _asked: msgspec.Struct, _answer: Answer) -> None:
    """Believes every answer that can be read."""


class PeerNode:
    """A broker's connections with the others. To be made on a running loop; `close` ends all it started."""

    def __init__(
        self,
        network: Network,
        hello: Callable[[], Hello],
        message_types: Sequence[type[msgspec.Struct]],
        handler: PeerHandler,
        clock: Clock,
        entropy: Entropy,
        *,
        additions: Additions = NO_ADDITIONS,
        bounds: PeerBounds = DEFAULT_BOUNDS,
        secret: ClusterSecret | None = None,
        check_answer: CheckAnswer = _any_answer,
    ) -> None:
        """`hello` says who this broker is, now: it gives the same object until something changes.

        `message_types` are all messages that brokers exchange, the same in each of them; `additions` says since which
        feature level each is one. With a `secret` only those who know it are talked to. `check_answer` judges what
        peers answer.
        """
        self.statistics = PeerStatistics()
        self.on_peer_down: list[Callable[[int], None]] = []
        """Called with the id of a node whose process is gone: its connections died, its machine refuses new ones."""
        self.on_peer_silent: list[Callable[[int], None]] = []
        """Called with the id of a node that owes answers and does not say that it is there; again while it does not."""
        self._network = network
        self._handler = handler
        self._entropy = entropy
        self._bounds = bounds
        codec = MessageCodec(message_types, additions)
        self._common = Common(hello, codec, bounds, clock, entropy, self.statistics, secret, check_answer)
        self.on_complaint = self._common.on_complaint
        """Called with the address of whoever is refused a connection, and why, each time."""
        self.on_refused = self._common.on_refused
        """Called with the hello of a broker that this one may not talk to, each time that it says it."""
        self._dialler = Dialler(network, self._common, self.statistics)
        self._peers: dict[int, Peer] = {}
        self._stopped: list[Peer] = []
        self._listener: NetworkListener | None = None
        self._is_closed = False

    # -- listening ---------------------------------------------------------------------------------------------------

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Takes connections of others from now on. Returns the address, with the port as chosen if it was 0.

        Raises `OSError` if the address cannot be had.
        """
        assert self._listener is None and not self._is_closed
        self._listener = await self._network.listen(host, port, self._accept)
        return self._listener.address

    def _accept(self, connection: FrameConnection) -> AnsweringEnd:
        end = AnsweringEnd(connection, self._common, self.statistics, self._handler, self._heard)
        if self._is_closed:
            end.turn_away("this broker is stopping")
        elif sum(isinstance(line, AnsweringEnd) for line in self._common.lines) > self._bounds.connections_max:
            end.turn_away(f"this broker has {self._bounds.connections_max} peer connections already")
        else:
            self._make_room(
                [stranger for stranger in self._answering() if stranger.theirs is None], "have not said hello"
            )
        return end

    def _answering(self) -> list[AnsweringEnd]:
        """Returns the open connections that others have opened, the oldest first."""
        return [line for line in self._common.lines if isinstance(line, AnsweringEnd) and line.is_open]

    def _make_room(self, strangers: Sequence[AnsweringEnd], problem: str) -> None:
        """Refuses the oldest of too many strangers that asks nothing: known brokers' places are kept for them."""
        if len(strangers) > self._bounds.strangers_max:
            idle = next((end for end in strangers[:-1] if not end.tasks), strangers[-1])
            idle.turn_away(f"more than {self._bounds.strangers_max} connections to this broker {problem}")

    def _heard(self, caller: Hello) -> None:
        """Notes that a node has called: a known one can be called back at once, an unknown one may not take a known
        one's place."""
        if (peer := self._peers.get(caller.node_id)) is not None:
            peer.hurry()
            return
        greeted = [end for end in self._answering() if end.theirs is not None]
        strangers = [end for end in greeted if end.theirs is not None and end.theirs.node_id not in self._peers]
        self._make_room(strangers, "are of nodes that it does not know")

    # -- whom to talk to ---------------------------------------------------------------------------------------------

    def know(self, node_id: int, host: str, port: int) -> None:
        """Keeps connections to this node from now on; another address than before replaces them."""
        assert not self._is_closed and node_id != self._common.hello().node_id
        present = self._peers.get(node_id)
        if present is not None and present.address == (host, port):
            return
        self.forget(node_id)
        self._peers[node_id] = Peer(
            self._dialler, self._common, self._entropy, node_id, (host, port), self._tell_down, self._tell_silent
        )

    def forget(self, node_id: int) -> None:
        """Ends the connections to this node, if there are any, and dials it no more."""
        if (peer := self._peers.pop(node_id, None)) is not None:
            self._stop(peer)

    def _stop(self, peer: Peer) -> None:
        peer.stop()
        self._stopped = [stopped for stopped in self._stopped if not all(task.done() for task in stopped.tasks)]
        self._stopped.append(peer)

    def accept_only(self, node_id: int, incarnation: str, broker_epoch: int = -1) -> None:
        """Notes which life of a node the metadata has as registered: earlier ones are neither listened nor talked
        to."""
        self._common.incarnations.accept_only(node_id, incarnation, broker_epoch)
        self._common.refuse_stale()

    def hello_of(self, node_id: int) -> Hello | None:
        """Returns the newest hello of a node on a connection that this broker opened; None while there is none."""
        peer = self._peers.get(node_id)
        for lane in peer.lanes.values() if peer else ():
            if lane.end is not None:
                return lane.end.theirs
        return None

    @property
    def silent(self) -> list[int]:
        """The nodes that owe this broker answers, and do not say that they are there."""
        return [node_id for node_id, peer in self._peers.items() if peer.presence.is_silent]

    @property
    def known(self) -> list[int]:
        """The nodes that this broker keeps connections to, or tries to."""
        return list(self._peers)

    @property
    def connected(self) -> list[int]:
        """Returns the nodes of these that it has a connection to now."""
        return [node for node, peer in self._peers.items() if any(lane.end for lane in peer.lanes.values())]

    def _tell_down(self, node_id: int) -> None:
        for callback in list(self.on_peer_down) if node_id in self._peers else ():
            callback(node_id)

    def _tell_silent(self, node_id: int) -> None:
        for callback in self.on_peer_silent:
            callback(node_id)

    # -- talking -----------------------------------------------------------------------------------------------------

    async def request(
        self,
        node_id: int,
        message: msgspec.Struct,
        payload: Sequence[Buffer] = (),
        *,
        deadline_s: float,
        lane: Lane = Lane.CONTROL,
    ) -> Answer:
        """Sends a request and waits for the answer, `deadline_s` seconds at most.

        Raises the `TidelogError` that the peer answered with. Raises, surely without effect: `PeerUnreachable` (no
        connection; an attempt under way is waited for), `Overloaded` (a bound of this connection), `TooLarge`,
        `UnsupportedLevel` (the peer is of a version that has no such message). Raises, with an effect or not:
        `PeerLost`, `TimeoutError`.
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + deadline_s
        peer = self._peer(node_id)
        connector = peer.lanes[lane]
        end = connector.end or await connector.wait_connected(until_s)
        return await end.request(message, payload, until_s - loop.time(), peer.presence)

    async def request_at(
        self, host: str, port: int, message: msgspec.Struct, payload: Sequence[Buffer] = (), *, deadline_s: float
    ) -> Answer:
        """Sends a request to whoever is at an address, over a connection of its own: to found a cluster, or to join
        one.

        Raises what `request` raises; `PeerRefused`, which is a `PeerUnreachable`, if one of the two will not talk to
        the other, for being of another cluster, for example.
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + deadline_s
        end = await self.connect(host, port, deadline_s=deadline_s)
        try:
            return await end.request(message, payload, until_s - loop.time())
        finally:
            end.close()

    async def connect(self, host: str, port: int, *, deadline_s: float) -> CallingEnd:
        """Opens a connection of its own to whoever is at an address, for as long as the caller wants it: to be closed.

        Raises `PeerUnreachable`.
        """
        if self._is_closed:
            raise ShuttingDown("this broker is stopping")
        try:
            return await self._dialler.dial(host, port, None, deadline_s)
        except TimeoutError:
            raise PeerUnreachable(f"the broker at {host}:{port} does not answer") from None
        except OSError as error:
            raise PeerUnreachable(f"the broker at {host}:{port} cannot be reached: {error}") from error

    def notify(
        self, node_id: int, message: msgspec.Struct, payload: Sequence[Buffer] = (), *, lane: Lane = Lane.CONTROL
    ) -> bool:
        """Sends a message that nobody answers. Returns False if it is dropped: no connection now, or too much waits for
        it.

        True promises nothing about its arrival.
        """
        peer = self._peers.get(node_id)
        end = peer.lanes[lane].end if peer is not None else None
        if end is None:
            self.statistics.notifications_dropped += 1
            return False
        return end.notify(message, payload)

    def _peer(self, node_id: int) -> Peer:
        if self._is_closed:
            raise ShuttingDown("this broker is stopping")
        peer = self._peers.get(node_id)
        if peer is None:
            raise PeerUnreachable(f"the address of node {node_id} is not known to this broker")
        return peer

    # -- the end -----------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Ends listener, connections and tasks; requests under way are lost. Idempotent.

        Raises `TimeoutError` if a handler goes on for `close_s_max` after it was cancelled.
        """
        self._is_closed = True
        if self._listener is not None:
            await self._listener.close()
        for node_id in list(self._peers):
            self.forget(node_id)
        tasks = [task for peer in self._stopped for task in peer.tasks]
        for line in list(self._common.lines):
            if isinstance(line, AnsweringEnd):
                tasks += line.tasks
            line.close()
        async with asyncio.timeout(self._bounds.close_s_max):
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._common.wait_no_lines()
