"""`PeerNode`: a broker's listener for other brokers, and its connections to them.

Each broker opens some connections to each broker that it knows, one per lane. Requests go one way on a connection and
responses return on it, in any order. This layer never resends a request and orders nothing but the frames of one
connection. It guarantees that a request is executed at most once per sending, by the addressed broker of this cluster,
in a process that is not known to be replaced.

Threading: everything runs on the event loop, and only coroutines wait.
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

DEFAULT_BOUNDS = PeerBounds()


def _any_answer(_answerer: Hello, _query: msgspec.Struct, _answer: Answer) -> None:
    """Accepts every response that can be decoded."""


class PeerNode:
    """The connections of a broker with other brokers. Made on a running event loop; `close` ends all its tasks."""

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
        """`hello` returns this broker's present identity, as the same object until something changes.

        `message_types` are the messages that brokers exchange, the same in all brokers; `additions` lists the feature
        level that introduced each. With a `secret`, brokers without it are rejected. `check_answer` checks the
        responses of peers.
        """
        self.on_peer_down: list[Callable[[int], None]] = []
        """Listeners, called with the id of a node whose process is gone: its connections are lost and its host refuses
        new ones."""
        self.on_peer_silent: list[Callable[[int], None]] = []
        """Listeners, called with the id of a node that neither sends overdue responses nor answers pings; called again
        while this lasts."""
        self._network = network
        self._handler = handler
        self._bounds = bounds
        codec = MessageCodec(message_types, additions)
        self._common = Common(hello, codec, bounds, clock, entropy, secret, check_answer)
        self.statistics = self._common.statistics
        self.statistics.notified |= dict.fromkeys(range(Lane.DATA + bounds.data_lanes), 0)
        self.on_complaint = self._common.on_complaint
        """Listeners, called with the remote address and the reason each time that a connection is rejected."""
        self.on_refused = self._common.on_refused
        """Listeners, called with each hello of a broker that is rejected."""
        self._dialler = Dialler(network, self._common)
        self._peers: dict[int, Peer] = {}
        self._stopped: list[Peer] = []
        self._listener: NetworkListener | None = None
        self._is_closed = False

    # -- listening ---------------------------------------------------------------------------------------------------

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Starts to accept connections. Returns the address, with the actual port if `port` is 0.

        Raises `OSError` if the address cannot be bound.
        """
        assert self._listener is None and not self._is_closed
        self._listener = await self._network.listen(host, port, self._accept)
        return self._listener.address

    def _accept(self, connection: FrameConnection) -> AnsweringEnd:
        end = AnsweringEnd(connection, self._common, self._handler, self._heard)
        if self._is_closed:
            end.turn_away("this broker is stopping")
        elif sum(isinstance(line, AnsweringEnd) for line in self._common.lines) > self._bounds.accepted_max:
            end.turn_away(f"this broker has {self._bounds.accepted_max} peer connections already")
        else:
            self._make_room(
                [stranger for stranger in self._answering() if stranger.theirs is None], "have not said hello"
            )
        return end

    def _answering(self) -> list[AnsweringEnd]:
        """Returns the open accepted connections, oldest first."""
        return [line for line in self._common.lines if isinstance(line, AnsweringEnd) and line.is_open]

    def _make_room(self, strangers: Sequence[AnsweringEnd], problem: str) -> None:
        """If `strangers` are more than `strangers_max` connections, closes the oldest one without requests, so that
        known brokers can connect. `problem` says in the log and to the other end what is wrong with these
        connections."""
        if len(strangers) > self._bounds.strangers_max:
            idle = next((end for end in strangers[:-1] if not end.tasks), strangers[-1])
            idle.turn_away(f"more than {self._bounds.strangers_max} connections to this broker {problem}")

    def _heard(self, caller: Hello) -> None:
        """Handles the hello of a caller: reconnects to a known node at once; bounds the connections of unknown
        nodes."""
        if (peer := self._peers.get(caller.node_id)) is not None:
            peer.hurry()
            return
        greeted = [end for end in self._answering() if end.theirs is not None]
        strangers = [end for end in greeted if end.theirs is not None and end.theirs.node_id not in self._peers]
        self._make_room(strangers, "are of nodes that it does not know")

    # -- whom to talk to ---------------------------------------------------------------------------------------------

    def know(self, node_id: int, host: str, port: int) -> None:
        """Keeps connections to this node open from now on; a new address replaces the former one."""
        assert not self._is_closed and node_id != self._common.hello().node_id
        present = self._peers.get(node_id)
        if present is not None and present.address == (host, port):
            return
        self.forget(node_id)
        self._peers[node_id] = Peer(
            self._dialler, self._common, node_id, (host, port), self._tell_down, self._tell_silent
        )

    def forget(self, node_id: int) -> None:
        """Closes the connections to this node, and does not reconnect."""
        if (peer := self._peers.pop(node_id, None)) is not None:
            self._stop(peer)

    def _stop(self, peer: Peer) -> None:
        peer.stop()
        self._stopped = [stopped for stopped in self._stopped if not all(task.done() for task in stopped.tasks)]
        self._stopped.append(peer)

    def accept_only(self, node_id: int, incarnation: str, broker_epoch: int = -1) -> None:
        """Stores the latest registered process of a node; earlier processes of it are rejected in both directions."""
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
        """The ids of the nodes whose responses are overdue and that do not answer pings either."""
        return [node_id for node_id, peer in self._peers.items() if peer.presence.is_silent]

    @property
    def node_ids(self) -> list[int]:
        """The ids of the nodes that this broker keeps connections to."""
        return list(self._peers)

    @property
    def connected(self) -> list[int]:
        """Returns the ids of the nodes that this broker has an open connection to."""
        return [node_id for node_id, peer in self._peers.items() if peer.is_connected]

    @property
    def down(self) -> dict[int, float]:
        """The nodes whose processes are gone (`on_peer_down`), with the seconds since that was found."""
        return {node_id: peer.down_s for node_id, peer in self._peers.items() if peer.down_s is not None}

    @property
    def in_doubt(self) -> list[int]:
        """The ids of the nodes whose connections are all lost, where the first attempt to reconnect is under way: their
        processes may be gone."""
        return [node_id for node_id, peer in self._peers.items() if peer.is_in_doubt]

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
        lane: int = Lane.CONTROL,
    ) -> Answer:
        """Sends a request and waits for the response, for at most `deadline_s` seconds.

        Raises the `TidelogError` with which the peer responded. Raises, certainly without effect: `PeerUnreachable` (no
        connection; an attempt in progress is awaited), `Overloaded` (a bound of this connection), `TooLarge`,
        `UnsupportedLevel` (the peer's version lacks this message). Raises, with unknown outcome: `PeerLost`,
        `TimeoutError`.
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
        """Sends a request to an address, over a connection of its own. Used for founding or joining a cluster.

        Raises `PeerRefused`, a `PeerUnreachable`, if one of the brokers rejects the other, for example as of another
        cluster. Also raises `PeerUnreachable`, `Overloaded` or `TooLarge`, certainly without effect; `UnsupportedLevel`
        if the peer's version lacks this message; `PeerLost` or `TimeoutError` with an unknown outcome; or the
        `TidelogError` with which the peer responded.
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + deadline_s
        end = await self.connect(host, port, deadline_s=deadline_s)
        try:
            return await end.request(message, payload, until_s - loop.time())
        finally:
            end.close()

    async def connect(self, host: str, port: int, *, deadline_s: float) -> CallingEnd:
        """Opens a separate connection to an address; the caller closes it.

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
        self, node_id: int, message: msgspec.Struct, payload: Sequence[Buffer] = (), *, lane: int = Lane.CONTROL
    ) -> bool:
        """Sends a message without a response. Returns False if it is dropped: no connection, or too many bytes wait to
        be sent.

        True does not mean that it arrives.
        """
        peer = self._peers.get(node_id)
        end = peer.lanes[lane].end if peer is not None else None
        if end is None:
            self.statistics.notifications_dropped += 1
            return False
        is_sent = end.notify(message, payload)
        self.statistics.notified[lane] += is_sent
        return is_sent

    def data_lanes(self, node_id: int) -> list[int]:
        """Returns the lanes for batches whose connection to this node is open."""
        lanes = self._peers[node_id].lanes.items() if node_id in self._peers else ()
        return [lane for lane, connector in lanes if lane >= Lane.DATA and connector.end is not None]

    def _peer(self, node_id: int) -> Peer:
        if self._is_closed:
            raise ShuttingDown("this broker is stopping")
        peer = self._peers.get(node_id)
        if peer is None:
            raise PeerUnreachable(f"the address of node {node_id} is not known to this broker")
        return peer

    # -- the end -----------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Closes listener, connections and tasks; requests in flight are lost. Idempotent.

        Raises `TimeoutError` if a handler runs on for `close_s_max` seconds after its cancellation.
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
