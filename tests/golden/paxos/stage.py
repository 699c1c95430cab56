"""A stage for Paxos nodes: nothing moves unless it is told to.

Messages wait on their links and writes on their disks, in order, until a scene delivers, drops or completes them. Every
node's payloads are its own; a crash takes what is not stored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from msgspec import structs

from tidelog.replication.paxos.events import (
    Append,
    Applied,
    Demote,
    Effect,
    Elect,
    Enlist,
    Event,
    Found,
    Persist,
    Received,
    Reconfigure,
    Rejoin,
    Send,
    SetTimer,
    Started,
    Stored,
    StoreFailed,
    Timer,
    TimerFired,
    Truncate,
    VotersFound,
)
from tidelog.replication.paxos.messages import Message
from tidelog.replication.paxos.node import PaxosNode
from tidelog.replication.paxos.state import UNKNOWN, Kind, Slot, Status, Value
from tidelog.replication.quorum import Joint, Majority, Quorum
from tidelog.sim.kit.seeds import stream
from tidelog.sim.paxos.describe import effect_text, event_text
from tidelog.sim.paxos.log_disk import LogDisk

QUIET = (Send, Persist, SetTimer)
"""Effects that are no news."""


class Stage:
    """Nodes 1 to `count`, and `learners` that do not vote; `lines` is the transcript."""

    def __init__(self, count: int = 3, *, window: int = 4, is_founded: bool = True, learners: int = 0) -> None:
        self.quorum = Majority(range(1, count + 1))
        self.window = window
        self.disks = {node: LogDisk(node) for node in range(1, count + learners + 1)}
        self.nodes: dict[int, PaxosNode] = {}
        self.links: dict[tuple[int, int], deque[Message]] = {}
        self.slow: set[int] = set()
        """Nodes whose writes wait for `store`."""
        self.timers: dict[tuple[int, Timer], int] = {}
        self.lines: list[str] = []
        self.effects: list[tuple[int, Effect]] = []
        founders = tuple((node, self.disks[node].metadata.incarnation) for node in self.quorum.members)
        for node, disk in self.disks.items():
            if is_founded and node in self.quorum:
                disk.initialise(founders)
            self.start(node)

    # -- lives -------------------------------------------------------------------------------------------------------

    def start(self, node: int) -> list[Effect]:
        self.nodes[node] = PaxosNode(node, self.quorum, self.disks[node].load(), window=self.window)
        return self.do(node, Started())

    def crash(self, node: int) -> None:
        """Takes a node down with all that it had not stored; messages under way are not its own any more."""
        del self.nodes[node]
        list(self.disks[node].crash(stream("stage"), "none"))

    def wipe(self, node: int) -> None:
        self.crash(node)
        self.disks[node].wipe()

    def lose_name(self, node: int, position: int) -> None:
        """A disk that is not in use loses a slot's value with its name."""
        slot = self.disks[node].slots[position]
        self.disks[node].slots[position] = Slot(position, slot.number, UNKNOWN, faulty=True)

    def damage(self, node: int, position: int) -> None:
        """A payload on a disk that is not in use rots."""
        slot = self.disks[node].slots[position]
        self.disks[node].slots[position] = structs.replace(slot, faulty=True)

    # -- events ------------------------------------------------------------------------------------------------------

    def do(self, node: int, event: Event) -> list[Effect]:
        """Tells a node something, and carries out what it answers."""
        effects = self.nodes[node].step(event)
        self.lines.append(f"{node} {event_text(event)}")
        for effect in effects:
            self.lines.append(f"    {effect_text(effect)}")
            self.effects.append((node, effect))
            self._carry_out(node, effect)
        if node not in self.slow:
            self.store(node, effects)
        return effects

    def _carry_out(self, node: int, effect: Effect) -> None:
        match effect:
            case Send(to, message):
                self.links.setdefault((node, to), deque()).append(message)
            case Persist():
                self.disks[node].write(effect)
            case SetTimer(timer, token):
                self.timers[node, timer] = token
            case _:
                pass

    def store(self, node: int, effects: Iterable[Effect] = ()) -> None:
        """Completes a node's writes: these, or all that wait."""
        waiting = [e for e in effects if isinstance(e, Persist)] or list(self.disks[node].pending)
        urgent = [e.sequence for e in waiting if e.is_urgent]
        if urgent:
            list(self.disks[node].sync(urgent[-1]))
            self.do(node, Stored(urgent[-1]))

    def elect(self, node: int, number: int | None = None) -> list[Effect]:
        return self.do(node, Elect(self.nodes[node].next_number() if number is None else number))

    def append(self, node: int, digest: str, count: int = 1) -> list[Effect]:
        return self.do(node, Append(count, digest.encode()))

    def append_voters(self, node: int, ids: str) -> list[Effect]:
        return self.do(node, Append(0, ids.encode(), Kind.VOTERS))

    def reconfigure(self, node: int, *groups: str, position: int = -1, settling: int | None = None) -> list[Effect]:
        """Groups of ids, as "1,2,3"; what is settled is an open slot of anybody's."""
        quorums = [Majority(map(int, group.split(","))) for group in groups]
        quorum: Quorum = quorums[0] if len(quorums) == 1 else Joint(quorums)
        open_slots = [n.replica.slots[settling] for n in self.nodes.values() if settling in n.replica.slots]
        found = tuple(VotersFound(slot.position, slot.value) for slot in open_slots[:1] if settling is not None)
        return self.do(node, Reconfigure(node, quorum, quorums[0], position, found))

    def enlist(self, node: int) -> list[Effect]:
        return self.do(node, Enlist())

    def truncate(self, node: int, begin: int) -> list[Effect]:
        return self.do(node, Truncate(begin))

    def demote(self, node: int) -> list[Effect]:
        return self.do(node, Demote())

    def fail(self, node: int) -> list[Effect]:
        return self.do(node, StoreFailed())

    def found(self, node: int, cluster_id: str = "tides") -> list[Effect]:
        return self.do(node, Found(cluster_id))

    def rejoin(self, node: int, number: int) -> list[Effect]:
        return self.do(node, Rejoin(number))

    def fire(self, node: int, timer: Timer) -> list[Effect]:
        return self.do(node, TimerFired(timer, self.timers.get((node, timer), 0)))

    # -- messages ----------------------------------------------------------------------------------------------------

    def deliver(self, source: int, target: int, count: int = 1 << 30) -> None:
        """Delivers what waits on a link now, the oldest first; to a node that is down it is lost."""
        link = self.links.get((source, target), deque())
        for _ in range(min(count, len(link))):
            message = link.popleft()
            if target in self.nodes:
                self.do(target, Received(source, message))

    def repeat(self, source: int, target: int) -> None:
        """The oldest message of a link, and it stays."""
        self.do(target, Received(source, self.links[source, target][0]))

    def drop(self, source: int, target: int, count: int = 1 << 30) -> None:
        """Loses what waits on a link now, the oldest first."""
        link = self.links.get((source, target), deque())
        for _ in range(min(count, len(link))):
            link.popleft()

    def drop_all(self) -> None:
        self.links.clear()

    def run(self, *nodes: int) -> None:
        """Delivers among these nodes, or all, until nothing moves; what others would get waits on."""
        among = nodes or tuple(self.disks)
        while True:
            moving = [link for link, queue in sorted(self.links.items()) if queue and set(link) <= {*among}]
            if not moving:
                return
            for link in moving:
                self.deliver(*link, 1)

    # -- what came of it ---------------------------------------------------------------------------------------------

    def news(self) -> list[str]:
        """Returns what the nodes told their callers since the last time."""
        news = [f"{node} {effect_text(effect)}" for node, effect in self.effects if not isinstance(effect, QUIET)]
        self.effects = []
        self.lines = []
        return news

    def transcript(self) -> list[str]:
        """Everything since the last time."""
        lines, self.lines, self.effects = self.lines, [], []
        return lines

    def applied(self, node: int) -> list[Value]:
        """Returns what a node has applied since the stage was built."""
        return [e.value for n, e in self.effects if n == node and isinstance(e, Applied)]

    def status(self, node: int) -> Status:
        return self.nodes[node].replica.metadata.status

    def learned(self, node: int) -> dict[int, str]:
        """The learned positions of a node that are not gone, and what is there, by digest or kind."""
        slots = self.nodes[node].replica.slots
        return {p: name_of(slots[p].value) for p in sorted(slots) if slots[p].learned}


def name_of(value: Value) -> str:
    return value.digest.decode() or value.kind.name.lower()
