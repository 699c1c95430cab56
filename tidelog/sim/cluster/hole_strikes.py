"""Faults that leave holes in the logs of Paxos partitions: the writes of some positions are lost on their way, whenever
they are sent, while those behind them arrive.

On a network such a hole is short: a packet is lost on one of several connections, or a connection breaks. Here it
lasts, so that leaders die over it.
"""

from __future__ import annotations

import asyncio
import random
from functools import partial

from tidelog.sim.cluster.forging import Message, read
from tidelog.sim.cluster.scenario import Effects, Strike
from tidelog.sim.cluster.world import World

LOSE_WRITES = "lose writes"
EVERYWHERE_SHARE = 0.7
"""Share of the holes whose writes are lost on the way to every broker."""
SOMEWHERE_CHANCE = 0.5
"""The chance of each broker that it does not get the writes of another hole."""

Place = tuple[str, int, int]
"""A position in a Paxos log: topic id, partition and position."""


class HoleStrikes:
    """Carries out the faults that make holes."""

    def __init__(self, world: World) -> None:
        self._world = world

    def effects(self) -> Effects:
        """Returns the functions that carry out the faults of this class, by the fault's name."""
        return {LOSE_WRITES: self._lose_writes}

    async def _lose_writes(self, strike: Strike, rng: random.Random) -> None:
        """Loses the writes of a share of all positions."""
        holes = _Holes(rng, share=0.1 + 0.3 * strike.amount)
        losses = {link: partial(self._loses, holes, link.target) for link in self._world.links()}
        for link, loses in losses.items():
            link.loses = loses
        await asyncio.sleep(strike.lasts_s)
        for link, loses in losses.items():
            # Another strike may have begun meanwhile.
            if link.loses is loses:
                link.loses = None

    def _loses(self, holes: _Holes, target: str, frame: bytes) -> bool:
        place = _place(frame)
        is_lost = place is not None and holes.has(place, target)
        self._world.truth.saw("write lost", is_lost)
        return is_lost


class _Holes:
    """The positions whose writes are lost on the way to some brokers, or to all."""

    def __init__(self, rng: random.Random, share: float) -> None:
        self._rng = rng
        self._share = share
        self._chances: dict[Place, float] = {}
        self._lost: dict[tuple[Place, str], bool] = {}

    def has(self, place: Place, target: str) -> bool:
        """Returns True if the writes of a position do not arrive at the machine with the address `target`."""
        if place not in self._chances:
            chance = 1.0 if self._rng.random() < EVERYWHERE_SHARE else SOMEWHERE_CHANCE
            self._chances[place] = chance if self._rng.random() < self._share else 0.0
        if (place, target) not in self._lost:
            self._lost[place, target] = self._rng.random() < self._chances[place]
        return self._lost[place, target]


def _place(frame: bytes) -> Place | None:
    """Returns the place that a write is for, in a Paxos partition; None for any other frame."""
    if b"WriteRequest" not in frame:
        return None
    parts = read(frame)
    message: Message = {} if parts is None else parts[1]
    if message.get("type") != "PartitionFrame" or message["frame"]["message"]["type"] != "WriteRequest":
        return None
    return message["topic_id"], message["partition"], message["frame"]["message"]["position"]
