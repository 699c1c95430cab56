"""A world for elections: voters, clocks and links on one heap of events; the engine is an ideal oracle of promises.

The oracle keeps each voter's largest promise, durably and at once, and elects whoever has a quorum of promises and then
one of writes; a leader writes on and on. So what is tried here is who leads when, and who may answer reads.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from math import inf

import msgspec

from tidelog.replication.election import Election, Role
from tidelog.replication.election_events import (
    Campaign,
    ElectionEvent,
    ElectionMessage,
    Heard,
    LostTerm,
    PeerDown,
    Promised,
    Resign,
    Tell,
    Tick,
    WakeAt,
    Won,
)
from tidelog.replication.election_settings import ElectionSettings
from tidelog.replication.paxos.numbers import next_number, owner_of
from tidelog.replication.quorum import Majority

WRITE_EVERY_S = 0.3
RESEND_S = 0.05
INSTANT_S = 1e-6


class Ask(msgspec.Struct, frozen=True):
    """A promise, or a write, is asked for."""

    number: int
    write: int
    """Counts the writes of a term; 0 is the promise."""


class Answer(msgspec.Struct, frozen=True):
    number: int
    write: int
    is_accept: bool
    highest: int


class Voter:
    """One machine: what is durable, its clock, and the election that runs on it now."""

    def __init__(self, node: int, rate: float, offset_s: float) -> None:
        self.node = node
        self.rate = rate
        self.offset_s = offset_s
        self.promised = 0
        self.issued = 0
        self.life = 0
        self.election: Election | None = None
        self.paused_until_s = -inf
        self.wake = 0
        self.number = 0
        """The number of the attempt or term that is under way; 0 if there is neither."""
        self.write = 0
        self.accepted: set[int] = set()
        self.heard = 0
        self.ended_s: dict[int, float] = {}
        """When a connection from a peer was found dead, last."""

    def local_s(self, now_s: float) -> float:
        return self.offset_s + now_s * self.rate


class World:
    """`violations` says what must never happen and did."""

    def __init__(
        self,
        rng: random.Random,
        count: int,
        make: Callable[..., Election] = Election,
        *,
        rate_max: float = 1.0,
        settings: ElectionSettings | None = None,
    ) -> None:
        self.rng = rng
        self.now_s = 0.0
        self.quorum = Majority(range(1, count + 1))
        self.settings = settings or ElectionSettings()
        self.make = make
        self.violations: list[str] = []
        self.winners: list[tuple[float, int]] = []
        """When which number won."""
        self.held_s: dict[int, float] = {}
        """When the leader under each number was seen last to have a lease."""
        self.cuts: set[tuple[int, int]] = set()
        self.loss = 0.0
        self.delay_s_max = 0.003
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self.voters = {
            node: Voter(node, rng.choice((1.0, rate_max)), rng.uniform(0, 1000)) for node in self.quorum.members
        }
        for voter in self.voters.values():
            self.start(voter)

    # -- time --------------------------------------------------------------------------------------------------------

    def at(self, when_s: float, call: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._heap, (max(when_s, self.now_s), self._count, call))

    def run(self, seconds: float) -> None:
        end_s = self.now_s + seconds
        while self._heap and self._heap[0][0] <= end_s:
            self.now_s, _, call = heapq.heappop(self._heap)
            call()
            self._check()
        self.now_s = end_s

    def _check(self) -> None:
        holders = [voter.node for voter in self.voters.values() if self.has_lease(voter)]
        if len(holders) > 1:
            self.violations.append(f"two leases: {holders} at {self.now_s:.3f}")
        for voter in self.voters.values():
            election = voter.election
            if election is not None and election.role is Role.LEADER and owner_of(election.number) != voter.node:
                self.violations.append(f"{voter.node} leads under the number of {owner_of(election.number)}")
            elif election is not None and election.role is Role.LEADER:
                self._check_alone(voter, election)

    def _check_alone(self, voter: Voter, election: Election) -> None:
        """Checks that no earlier leader had a lease since the time from which this leader says it leads alone."""
        if self.has_lease(voter):
            self.held_s[election.number] = self.now_s
        alone_s = election.alone_s(voter.local_s(self.now_s))
        since_s = self.now_s - alone_s / voter.rate
        for number, held_s in self.held_s.items():
            if alone_s and number < election.number and held_s > since_s + INSTANT_S:
                self.violations.append(
                    f"{number} had a lease at {held_s:.3f}, and {election.number} leads alone since {since_s:.3f}"
                )

    def has_lease(self, voter: Voter) -> bool:
        return voter.election is not None and voter.election.has_lease(voter.local_s(self.now_s))

    def _for(self, voter: Voter, call: Callable[[], None]) -> Callable[[], None]:
        """The same, unless the voter was restarted meanwhile, and not before its pause is over."""
        life = voter.life

        def later() -> None:
            if voter.life != life or voter.election is None:
                return
            if self.now_s < voter.paused_until_s:
                self.at(voter.paused_until_s, later)
            else:
                call()

        return later

    # -- lives -------------------------------------------------------------------------------------------------------

    def start(self, voter: Voter) -> None:
        voter.life += 1
        voter.number = voter.wake = 0
        voter.election = self.make(
            voter.node,
            self.quorum,
            self.settings,
            now_s=voter.local_s(self.now_s),
            has_voted_before=voter.life > 1,
            uniform=self.rng.uniform,
            promised=voter.promised,
        )
        self.step(voter, Tick())
        self.at(self.now_s, self._for(voter, lambda: self._write(voter)))

    def crash(self, node: int) -> None:
        """The connections break at once; that the process is gone is found out a little later."""
        voter = self.voters[node]
        voter.election = None
        voter.paused_until_s = -inf
        for other in self.voters.values():
            if not {(node, other.node), (other.node, node)} & self.cuts:
                self.report(other, node)

    def accuse(self, node: int) -> None:
        """Cuts a voter off in such a way that the others take its process for dead."""
        self.isolate(node)
        for other in self.voters.values():
            if other.node != node:
                self.report(other, node)

    def report(self, voter: Voter, node: int) -> None:
        self.at(self.now_s + self.rng.uniform(0.001, 0.01), self._for(voter, lambda: self._down(voter, node)))

    def _down(self, voter: Voter, node: int) -> None:
        """The connection has ended: what was sent on it and has not come will not."""
        voter.ended_s[node] = self.now_s
        self.step(voter, PeerDown(node))

    def restart(self, node: int) -> None:
        if self.voters[node].election is None:
            self.start(self.voters[node])

    def pause(self, node: int, seconds: float) -> None:
        self.voters[node].paused_until_s = self.now_s + seconds

    # -- links -------------------------------------------------------------------------------------------------------

    def send(self, source: int, target: int, message: ElectionMessage | Ask | Answer) -> None:
        if (source, target) in self.cuts or self.rng.random() < self.loss:
            return
        voter = self.voters[target]
        sent_s = self.now_s

        def arrive() -> None:
            if sent_s > voter.ended_s.get(source, -inf):
                self._receive(voter, source, message)

        self.at(sent_s + self.rng.uniform(0.0002, self.delay_s_max), self._for(voter, arrive))

    def isolate(self, node: int, *, into: bool = True, out_of: bool = True) -> None:
        for other in self.voters:
            if other != node:
                self.cuts |= {(other, node)} if into else set()
                self.cuts |= {(node, other)} if out_of else set()

    def heal(self) -> None:
        self.cuts = set()
        self.loss = 0.0
        self.delay_s_max = 0.003
        for voter in self.voters.values():
            voter.paused_until_s = min(voter.paused_until_s, self.now_s)
            self.restart(voter.node)

    # -- the shell ---------------------------------------------------------------------------------------------------

    def step(self, voter: Voter, event: ElectionEvent) -> None:
        assert voter.election is not None
        for effect in voter.election.step(event, voter.local_s(self.now_s)):
            match effect:
                case Tell(to, message):
                    self.send(voter.node, to, message)
                case Campaign():
                    self._campaign(voter, voter.election)
                case Resign():
                    voter.number = 0
                case WakeAt(at_s) if at_s < inf:
                    self._wake_at(voter, at_s)
                case _:
                    pass

    def _wake_at(self, voter: Voter, at_s: float) -> None:
        voter.wake += 1
        wake = voter.wake
        due_s = (at_s - voter.offset_s) / voter.rate + 1e-6
        self.at(due_s, self._for(voter, lambda: self._tick(voter, wake)))

    def _tick(self, voter: Voter, wake: int) -> None:
        if voter.wake == wake:
            self.step(voter, Tick())

    def _campaign(self, voter: Voter, election: Election) -> None:
        voter.issued = next_number(max(voter.issued, voter.promised, voter.heard, election.number), voter.node)
        voter.number, voter.write, voter.accepted = voter.issued, 0, set()
        self._ask(voter, voter.number, 0)

    def _ask(self, voter: Voter, number: int, write: int) -> None:
        """Asks all that have not answered, and again until it has an outcome."""
        if voter.number != number or voter.write != write or self.quorum.is_met(voter.accepted):
            return
        for node in self.quorum.members:
            if node == voter.node:
                self._receive(voter, node, Ask(number, write))
            elif node not in voter.accepted:
                self.send(voter.node, node, Ask(number, write))
        self.at(self.now_s + RESEND_S, self._for(voter, lambda: self._ask(voter, number, write)))

    def _write(self, voter: Voter) -> None:
        assert voter.election is not None
        if voter.election.role is Role.LEADER and voter.number and self.quorum.is_met(voter.accepted):
            voter.write += 1
            voter.accepted = set()
            self._ask(voter, voter.number, voter.write)
        self.at(self.now_s + WRITE_EVERY_S, self._for(voter, lambda: self._write(voter)))

    def _receive(self, voter: Voter, sender: int, message: ElectionMessage | Ask | Answer) -> None:
        match message:
            case Ask(number, write):
                self._on_ask(voter, sender, number, write)
            case Answer():
                self._on_answer(voter, sender, message)
            case _:
                self.step(voter, Heard(sender, message))

    def _on_ask(self, voter: Voter, sender: int, number: int, write: int) -> None:
        assert voter.election is not None
        if write == 0 and not voter.election.may_promise(sender, voter.local_s(self.now_s)):
            return
        is_accept = number >= voter.promised
        if write == 0 and number > voter.promised:
            voter.promised = number
            self.step(voter, Promised(number))
        answer = Answer(number, write, is_accept, voter.promised)
        if sender == voter.node:
            self._on_answer(voter, sender, answer)
        else:
            self.send(voter.node, sender, answer)

    def _on_answer(self, voter: Voter, sender: int, answer: Answer) -> None:
        voter.heard = max(voter.heard, answer.highest)
        if answer.number != voter.number:
            return
        if not answer.is_accept:
            voter.number = 0
            self.step(voter, LostTerm(answer.number))
        elif answer.write == voter.write and not self.quorum.is_met(voter.accepted):
            voter.accepted.add(sender)
            if self.quorum.is_met(voter.accepted) and voter.write <= 1:
                self._advance(voter)

    def _advance(self, voter: Voter) -> None:
        """A quorum has promised: the barrier. It is written: elected."""
        if voter.write == 0:
            voter.write, voter.accepted = 1, set()
            self._ask(voter, voter.number, 1)
            return
        if any(number == voter.number for _, number in self.winners):
            self.violations.append(f"{voter.number} won twice")
        self.winners.append((self.now_s, voter.number))
        self.step(voter, Won(voter.number))

    # -- what came of it ---------------------------------------------------------------------------------------------

    def leader(self) -> int | None:
        """Returns who can serve: holds a lease, and has all that run (and can hear it) as followers."""
        for voter in self.voters.values():
            if voter.election is not None and self.has_lease(voter):
                followers = [v for v in self.voters.values() if v.election and (voter.node, v.node) not in self.cuts]
                if all(v.election is not None and v.election.leader == voter.node for v in followers):
                    return voter.node
        return None

    def settle(self, seconds: float) -> float | None:
        """How long it took until somebody can serve; None if longer than this."""
        began_s = self.now_s
        while self.leader() is None:
            if self.now_s - began_s > seconds:
                return None
            self.run(0.005)
        return self.now_s - began_s
