"""A stage for elections: one clock for all, which a scene moves; messages wait until they are delivered or dropped.

There is no engine: a scene says what it would say. Chance is the middle of its range.
"""

from __future__ import annotations

from collections import deque
from math import inf

from tidelog.replication.election import Election
from tidelog.replication.election_events import (
    Campaign,
    ElectionEffect,
    ElectionEvent,
    ElectionMessage,
    Heard,
    Heartbeat,
    HeartbeatAnswer,
    LeaderChanged,
    LeaseReleased,
    LostTerm,
    PeerDown,
    PreVote,
    PreVoteAnswer,
    Promised,
    Reconfigured,
    Resign,
    StepAside,
    Tell,
    Tick,
    WakeAt,
    Won,
)
from tidelog.replication.election_settings import ElectionSettings
from tidelog.replication.paxos.numbers import make_number
from tidelog.replication.quorum import Majority
from tidelog.sim.paxos.describe import number_text


class Stage:
    """`handle` carries out a script's commands; each answers with what the nodes do."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.elections: dict[int, Election] = {}
        self.due_s: dict[int, float] = {}
        self.links: dict[tuple[int, int], deque[ElectionMessage]] = {}
        self.lines: list[str] = []

    def handle(self, command: str, words: list[str], pairs: dict[str, str]) -> list[str]:
        self.lines = []
        match command:
            case "stage":
                self._stage(int(pairs["nodes"]))
            case "start":
                self._start(int(words[0]), Majority(self.elections), has_voted_before=True)
            case "wait":
                self._wait(float(words[0]))
            case "deliver" | "drop":
                for link in words:
                    self._deliver(*map(int, link.split("->")), is_lost=command == "drop")
            case "run":
                self._run([int(word) for word in words] or list(self.elections))
            case "silence":
                self._silence(float(words[0]), [int(word) for word in words[1:]])
            case "who":
                return [self._describe(node) for node in sorted(self.elections)]
            case _:
                for node in map(int, words):
                    self._do(node, self._event(command, node, pairs))
        return self.lines

    def _stage(self, count: int) -> None:
        self.elections, self.due_s, self.links, self.now_s = {}, {}, {}, 0.0
        quorum = Majority(range(1, count + 1))
        for node in quorum.members:
            self._start(node, quorum, has_voted_before=False)
        self.lines = []

    def _start(self, node: int, quorum: Majority, *, has_voted_before: bool) -> None:
        self.elections[node] = Election(
            node,
            quorum,
            ElectionSettings(),
            now_s=self.now_s,
            has_voted_before=has_voted_before,
            uniform=lambda low, high: (low + high) / 2,
        )
        self._do(node, Tick())

    def _event(self, command: str, node: int, pairs: dict[str, str]) -> ElectionEvent:
        match command:
            case "won":
                return Won(make_number(int(pairs["round"]), node))
            case "lost":
                return LostTerm(make_number(int(pairs["round"]), node))
            case "promised":
                return Promised(make_number(int(pairs["round"]), int(pairs["to"])))
            case "down":
                return PeerDown(int(pairs["peer"]))
            case "aside":
                return StepAside(int(pairs["to"]) if "to" in pairs else None)
            case "reconfigured":
                return Reconfigured(node, Majority(map(int, pairs["voters"].split(","))))
            case _:
                raise ValueError(command)

    # -- what moves --------------------------------------------------------------------------------------------------

    def _wait(self, seconds: float) -> None:
        """Lets time pass; what the nodes send waits."""
        end_s = self.now_s + seconds
        while True:
            due_s, node = min(((due_s, node) for node, due_s in self.due_s.items()), default=(inf, 0))
            if due_s > end_s + 1e-9:
                break
            self.now_s = max(self.now_s, due_s)
            self._do(node, Tick())
        self.now_s = end_s

    def _silence(self, seconds: float, nodes: list[int]) -> None:
        """Lets time pass, with messages among these nodes only; tells what the others do."""
        end_s, lines = self.now_s + seconds, []
        while self.now_s < end_s - 1e-9:
            self._wait(0.05)
            self._run(nodes)
            lines += self.lines
            self.lines = []
        self.lines = [line for line in _blocks(lines) if int(line.split()[1]) not in nodes]

    def _deliver(self, source: int, target: int, *, is_lost: bool = False) -> None:
        link = self.links.pop((source, target), deque())
        for message in link if not is_lost else ():
            self._do(target, Heard(source, message))

    def _run(self, nodes: list[int]) -> None:
        """Delivers among these nodes until nothing moves; what others would get is lost."""
        while self.links:
            for source, target in sorted(self.links):
                self._deliver(source, target, is_lost=not {source, target} <= {*nodes})

    def _do(self, node: int, event: ElectionEvent) -> None:
        effects = self.elections[node].step(event, self.now_s)
        news = [text for effect in effects if (text := self._carry_out(node, effect))]
        what = event_text(event)
        if news or not isinstance(event, Tick):
            self.lines += [f"{self.now_s:.2f} {node} {what}", *(f"    {text}" for text in news)]

    def _carry_out(self, node: int, effect: ElectionEffect) -> str:
        match effect:
            case Tell(to, message):
                self.links.setdefault((node, to), deque()).append(message)
                return f"to {to}: {message_text(message)}"
            case WakeAt(at_s):
                self.due_s[node] = at_s
                return ""
            case Campaign():
                return "campaign"
            case Resign():
                return "resign"
            case LeaderChanged(leader, number):
                return f"leader {leader or 'unknown'}, number {number_text(number)}"

    def _describe(self, node: int) -> str:
        election = self.elections[node]
        lease = ", has a lease" if election.has_lease(self.now_s) else ""
        may = [other for other in sorted(self.elections) if election.may_promise(other, self.now_s)]
        leads = f"leader {election.leader or 'unknown'}{lease}"
        return f"{node} {election.role.value}, {leads}; may promise {may or 'nobody'}"


def _blocks(lines: list[str]) -> list[str]:
    """Returns what a node was told and what it does, as one text."""
    blocks: list[str] = []
    for line in lines:
        if line.startswith(" "):
            blocks[-1] += "\n" + line
        else:
            blocks.append(line)
    return blocks


def event_text(event: ElectionEvent) -> str:
    match event:
        case Tick():
            return "tick"
        case Heard(sender, message):
            return f"from {sender}: {message_text(message)}"
        case PeerDown(voter):
            return f"{voter} is down"
        case Promised(number) | Won(number) | LostTerm(number):
            return f"{type(event).__name__.lower()} {number_text(number)}"
        case StepAside(to):
            return f"step aside for {to or 'anybody'}"
        case _:
            return "reconfigured"


def message_text(message: ElectionMessage) -> str:
    match message:
        case Heartbeat(number, beat, _):
            return f"heartbeat {beat} of {number_text(number)}"
        case HeartbeatAnswer(number, beat):
            return f"granted {beat} of {number_text(number)}"
        case PreVote(round_):
            return f"would you promise? round {round_}"
        case PreVoteAnswer(round_, granted):
            return f"{'yes' if granted else 'no'}, round {round_}"
        case LeaseReleased(number, successor):
            return f"{number_text(number)} is over" + (f", {successor} should follow" if successor else "")
