"""A network that loses, repeats, delays and reorders messages, and whose links are cut in one direction at a time."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tidelog.replication.paxos.messages import Learned, LearnResponse, Message
from tidelog.sim.paxos.scenario import Scenario


class SimNetwork:
    """Decides when a message arrives, if at all. Every message takes the same number of random draws whatever happens
    to it, so that one message more or less changes a scenario as little as possible."""

    def __init__(self, scenario: Scenario, rng: random.Random) -> None:
        self.sent = 0
        """Ordinal of the next message."""
        self._swarm = scenario.swarm
        self._dropped = frozenset(scenario.dropped)
        self._rng = rng
        self._cut_until: dict[tuple[int, int], int] = {}
        self._connected: frozenset[tuple[int, int]] | None = None
        self._is_healed = False

    def cut(self, source: int, target: int, until: int) -> None:
        self._cut_until[source, target] = until

    def connect(self, links: tuple[tuple[int, int], ...]) -> None:
        """Restricts the network to these links from now on. Messages that are under way still arrive."""
        self._connected = frozenset(links)

    def _reaches(self, source: int, target: int, now: int) -> bool:
        if self._cut_until.get((source, target), 0) > now:
            return False
        return self._connected is None or (source, target) in self._connected

    def heal(self) -> None:
        """Ends all faults: from now on every message arrives once, in the usual time."""
        self._is_healed = True

    def delays(self, source: int, target: int, message: Message, now: int) -> Iterator[int]:
        """Yields the delay in ticks of each copy of a message that arrives; none if the message is lost."""
        self.sent += 1
        swarm, draw = self._swarm, self._rng.random
        delay = swarm.delay_low + int(draw() * (swarm.delay_spread + 1))
        loss, duplicate, late = draw(), draw(), draw()
        chance = max(swarm.loss, swarm.deafness) if isinstance(message, (Learned, LearnResponse)) else swarm.loss
        if self._is_healed:
            yield delay
        elif loss >= chance and self.sent not in self._dropped and self._reaches(source, target, now):
            yield delay + int(late / swarm.late * swarm.late_ticks) if late < swarm.late else delay
            if duplicate < swarm.duplicate:
                yield delay + 1 + int(duplicate / swarm.duplicate * swarm.late_ticks)
