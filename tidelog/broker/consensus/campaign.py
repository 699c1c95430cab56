"""An `Election` at work: clock and messages in, campaigns of the engine out."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from math import isinf

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
"""What must not be missed by an election that has not begun: nobody says it again."""


class Campaigner:
    """One voter's or learner's part in the elections. All methods are for the event loop's thread."""

    def __init__(
        self,
        election: Election,
        post: Callable[[int, ElectionFrame], None],
        campaign: Callable[[], None],
        resign: Callable[[], None],
        leader_changed: Callable[[int | None], None],
        *,
        me: Callable[[], int],
        clock: Clock,
    ) -> None:
        self.election = election
        self._post = post
        self._campaign = campaign
        self._resign = resign
        self._leader_changed = leader_changed
        self._me = me
        self._clock = clock
        self._events: deque[ElectionEvent] = deque()
        self._is_stepping = False
        self._timer: asyncio.TimerHandle | None = None
        self._has_begun = False

    def begin(self) -> None:
        """Takes part from now on: before a replica may vote, to be elected would be of no use. Who votes may
        have changed meanwhile, by what the disk held."""
        if not self._has_begun:
            self._has_begun = True
            self.step(Tick())

    @property
    def has_lease(self) -> bool:
        """True if nobody else can lead now, by the clocks; of use to answer without a round, and to nothing else."""
        return self.election.has_lease(self._clock.monotonic_s())

    def may_promise(self, candidate: int) -> bool:
        return self.election.may_promise(candidate, self._clock.monotonic_s())

    def step(self, event: ElectionEvent) -> None:
        """Tells the core, and does what it asks for."""
        if self._has_begun or isinstance(event, LASTING):
            self._events.append(event)
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
        """Takes a peer's message, if it was sent to this id."""
        if frame.to == self._me():
            self.step(Heard(frame.sender, frame.message))

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _carry_out(self, effect: ElectionEffect) -> None:
        match effect:
            case Tell(to, message):
                self._post(to, ElectionFrame(self._me(), to, message))
            case Campaign():
                self._campaign()
            case Resign():
                self._resign()
            case LeaderChanged(leader):
                self._leader_changed(leader)
            case WakeAt(at_s):
                self._wake_at(at_s)

    def _wake_at(self, at_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if not isinf(at_s):
            delay_s = max(0.0, at_s - self._clock.monotonic_s())
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._wake, at_s)

    def _wake(self, at_s: float) -> None:
        """Loops count in milliseconds: one that is early by a part of one must not let the core sleep on for ever."""
        if self._clock.monotonic_s() < at_s:
            self._wake_at(at_s)
        else:
            self.step(Tick())
