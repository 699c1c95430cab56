"""Drives the core of an election (`Election`): passes it the time and messages, and has the engine campaign."""

from __future__ import annotations

import asyncio
from collections import deque
from math import isinf
from typing import Protocol

from tidelog.broker.consensus.messages import ElectionFrame
from tidelog.model.ports import Clock
from tidelog.replication.election import Election
from tidelog.replication.election_events import (
    Campaign,
    ElectionEffect,
    ElectionEvent,
    Heard,
    LeaderChanged,
    Listeners,
    Promised,
    Reconfigured,
    Resign,
    Tell,
    Tick,
    WakeAt,
)

LASTING = (Reconfigured, Promised, Listeners)
"""Events that are kept for an election that has not begun yet, since they are sent only once."""


class CampaignHost(Protocol):
    """The node that an election belongs to."""

    @property
    def current_id(self) -> int:
        """The engine id that this node uses now."""

    def post(self, to: int, frame: ElectionFrame) -> None:
        """Sends a message to the election core of another node; it may be lost."""

    def campaign(self) -> None:
        """Makes the engine try to be elected under a fresh ballot number."""

    def demote(self) -> None:
        """Makes the engine end its term or its election attempt."""

    def leader_changed(self, leader: int | None) -> None:
        """Notes which engine id leads; None if no leader is known."""


class Campaigner:
    """Runs the election core of one voter or learner. All methods are for the event loop's thread."""

    def __init__(self, election: Election, host: CampaignHost, clock: Clock) -> None:
        self.election = election
        self._host = host
        self._clock = clock
        self._events: deque[ElectionEvent] = deque()
        self._is_stepping = False
        self._timer: asyncio.TimerHandle | None = None
        self._has_begun = False

    def begin(self) -> None:
        """Starts taking part in elections. Called only once this replica may vote, since it could not lead before."""
        if not self._has_begun:
            self._has_begun = True
            self.step(Tick())

    @property
    def has_lease(self) -> bool:
        """True if no other node can lead now, as far as clocks can be trusted. Serves to answer reads without a round
        of messages, and nothing else."""
        return self.election.has_lease(self._clock.monotonic_s())

    @property
    def alone_s(self) -> float:
        """Seconds since which surely no leader of an earlier term has had a lease; 0.0 if that is not known."""
        return self.election.alone_s(self._clock.monotonic_s())

    def may_promise(self, candidate: int) -> bool:
        return self.election.may_promise(candidate, self._clock.monotonic_s())

    def step(self, event: ElectionEvent) -> None:
        """Passes an event to the election core, and carries out its effects."""
        # Before it begins, all but these are of the past by the time the election looks at them.
        if self._has_begun or isinstance(event, LASTING):
            self._events.append(event)
        # An effect may cause another event; that one comes behind the rest of this step.
        if self._is_stepping or not self._has_begun:
            return
        self._is_stepping = True
        try:
            while self._events:
                for effect in self.election.step(self._events.popleft(), self._clock.monotonic_s()):
                    self._carry_out(effect)
        finally:
            self._is_stepping = False

    def receive(self, frame: ElectionFrame) -> None:
        """Handles a message of another node's election core; ignores one that is addressed to another id."""
        # A message to an earlier id of this disk may grant, or ask for, what the disk of now has not promised.
        if frame.to == self._host.current_id:
            self.step(Heard(frame.sender, frame.message))

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _carry_out(self, effect: ElectionEffect) -> None:
        match effect:
            case Tell(to, message):
                self._host.post(to, ElectionFrame(self._host.current_id, to, message))
            case Campaign():
                self._host.campaign()
            case Resign():
                self._host.demote()
            case LeaderChanged(leader):
                self._host.leader_changed(leader)
            case WakeAt(at_s):
                self._wake_at(at_s)

    def _wake_at(self, at_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        # Without a deadline the core waits for a message alone.
        if not isinf(at_s):
            delay_s = max(0.0, at_s - self._clock.monotonic_s())
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._wake, at_s)

    def _wake(self, at_s: float) -> None:
        """Signals the election core that its deadline has passed, or waits on if the timer fired early."""
        # Timers of event loops count in milliseconds: this one came early by a part of one, and the core would see no
        # deadline passed, ask for none, and sleep for ever.
        if self._clock.monotonic_s() < at_s:
            self._wake_at(at_s)
        else:
            self.step(Tick())
