"""A scenario: all that determines a run. It is drawn from one seed, and reduced piece by piece when it fails.

Swarm testing (Groce et al., ISSTA 2012; TigerBeetle's VOPR): each seed draws its own parameters and leaves out whole
kinds of faults, because a run with some of every kind rarely shows how two or three kinds interact.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import structs

from tidelog.sim.paxos.actions import Action


class Swarm(msgspec.Struct, frozen=True):
    """The parameters of one run. Times are ticks, chances 0 to 1."""

    nodes: int
    window: int
    is_founded: bool
    """True if the group exists before the run; otherwise the run begins with empty disks and the founding of the
    group."""
    delay_low: int
    delay_spread: int
    loss: float
    deafness: float
    """Chance that a message about a learned value is lost, so that only elections find it."""
    duplicate: float
    late: float
    """Chance that a message arrives much later, perhaps after its sender or receiver has restarted."""
    late_ticks: int
    disk_ticks: int
    ambition: float
    """Chance that a node that lost an election tries again."""
    patience: int
    """Round trips after which an election, or an attempt to rejoin, is given up."""
    mood: str
    """Effect of a crash on writes that were not durable: none, all or some of them survive, or some of them torn."""
    catchup_ticks: int
    spares: int = 0
    """Number of machines that are not voters at first. If there are any, the voters change and a lost disk is replaced
    by another voter; if there are none, the group is fixed and a node with a lost disk rejoins."""
    keys: int = 0
    """Number of keys that the clients' batches have in a log that is ordered by key; 0 for a log in total order."""

    @property
    def machines(self) -> int:
        return self.nodes + self.spares

    @property
    def round_trip(self) -> int:
        return 2 * (self.delay_low + self.delay_spread) + 2 + self.disk_ticks


class Scenario(msgspec.Struct, frozen=True):
    """Everything that determines a run: `run_scenario` repeats it exactly."""

    seed: int
    swarm: Swarm
    steps: tuple[tuple[int, Action], ...]
    """Actions with their times in ticks."""
    dropped: tuple[int, ...] = ()
    """Ordinals of messages that are lost, to reduce a failing run."""


def simpler(scenario: Scenario) -> Iterator[Scenario]:
    """Yields scenarios in which less happens."""
    swarm = scenario.swarm
    for chance in ("duplicate", "loss", "deafness", "late", "ambition"):
        yield structs.replace(scenario, swarm=structs.replace(swarm, **{chance: 0.0}))
    for ticks in ("delay_spread", "disk_ticks"):
        yield structs.replace(scenario, swarm=structs.replace(swarm, **{ticks: 0}))
    yield structs.replace(scenario, swarm=structs.replace(swarm, mood="none"))
    for window in range(1, min(3, swarm.window)):
        yield structs.replace(scenario, swarm=structs.replace(swarm, window=window))
