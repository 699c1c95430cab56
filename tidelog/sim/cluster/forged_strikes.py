"""Forged messages on the brokers' network: from a broker with a bug, or from a process that is no broker.

While such a fault lasts, passing messages are copied and changed (`forging`), and the copy arrives a little later.
Those "by members" come on connections of registered brokers: the sender's own, with another sender, another epoch or
an impossible number in them; or another broker's connection, unchanged. Those "by strangers" come from a machine of
their own, which says hello as an unknown node, or as one of the brokers with an incarnation and a broker epoch that the
metadata do not give it; all messages but those with which a broker bootstraps, joins or votes.

Answers are changed on their way: a number that no field holds, another kind of answer, a byte count that does not
match, the description of another broker. The requester must treat that as no answer.

None of it may have any effect: all rules of the run hold as without.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
from msgspec import structs

from tidelog.model.cluster import NO_LEADER, PartitionInfo
from tidelog.model.ports import FrameConnection
from tidelog.sim.cluster import forging
from tidelog.sim.cluster.scenario import Effects, Strike
from tidelog.sim.cluster.traffic import DATA
from tidelog.sim.cluster.world import PEER_PORT, World, address_of
from tidelog.sim.kit.machine import Machine
from tidelog.sim.kit.network_pipe import SimConnection
from tidelog.sim.kit.tasks import cancel_all
from tidelog.transport.peer import Hello
from tidelog.transport.peer.frames import Frame, Kind, pack

FOLLOWER = "forged follower"
"""Name of the fault that forges a follower's reports; only for topics with in-sync replicas."""
MESSAGES = ("forged by members", "forged by strangers", FOLLOWER)
ANSWERS = "forged answers"
KINDS = (*MESSAGES, ANSWERS)
CALM_S_MAX = 10.0
"""Seconds that the replicas may need to be in sync before a follower's reports are forged."""
LOOK_S = 0.01
BALLOT = "a huge ballot"
LATER_S = 0.01
"""Mean seconds between a message and its forged copy."""
FORGED_MAX = 3_000
STRANGER = "10.0.0.99"
UNKNOWN_NODE = 99
EPOCHS = (2**40, 2**62, 1, -1)
CONNECT_S = 1.0


class ForgedStrikes:
    """Carries out the faults that forge messages."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._forged = 0
        self._answers: dict[str, forging.Message] = {}
        """Last answer seen, by message type."""

    def effects(self) -> Effects:
        """Returns the functions that carry out the faults of this class, by the fault's name."""
        return {
            "forged by members": self._by_members,
            "forged by strangers": self._by_strangers,
            FOLLOWER: self._for_a_follower,
            ANSWERS: self._as_answers,
        }

    # -- members -----------------------------------------------------------------------------------------------------

    async def _by_members(self, strike: Strike, rng: random.Random) -> None:
        rate = 0.02 + 0.2 * strike.amount

        def overhear(end: SimConnection, frame: bytes) -> None:
            if rng.random() < rate:
                self._forge(end, frame, rng)

        with self._overheard(overhear):
            await asyncio.sleep(strike.lasts_s)

    def _forge(self, end: SimConnection, frame: bytes, rng: random.Random) -> None:
        read = forging.read(frame)
        caller = self._node_at(end)
        if read is None or caller is None:
            return
        parts, message = read
        if message["type"] not in forging.NAMES_NODE and message["type"] not in forging.NAMES_ENGINE:
            return
        image = self._world.truth.image
        how = rng.choice(("another sender", "another epoch", "an impossible number", "another's connection", BALLOT))
        forged: forging.Message | None = message
        if how == "another sender":
            forged = forging.of_another(message, caller, image, rng)
        elif how == "another epoch":
            forged = forging.of_another_epoch(message, caller, image, rng)
        elif how == "an impossible number":
            forged = forging.with_impossible_number(message, rng)
        elif how == BALLOT:
            forged = forging.as_ballot(message, rng)
        ends = [
            connection
            for connection in end.host.connections
            if connection.is_accepted and connection.is_open and connection.received
        ]
        if how == "another's connection":
            ends = [connection for connection in ends if self._node_at(connection) not in (caller, None)]
        else:
            ends = [connection for connection in ends if self._node_at(connection) == caller]
        if forged is not None and ends and self._count(how):
            is_made = how == BALLOT
            data = forging.notification(parts, forged) if is_made else forging.written(parts, forged, self._forged)
            self._later(rng, self._take, rng.choice(ends), data)

    def _node_at(self, end: SimConnection) -> int | None:
        """Returns the node at the other end of an accepted connection; None if this end opened it, or no broker is
        there."""
        if not end.is_accepted or end.far_end is None:
            return None
        address = end.far_end.host.address
        return next((node for node in self._world.swarm.nodes if address_of(node) == address), None)

    def _take(self, end: SimConnection, data: bytes) -> None:
        if end.is_open and end.host.is_alive and not end.host.is_paused:
            end.take(bytearray(data))

    async def _for_a_follower(self, strike: Strike, rng: random.Random) -> None:
        """Cuts a follower off from its leader's data while forged reports say, in its name, that it has everything.
        Then the leader dies, and the follower may be elected: it must not lack committed records."""
        info = await self._until_calm()
        if info is None:
            self._world.truth.saw("fault withheld")
            return
        leader = int(info.leader)
        behind = next(int(node) for node in info.replicas if node != leader)

        def overhear(end: SimConnection, frame: bytes) -> None:
            read = forging.read(frame) if end.host.address == address_of(leader) else None
            if read is None or self._node_at(end) in (None, behind):
                return
            parts, message = read
            forged = forging.as_reports_of(message, behind, self._world.truth.image)
            if forged is not None and self._count("reports of a follower"):
                self._later(rng, self._take, end, forging.notification(parts, forged))

        link = self._world.link(leader, behind)
        with self._overheard(overhear):
            link.clog()
            await asyncio.sleep(strike.lasts_s)
            async with self._world.keepers[leader].down(Machine.cut_power):
                link.unclog()
                await asyncio.sleep(strike.lasts_s)

    async def _until_calm(self) -> PartitionInfo | None:
        """Waits for a led partition with in-sync replicas whose replicas are all in sync, and returns it; None if there
        is none in time."""
        deadline_s = self._world.true_time + CALM_S_MAX
        while self._world.true_time < deadline_s:
            await asyncio.sleep(LOOK_S)
            for topic in self._world.truth.image.topics.values():
                for info in topic.partitions:
                    is_led = info.leader != NO_LEADER and topic.name.startswith(DATA)
                    if is_led and not info.members and len(info.isr) == len(info.replicas) > 1:
                        return info
        return None

    # -- answers -----------------------------------------------------------------------------------------------------

    async def _as_answers(self, strike: Strike, rng: random.Random) -> None:
        """Replaces some of the answers on the network by changed ones while the fault lasts."""
        rate = 0.03 + 0.2 * strike.amount

        def overhear(end: SimConnection, frame: bytes) -> None:
            read = None if end.is_accepted else forging.read_answer(frame)
            if read is None:
                return
            parts, message = read
            self._answers[message["type"]] = message
            if rng.random() < rate:
                self._answer(end, parts, message, rng)

        with self._overheard(overhear):
            await asyncio.sleep(strike.lasts_s)

    def _answer(self, end: SimConnection, parts: Frame, message: forging.Message, rng: random.Random) -> None:
        how = rng.choice(("an unheard number", "another kind", "untold bytes", "another broker"))
        forged: forging.Message | None = message
        payload = parts.payload
        if how == "an unheard number":
            forged = forging.with_unheard_number(message, rng)
        elif how == "another kind":
            others = [answer for answer in self._answers.values() if forging.answers_another(message, answer)]
            forged = rng.choice(others) if others else None
        elif how == "untold bytes":
            payload = payload[:-1]
            forged = message if message["type"] in forging.COUNTED and len(parts.payload) else None
        else:
            is_described = message["type"] == "QuorumDescribed"
            forged = {**message, "node_id": message["node_id"] + 1} if is_described else None
        if forged is not None and self._count(f"{how} in an answer"):
            self._take(end, forging.rewritten(parts, forged, payload))

    # -- strangers ---------------------------------------------------------------------------------------------------

    async def _by_strangers(self, strike: Strike, rng: random.Random) -> None:
        rate = 0.02 + 0.2 * strike.amount
        claimed = strike.nodes[0]
        strangers = [
            Stranger(self._world, UNKNOWN_NODE, "unknown", rng.choice(EPOCHS)),
            Stranger(self._world, claimed, "claimant", rng.choice(EPOCHS)),
        ]

        def overhear(end: SimConnection, frame: bytes) -> None:
            if rng.random() < rate and end.is_accepted and end.far_end is not None:
                self._repeat(rng.choice(strangers), end, frame, rng)

        with self._overheard(overhear):
            calls = [asyncio.ensure_future(stranger.call_all()) for stranger in strangers]
            await asyncio.sleep(strike.lasts_s)
            await cancel_all(calls)
        for stranger in strangers:
            stranger.close()

    def _repeat(self, stranger: Stranger, end: SimConnection, frame: bytes, rng: random.Random) -> None:
        read = forging.read(frame)
        connection = stranger.connections.get(end.host.address)
        if read is None or connection is None:
            return
        parts, message = read
        if message["type"] in forging.OF_NEWCOMERS:
            return
        if stranger.node != UNKNOWN_NODE and message["type"] in forging.OF_VOTERS:
            return
        how = rng.choice(("as it is", "an impossible number"))
        forged = forging.with_impossible_number(message, rng) if how == "an impossible number" else message
        if forged is not None and self._count(f"{how}, by a stranger"):
            data = forging.written(parts, forged, self._forged)
            self._later(rng, connection.send, [data])

    # -- both --------------------------------------------------------------------------------------------------------

    @contextmanager
    def _overheard(self, overhear: Callable[[SimConnection, bytes], None]) -> Iterator[None]:
        overhearers = self._world.network.overhearers
        overhearers.append(overhear)
        try:
            yield
        finally:
            overhearers.remove(overhear)

    def _count(self, how: str) -> bool:
        if self._forged >= FORGED_MAX:
            return False
        self._forged += 1
        self._world.truth.saw(f"forged: {how}")
        return True

    def _later(self, rng: random.Random, act: Callable[..., object], *given: object) -> None:
        asyncio.get_running_loop().call_later(rng.expovariate(1 / LATER_S), act, *given)


class Stranger:
    """A machine outside the cluster that connects to all brokers and says hello under a false identity."""

    def __init__(self, world: World, node: int, incarnation: str, epoch: int) -> None:
        self.node = node
        self.connections: dict[str, FrameConnection] = {}
        self._world = world
        self._incarnation = incarnation
        self._epoch = epoch

    async def call_all(self) -> None:
        """Connects to all running brokers, except the one whose identity it claims, and reconnects when a connection is
        lost."""
        while True:
            for node, machine in list(self._world.running()):
                hello = self._hello()
                if machine.name not in self.connections and node != self.node and hello is not None:
                    await self._call(machine.name, hello)
            await asyncio.sleep(LATER_S)

    async def _call(self, address: str, hello: Hello) -> None:
        host, line = self._world.network.host(STRANGER), _Line(self, address)
        try:
            connection = await host.connect(address, PEER_PORT, lambda _: line, timeout_s=CONNECT_S)
        except OSError:
            return
        self.connections[address] = connection
        connection.send(pack(Kind.HELLO, msgspec.msgpack.encode(hello)))

    def _hello(self) -> Hello | None:
        """Returns the hello message of a broker in the cluster, with the false identity in it; None if no broker has
        joined a cluster yet."""
        brokers = [machine.broker for _, machine in self._world.running() if machine.broker is not None]
        for broker in brokers:
            hello = broker._introduction.hello
            if hello.cluster_id:
                return structs.replace(
                    hello, node_id=self.node, incarnation=self._incarnation, broker_epoch=self._epoch
                )
        return None

    def close(self) -> None:
        """Closes all connections."""
        for connection in self.connections.values():
            connection.close()
        self.connections.clear()


class _Line:
    """Receiver of a stranger's connection, which drops every frame."""

    def __init__(self, stranger: Stranger, address: str) -> None:
        self._stranger = stranger
        self._address = address

    def frame_received(self, frame: memoryview) -> None:
        """Ignores what a broker sends."""

    def connection_lost(self, error: Exception | None) -> None:
        self._stranger.connections.pop(self._address, None)
