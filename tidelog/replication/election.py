"""Elects the leader of a Paxos log among its voters. Pure.

Paxos is safe with any number of proposers, and makes progress only with a single proposer. So the election decides only
*when* a voter has its Paxos engine campaign; a wrong decision costs time and never data. (Leases are the exception,
since reads rely on them; their theory is in `election_lease`.) The election follows Raft's dissertation, sections 6.4
and 9.6, and etcd's practice. H is the heartbeat interval, T the election timeout.

| role | waits for | then |
|---|---|---|
| FOLLOWER | silence of T to 5/4 T, or the end of a dead leader's lease | asks the voters: PROSPECTIVE |
| PROSPECTIVE | a quorum that would promise (*pre-vote*), asks again meanwhile | has the engine campaign: CANDIDATE |
| CANDIDATE | the engine's report: won, lost, or none for T to 2T | LEADER; or waits T to 2T: FOLLOWER |
| LEADER | each H: heartbeat; no quorum answered for T (*check-quorum*), or a newer number | resigns: FOLLOWER |

*Pre-vote* lets a node that was cut off come back without a campaign that would depose a healthy leader. *Check-quorum*
ends the term of a leader whose heartbeats still arrive, and so prevent an election, but which receives no answers. A
leader that resigns releases its leases, so that the other voters need not wait for their end. An only voter that stood
still for T resigns, and campaigns again at once.

Two nodes that campaign at the same moment both fail. So a voter grants pre-votes to one candidate at a time, each for
half an H, and voters that wait for the same event add a random delay of up to H.

A node that is no voter (a learner) follows the leader's heartbeats; it never campaigns.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from math import inf
from typing import Final

from tidelog.replication.election_events import (
    Advanced,
    Campaign,
    ElectionEffect,
    ElectionEvent,
    ElectionMessage,
    Heard,
    Heartbeat,
    HeartbeatAnswer,
    LeaderChanged,
    LeaseReleased,
    Listeners,
    LostTerm,
    PeerDown,
    PreVote,
    PreVoteAnswer,
    Promised,
    Ready,
    Reconfigured,
    Resign,
    StepAside,
    Tell,
    Tick,
    WakeAt,
    Won,
)
from tidelog.replication.election_lease import Grants, Term
from tidelog.replication.election_settings import ElectionSettings
from tidelog.replication.paxos.numbers import NO_NUMBER, NODE_MAX, owner_of
from tidelog.replication.quorum import Quorum

SILENCE_SPREAD: Final = 1.25
"""The largest silence after which a voter begins an election, in timeouts (the smallest is one)."""


class Role(Enum):
    FOLLOWER = "follower"
    PROSPECTIVE = "prospective"
    CANDIDATE = "candidate"
    LEADER = "leader"


class Election:
    """The election's state machine of one node, pure: `now_s` is seconds of the node's own monotonic clock.

    `has_voted_before`: the node may have promised, or granted leases, before it was started. `promised` is the largest
    proposal number that its Paxos replica has promised durably.
    """

    def __init__(
        self,
        me: int,
        quorum: Quorum,
        settings: ElectionSettings,
        *,
        now_s: float,
        has_voted_before: bool,
        uniform: Callable[[float, float], float],
        promised: int = NO_NUMBER,
    ) -> None:
        self.me = me
        self.role = Role.FOLLOWER
        self.leader: int | None = None
        """The node that leads, as far as this node knows (perhaps itself); None if it knows of none."""
        self.number = NO_NUMBER
        """The largest proposal number under which this node has heard of a leader."""
        self._quorum = quorum
        self._uniform = uniform
        self._heartbeat_s = settings.heartbeat_ms / 1000
        self._turn_s = self._heartbeat_s / 2
        self._timeout_s = settings.timeout_ms / 1000
        self._lease_s = settings.lease_ms / 1000
        self._drift = settings.drift
        # The leader counts less than the voters that granted, because its clock may be slower than theirs by so much:
        # so the lease ends here first.
        self._backing_s = self._lease_s * (1 - self._drift)
        self._grants = Grants(self._lease_s, muted_until_s=now_s + self._lease_s if has_voted_before else -inf)
        self._promised = promised
        self._ended = NO_NUMBER  # the largest number whose term is known to be over
        self._heard_s = -inf  # the leader, last
        self._is_leader_down = False
        self._round = 0
        self._round_s = -inf
        self._granted: dict[int, bool] = {}
        self._welcomed: int | None = None
        self._welcomed_s = -inf
        self._term: Term | None = None
        self._listeners: tuple[int, ...] = ()
        self._log_end = 0
        # Voters that are started together would otherwise campaign together.
        self._due_s = now_s if self._is_alone else self._mute_end_s(now_s) + uniform(0, self._timeout_s)
        self._reported_s: float | None = None

    # -- queries -----------------------------------------------------------------------------------------------------

    def has_lease(self, now_s: float) -> bool:
        """True if no other node can have been elected, so that this leader's applied prefix is the newest there is."""
        return self._term is not None and now_s < self._term.backed_s + self._backing_s

    def alone_s(self, now_s: float) -> float:
        """Returns the seconds for which no leader of an earlier term can have had a lease; 0.0 if this node does not
        lead, or does not know it yet."""
        return 0.0 if self._term is None else max(0.0, now_s - self._term.alone_since_s)

    def may_promise(self, candidate: int, now_s: float) -> bool:
        """False while a lease binds this voter to another leader: a promise request of this candidate must be dropped,
        unanswered."""
        # An only voter has granted leases to nobody but itself, so it need not wait after a restart either.
        if candidate == self.me and self._is_alone:
            return True
        return now_s >= self._grants.binds_until_s(candidate)

    @property
    def _is_alone(self) -> bool:
        return self._quorum.is_met((self.me,))

    def _mute_end_s(self, now_s: float) -> float:
        return max(now_s, self._grants.binds_until_s(self.me))

    # -- events ------------------------------------------------------------------------------------------------------

    def step(self, event: ElectionEvent, now_s: float) -> list[ElectionEffect]:
        """Returns the effects of an event, in the order in which they are to be carried out."""
        effects = self._on_event(event, now_s)
        if self._due_s != self._reported_s:
            self._reported_s = self._due_s
            effects.append(WakeAt(self._due_s))
        assert (self._term is not None) == (self.role is Role.LEADER)
        return effects

    def _on_event(self, event: ElectionEvent, now_s: float) -> list[ElectionEffect]:
        match event:
            case Tick():
                return self._on_due(now_s) if now_s >= self._due_s else []
            case Heard(sender, message):
                return self._on_message(sender, message, now_s)
            case Advanced(end):
                self._log_end = end
                return []
            case Listeners(nodes):
                self._listeners = nodes
                return []
            case PeerDown(voter):
                return self._on_peer_down(voter, now_s)
            case Ready():
                return self._on_ready(now_s)
            case Reconfigured(me, quorum):
                return self._on_reconfigured(me, quorum, now_s)
            case Promised() | Won() | LostTerm() | StepAside():
                return self._on_engine(event, now_s)

    def _on_engine(self, event: Promised | Won | LostTerm | StepAside, now_s: float) -> list[ElectionEffect]:
        match event:
            case Promised(number):
                return self._on_promised(number, now_s)
            case Won(number):
                return self._on_won(number, now_s)
            case LostTerm(number):
                # The end of an earlier term may be told late, and ends no later one. Of a candidate no number is known
                # here, so any end counts as its own, which costs a timeout at most.
                is_mine = self._term is None or self._term.number == number
                return self._give_up(now_s) if is_mine and self.role in {Role.CANDIDATE, Role.LEADER} else []
            case StepAside(to):
                return [] if self.role is Role.FOLLOWER else [Resign(), *self._give_up(now_s, successor=to)]

    def _on_due(self, now_s: float) -> list[ElectionEffect]:
        match self.role:
            case Role.FOLLOWER:
                return self._on_silence(now_s)
            case Role.PROSPECTIVE:
                return self._ask(now_s)
            case Role.CANDIDATE:
                return [Resign(), *self._give_up(now_s)]
            case Role.LEADER:
                return self._on_beat(now_s)

    def _on_message(self, sender: int, message: ElectionMessage, now_s: float) -> list[ElectionEffect]:
        match message:
            case Heartbeat():
                return self._on_heartbeat(sender, message, now_s)
            case HeartbeatAnswer():
                return self._on_heartbeat_answer(sender, message, now_s)
            case PreVote(round_):
                return [Tell(sender, PreVoteAnswer(round_, self._would_promise(sender, now_s)))]
            case PreVoteAnswer(round_, granted):
                return self._on_answer(sender, round_, granted=granted, now_s=now_s)
            case LeaseReleased():
                return self._on_released(message, now_s)

    # -- following ---------------------------------------------------------------------------------------------------

    def _on_heartbeat(self, sender: int, heartbeat: Heartbeat, now_s: float) -> list[ElectionEffect]:
        """Follows the leader and grants it a lease, unless its term is known to be over."""
        number = heartbeat.number
        # A promise to a newer number is enough to know that. Its candidate may be leader by now, with this voter's
        # promise: a grant to the older term would let two nodes hold a lease at one time.
        if owner_of(number) != sender or number <= self._ended or number < max(self.number, self._promised):
            return []
        effects = self._yield(now_s)
        self._heard_s = now_s
        self._is_leader_down = False
        self._grants.give(sender, number, now_s)
        # A learner promises nobody, so its grant would be worth nothing.
        if self.me <= NODE_MAX:
            effects.append(Tell(sender, HeartbeatAnswer(number, heartbeat.beat, self._grants.free_ms(now_s))))
        return [*effects, *self._know(sender, number)]

    def _on_promised(self, number: int, now_s: float) -> list[ElectionEffect]:
        """Grants a lease to the candidate to which this node's replica gives its promise, and ends older terms, this
        node's own included."""
        if number <= max(self._promised, self.number):
            return []
        self._promised = number
        owner = owner_of(number)
        # A promise binds like a heartbeat: until the new leader's first one comes, no other is to be promised.
        self._grants.give(owner, number, now_s)
        if owner == self.me:
            return []
        return [*self._yield(now_s), *(self._know(None) if self.leader != owner else [])]

    def _yield(self, now_s: float) -> list[ElectionEffect]:
        """Gives way to another leader or candidate: resigns if this node leads or campaigns, else waits for a new
        timeout."""
        if self.role in {Role.CANDIDATE, Role.LEADER}:
            return [Resign(), *self._give_up(now_s)]
        self.role = Role.FOLLOWER
        # A hung leader costs all of this wait, so it is spread by less than others are: pre-votes keep voters apart.
        self._due_s = now_s + self._uniform(self._timeout_s, SILENCE_SPREAD * self._timeout_s)
        return []

    def _on_silence(self, now_s: float) -> list[ElectionEffect]:
        if self.me not in self._quorum:
            # A node that is no voter waits for nothing: it never asks.
            self._due_s = inf
            return self._know(None)
        if now_s < self._welcomed_s + self._turn_s:
            # The voter that it has just welcomed has its turn first: two campaigns at the same moment would both fail.
            self._due_s = self._welcomed_s + self._turn_s
            return []
        self.role = Role.PROSPECTIVE
        self._round_s = now_s
        self._begin_round(now_s)
        return [*self._know(None), *self._ask(now_s)]

    def _on_peer_down(self, voter: int, now_s: float) -> list[ElectionEffect]:
        """Schedules the next pre-vote for the end of the lease of a leader whose process has ended."""
        if voter == self.leader and self.role is Role.FOLLOWER:
            self._is_leader_down = True
            # Other voters' clocks may be slower than this one's, by the drift: they are bound for so much longer.
            free_s = self._mute_end_s(now_s) + self._lease_s - self._backing_s
            self._due_s = min(self._due_s, free_s + self._uniform(0, self._heartbeat_s))
        return []

    def _on_ready(self, now_s: float) -> list[ElectionEffect]:
        """Schedules a pre-vote within one heartbeat interval if no node leads."""
        if self.role is Role.FOLLOWER and self.leader is None:
            self._due_s = min(self._due_s, now_s + self._uniform(0, self._heartbeat_s))
        return []

    def _on_released(self, released: LeaseReleased, now_s: float) -> list[ElectionEffect]:
        """Records that a term is over: its named successor begins a pre-vote at once, other voters only after a
        timeout."""
        self._grants.release(released.number, now_s)
        # A heartbeat of that term may be under way still, and must not be followed, nor granted a lease.
        self._ended = max(self._ended, released.number)
        if self.role is not Role.FOLLOWER or released.number < self.number:
            return []
        if released.successor == self.me:
            self._due_s = now_s
        elif released.successor is None:
            self._due_s = now_s + self._uniform(0, self._heartbeat_s)
        else:
            self._due_s = self._after_timeout_s(now_s)
        return self._know(None)

    # -- becoming leader ---------------------------------------------------------------------------------------------

    def _begin_round(self, now_s: float) -> None:
        """Begins another round of pre-vote; answers to earlier rounds are ignored from now on."""
        self._round += 1
        self._granted = {}
        self._due_s = now_s + self._uniform(self._turn_s, 2 * self._turn_s)

    def _ask(self, now_s: float) -> list[ElectionEffect]:
        """Sends every voter a pre-vote request, and schedules the next attempt; repeated until some node leads."""
        # All of them each time: a voter that did not answer, or refused, may grant by now.
        self._due_s = now_s + self._uniform(self._turn_s, 2 * self._turn_s)
        self._granted[self.me] = True
        if self._is_alone:
            return self._campaign(now_s)
        return [Tell(voter, PreVote(self._round)) for voter in self._quorum.members if voter != self.me]

    def _would_promise(self, candidate: int, now_s: float) -> bool:
        """Returns True if this voter would promise to `candidate` now, as its answer to a pre-vote request. If it is
        granted, other candidates are refused for half a heartbeat interval. A granted pre-vote is no promise."""
        if not self._is_free_for(candidate, now_s):
            return False
        # One at a time, this voter itself included: else several candidates would get their quorums, and hinder each
        # other. So grants that it has collected for itself count no more.
        self._welcomed, self._welcomed_s = candidate, now_s
        if self.role is Role.PROSPECTIVE:
            self._begin_round(now_s)
        return True

    def _is_free_for(self, candidate: int, now_s: float) -> bool:
        if self.role in {Role.CANDIDATE, Role.LEADER} or not self.may_promise(candidate, now_s):
            return False
        if self._welcomed != candidate and now_s < self._welcomed_s + self._turn_s:
            return False
        if self.role is Role.PROSPECTIVE:
            # Of two voters that ask, the smaller id gives way, unless it has had half an H and got no quorum.
            return candidate > self.me or now_s >= self._round_s + self._turn_s
        # A voter that hears a leader grants nothing: so a node that was cut off, and comes back, deposes nobody.
        is_led = self.leader not in {None, candidate} and not self._is_leader_down
        return not is_led or now_s >= self._heard_s + self._timeout_s

    def _on_answer(self, sender: int, round_: int, *, granted: bool, now_s: float) -> list[ElectionEffect]:
        if self.role is not Role.PROSPECTIVE or round_ != self._round:
            return []
        self._granted[sender] = granted
        has_quorum = self._quorum.is_met([voter for voter, is_granted in self._granted.items() if is_granted])
        return self._campaign(now_s) if has_quorum else []

    def _campaign(self, now_s: float) -> list[ElectionEffect]:
        """Makes this node a candidate whose engine campaigns, or a follower if a lease forbids this voter to promise
        itself."""
        # It counts among its own quorum, so its own grant to another leader binds it like anybody's.
        if not self.may_promise(self.me, now_s):
            self.role = Role.FOLLOWER
            self._due_s = self._mute_end_s(now_s) + self._uniform(0, self._heartbeat_s)
            return []
        self.role = Role.CANDIDATE
        self._due_s = self._after_timeout_s(now_s)
        # The engine needs a number larger than this node's `number`, too: of the last leader, it may have got nothing
        # but heartbeats, which the engine does not see.
        return [Campaign()]

    def _on_won(self, number: int, now_s: float) -> list[ElectionEffect]:
        if self.role is not Role.CANDIDATE:
            # The attempt was given up at its deadline, and this voter may have granted a pre-vote or a lease since.
            return [Resign()]
        assert owner_of(number) == self.me and number >= max(self._promised, self.number)
        self.role = Role.LEADER
        self._term = Term(number, self.me, self._quorum, now_s=now_s, drift=self._drift)
        self._term.freed(self.me, self._grants.free_ms(now_s), now_s)
        return [*self._know(self.me, number), *self._on_beat(now_s)]

    # -- leading -----------------------------------------------------------------------------------------------------

    def _on_heartbeat_answer(self, voter: int, answer: HeartbeatAnswer, now_s: float) -> list[ElectionEffect]:
        if self._term is not None and self._term.number == answer.number:
            self._term.answered(voter, answer.beat)
            if answer.free_ms is not None:
                self._term.freed(voter, answer.free_ms, now_s)
        return []

    def _on_beat(self, now_s: float) -> list[ElectionEffect]:
        term = self._term
        assert term is not None
        # Check-quorum: its heartbeats may still arrive, and keep the others from electing a leader that hears them.
        if now_s - max(term.began_s, term.backed_s) > self._timeout_s:
            given_up = [Resign(), *self._give_up(now_s)]
            # An only voter has stood still. There is nobody to wait for; but what its state machine knew of others is
            # out of date (their sessions have ended, or would now), so it does begin another term.
            self._due_s = now_s if self._is_alone else self._due_s
            return given_up
        # The leader counts among the voters that back its lease, so it is bound as they are.
        self._grants.give(self.me, term.number, now_s)
        self._due_s = now_s + self._heartbeat_s
        heartbeat = Heartbeat(term.number, term.beat(now_s, forget_s=self._timeout_s), self._log_end)
        return [Tell(node, heartbeat) for node in self._audience()]

    def _audience(self) -> list[int]:
        learners = [node for node in self._listeners if node not in self._quorum]
        return [node for node in (*self._quorum.members, *learners) if node != self.me]

    def _give_up(self, now_s: float, *, successor: int | None = None) -> list[ElectionEffect]:
        """Makes this node a follower for at least a whole timeout; a leader releases its leases."""
        # Where a `Resign` is due, callers put it before these effects: the engine stops before others may lead.
        term, self._term = self._term, None
        self.role = Role.FOLLOWER
        self._due_s = self._after_timeout_s(now_s)
        if term is None:
            return []
        self._ended = term.number
        self._grants.release(term.number, now_s)
        releases = [Tell(node, LeaseReleased(term.number, successor)) for node in self._audience()]
        return [*releases, *self._know(None)]

    def _on_reconfigured(self, me: int, quorum: Quorum, now_s: float) -> list[ElectionEffect]:
        """Switches to other voters. A leader or a candidate campaigns among them at once."""
        was_trying, was_member = self.role in {Role.CANDIDATE, Role.LEADER}, self.me in self._quorum
        if was_trying and me not in quorum:
            given_up = [Resign(), *self._give_up(now_s)]
        else:
            given_up = []
            # Its leases are not released: the voters that they bind may promise this node, and no other.
            self._term = None
        self.me, self._quorum = me, quorum
        if was_trying and me in quorum:
            return [*self._know(None), *self._campaign(now_s)]
        # Grants were counted for the old quorum.
        if self.role is Role.PROSPECTIVE or not was_member:
            self.role = Role.FOLLOWER
            self._due_s = now_s if self._is_alone else self._after_timeout_s(now_s)
        return given_up

    # -- what is common ----------------------------------------------------------------------------------------------

    def _after_timeout_s(self, now_s: float) -> float:
        return now_s + self._uniform(self._timeout_s, 2 * self._timeout_s)

    def _know(self, leader: int | None, number: int = NO_NUMBER) -> list[ElectionEffect]:
        is_change = leader != self.leader or number > self.number
        self.leader = leader
        self.number = max(number, self.number)
        return [LeaderChanged(leader, self.number)] if is_change else []
