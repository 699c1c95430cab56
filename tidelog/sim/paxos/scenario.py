"""A scenario: all that determines a run. Drawn whole from one number, and made smaller piece by piece when it fails.

Swarm testing (Groce et al., ISSTA 2012; TigerBeetle's VOPR): each seed draws its own parameters, and leaves whole kinds
of trouble out, because a run with a bit of everything rarely shows what two or three kinds do to each other.
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
    """False: the run begins with empty disks and the founding of the group."""
    delay_low: int
    delay_spread: int
    loss: float
    deafness: float
    """The chance that a notice or a copy of what was learned is lost: then only elections find out."""
    duplicate: float
    late: float
    """The chance that a message comes much later: from another life, perhaps."""
    late_ticks: int
    disk_ticks: int
    ambition: float
    """The chance that who lost an election tries again."""
    patience: int
    """Round trips after which an election, or an attempt to rejoin, is given up."""
    mood: str
    """The mood of a crash: it leaves none, all, or some of what was not durable, or some of it torn."""
    catchup_ticks: int
    spares: int = 0
    """Machines that are no voters at first. With any, the voters change and a lost disk is another voter; with none,
    the group is fixed and a lost disk rejoins."""

    @property
    def machines(self) -> int:
        return self.nodes + self.spares

    @property
    def round_trip(self) -> int:
        return 2 * (self.delay_low + self.delay_spread) + 2 + self.disk_ticks


class Scenario(msgspec.Struct, frozen=True):
    """Give it to `run_scenario`, and the same happens again."""

    seed: int
    swarm: Swarm
    steps: tuple[tuple[int, Action], ...]
    """Actions by their time."""
    dropped: tuple[int, ...] = ()
    """Messages that are lost, by their ordinals: for making a failing run smaller."""


def simpler(scenario: Scenario) -> Iterator[Scenario]:
    """Scenarios in which less happens."""
    swarm = scenario.swarm
    for chance in ("duplicate", "loss", "deafness", "late", "ambition"):
        yield structs.replace(scenario, swarm=structs.replace(swarm, **{chance: 0.0}))
    for ticks in ("delay_spread", "disk_ticks"):
        yield structs.replace(scenario, swarm=structs.replace(swarm, **{ticks: 0}))
    yield structs.replace(scenario, swarm=structs.replace(swarm, mood="none"))
    for window in range(1, min(3, swarm.window)):
        yield structs.replace(scenario, swarm=structs.replace(swarm, window=window))
