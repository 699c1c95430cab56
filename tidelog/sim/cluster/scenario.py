"""A scenario: all that determines a run. It is drawn from one number, and made smaller piece by piece when it fails.

Swarm testing (Groce et al., ISSTA 2012; TigerBeetle's VOPR): each seed draws its own parameters and its own few kinds
of faults, because a run with a bit of everything rarely shows what two or three kinds do to each other.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator

import msgspec
from msgspec import structs

from tidelog.sim.cluster.group_traffic import GroupTraffic, Mishap, simpler_groups
from tidelog.sim.cluster.traffic import Traffic
from tidelog.sim.groups.plan import GroupPlan, simpler_plan


class Swarm(msgspec.Struct, frozen=True):
    """Parameters of one run. Times are seconds of virtual time; chances are 0 to 1."""

    voters: int
    """Number of brokers that bootstrap the cluster; their node ids start at 1."""
    learners: int
    """Number of brokers that join the cluster later; their node ids follow."""
    chaos_s: float
    """Seconds for which faults and orders go on after the start."""
    delay_min_s: float
    delay_mean_s: float
    """The mean delay of a frame, one way."""
    disk_delay_s: float
    """Mean seconds of a blocking call to the disk."""
    clock_drift: float
    """Largest deviation of a clock's rate: rates are drawn from 1 minus this to 1 plus this."""
    restart_s: float = 0.3
    """Seconds until a service manager restarts a broker that has ended."""
    patience_s: float = 0.0
    """Seconds that clients wait for a broker's answer before they ask another one; 0: without limit."""
    is_calm_at_first: bool = True
    """True if faults begin only when the founders are up; False if they begin with the bootstrap of the cluster."""
    settings: dict[str, int | str] = {}
    """The settings of every broker, by dotted name."""
    first_level: tuple[int, ...] = ()
    """Nodes that support the first feature level only, as brokers of the oldest version do. A majority of the founders,
    or none: the first controller sets the cluster's level by the brokers that it hears."""
    has_secret: bool = False
    """True if the brokers authenticate each other by a shared secret."""
    traffic: Traffic = Traffic()
    """Topics with data, and their clients."""
    groups: GroupTraffic = GroupTraffic()
    """Consumer groups that read the topics with data."""
    classic: GroupPlan | None = None
    """A group whose members speak the classic protocol; only stories about it have one."""

    @property
    def nodes(self) -> range:
        return range(1, 1 + self.voters + self.learners)

    @property
    def founders(self) -> range:
        return range(1, 1 + self.voters)


class Strike(msgspec.Struct, frozen=True, tag=True):
    """A fault with its duration. The meaning of `nodes` and `amount` depends on the kind
    (`tidelog.sim.cluster.nemesis`)."""

    at_s: float
    """Seconds after the cluster first came up; if `Swarm.is_calm_at_first` is False, after the start of its
    founders."""
    kind: str
    nodes: tuple[int, ...]
    lasts_s: float
    amount: float


Effects = dict[str, Callable[[Strike, random.Random], Awaitable[None]]]
"""Coroutine functions that carry out faults, by the fault's name."""


class Order(msgspec.Struct, frozen=True, tag=True):
    """A command of an administrator, given to the broker `via`."""

    at_s: float
    kind: str
    via: int
    target: int
    """Number from which, depending on the kind, the topic, partition or broker is selected (modulo their number), and
    values such as partition counts are derived."""
    timeout_s: float


Step = Strike | Order | Mishap


class Scenario(msgspec.Struct, frozen=True):
    """All that determines a run: `run_scenario` replays the same run from it."""

    seed: int
    swarm: Swarm
    steps: tuple[Step, ...]
    """The steps, ordered by time."""
    ending: str = "healed"
    """End of the run: `healed` (all brokers come back, then a minority is lost for good) or `core` (only a majority of
    the voters comes back)."""


def encode_scenario(scenario: Scenario) -> str:
    return msgspec.json.encode(scenario).decode()


def decode_scenario(text: str) -> Scenario:
    """Reads a scenario from JSON. Raises `msgspec.DecodeError`."""
    return msgspec.json.decode(text, type=Scenario)


def simpler(scenario: Scenario) -> Iterator[Scenario]:
    """Yields simpler scenarios for shrinking: with fewer parts, or shorter faults."""
    for swarm in _simpler_swarms(scenario.swarm):
        yield structs.replace(scenario, swarm=swarm)
    for number, step in enumerate(scenario.steps):
        if isinstance(step, (Strike, Mishap)) and step.lasts_s > 0.1:
            shorter = structs.replace(step, lasts_s=round(step.lasts_s / 2, 4))
            yield structs.replace(scenario, steps=(*scenario.steps[:number], shorter, *scenario.steps[number + 1 :]))


def _simpler_swarms(swarm: Swarm) -> Iterator[Swarm]:
    if swarm.learners:
        yield structs.replace(swarm, learners=swarm.learners - 1)
    if swarm.groups.groups:
        yield structs.replace(swarm, groups=GroupTraffic())
        yield from (structs.replace(swarm, groups=groups) for groups in simpler_groups(swarm.groups))
    if swarm.classic is not None:
        yield from (structs.replace(swarm, classic=plan) for plan in simpler_plan(swarm.classic))
    yield structs.replace(swarm, traffic=Traffic(), groups=GroupTraffic())
    traffic = swarm.traffic
    for producer in traffic.producers:
        fewer = tuple(kept for kept in traffic.producers if kept is not producer)
        yield structs.replace(swarm, traffic=structs.replace(traffic, producers=fewer))
    yield structs.replace(swarm, traffic=structs.replace(traffic, tunes=False))
    yield structs.replace(swarm, first_level=())
    yield structs.replace(swarm, clock_drift=0.0)
    yield structs.replace(swarm, delay_min_s=0.0, delay_mean_s=0.0005)
    yield structs.replace(swarm, disk_delay_s=0.0005)
    yield structs.replace(swarm, is_calm_at_first=True)
    yield structs.replace(swarm, settings=dict(swarm.settings) | {"metadata.log.snapshot.records": 1_000})
