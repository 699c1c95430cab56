"""A scenario: all that determines a run. Drawn whole from one number, and made smaller piece by piece when it fails.

Swarm testing (Groce et al., ISSTA 2012; TigerBeetle's VOPR): each seed draws its own parameters and its own few kinds
of faults, because a run with a bit of everything rarely shows what two or three kinds do to each other.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

import msgspec

from tidelog.sim.cluster.groups.plans import GroupTraffic, Mishap
from tidelog.sim.cluster.traffic import Traffic


class Swarm(msgspec.Struct, frozen=True):
    """The parameters of one run. Seconds of virtual time; chances are 0 to 1."""

    voters: int
    """Brokers that found the cluster; their node ids are 1 and up."""
    learners: int
    """Brokers that join it; their node ids follow."""
    chaos_s: float
    """How long faults and orders go on, after that."""
    delay_min_s: float
    delay_mean_s: float
    """One way, of a frame."""
    disk_delay_s: float
    """Mean, of a blocking call."""
    clock_drift: float
    """Clocks run at rates in 1 +- this."""
    restart_s: float = 0.3
    """Until a service manager starts again what has ended."""
    is_calm_at_first: bool = True
    """False: faults begin with the founding of the cluster."""
    settings: dict[str, int | str] = {}
    """Of every broker, by dotted name."""
    traffic: Traffic = Traffic()
    """Topics with data, and their clients."""
    groups: GroupTraffic = GroupTraffic()
    """Consumer groups that read them."""

    @property
    def nodes(self) -> range:
        return range(1, 1 + self.voters + self.learners)

    @property
    def founders(self) -> range:
        return range(1, 1 + self.voters)


class Strike(msgspec.Struct, frozen=True, tag=True):
    """A fault, with its end. What `nodes` and `amount` mean is up to the kind (`tidelog.sim.cluster.nemesis`)."""

    at_s: float
    """After the beginning: when the cluster first came up, or when its founders start."""
    kind: str
    nodes: tuple[int, ...]
    lasts_s: float
    amount: float


Effects = dict[str, Callable[[Strike, random.Random], Awaitable[None]]]
"""What strikes do, by kind."""


class Order(msgspec.Struct, frozen=True, tag=True):
    """A command of an administrator, given to the broker `via`."""

    at_s: float
    kind: str
    via: int
    target: int
    """Which of the topics there are, counted round; or a number to be set."""
    timeout_s: float


Step = Strike | Order | Mishap


class Scenario(msgspec.Struct, frozen=True):
    """Give it to `run_scenario`, and the same happens again."""

    seed: int
    swarm: Swarm
    steps: tuple[Step, ...]
    """By their time."""
    ending: str = "healed"
    """How the run ends: `healed` (all come back, then a minority is lost for good) or `core` (only a majority of the
    voters comes back)."""


def encode_scenario(scenario: Scenario) -> str:
    return msgspec.json.encode(scenario).decode()


def decode_scenario(text: str) -> Scenario:
    """Raises `msgspec.DecodeError`."""
    return msgspec.json.decode(text, type=Scenario)
