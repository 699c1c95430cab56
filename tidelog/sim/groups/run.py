"""A run of the simulated group: members join, coordinator and members are disturbed, the faults end, and the group has
to become stable."""

from __future__ import annotations

import asyncio
import zlib
from collections import Counter
from typing import TypeAlias, Unpack

from tidelog.groups.classic.state import ClassicGroup, Phase
from tidelog.model.errors import TidelogError
from tidelog.sim.groups.brokers import TOPIC, Brokers
from tidelog.sim.groups.member import GROUP, Member, World
from tidelog.sim.groups.plan import MOVES, Scenario, Seat, Step, draw_scenario
from tidelog.sim.groups.post import Post
from tidelog.sim.groups.rules import Rules
from tidelog.sim.kit.batches import Batch, How, run_seeds
from tidelog.sim.kit.loop import run
from tidelog.sim.kit.machine import ConnectionLost
from tidelog.sim.kit.outcome import ScenarioOutcome
from tidelog.sim.kit.seeds import stream
from tidelog.sim.kit.tasks import cancel_all

Outcome: TypeAlias = ScenarioOutcome[Scenario]
SETTLED_S_MAX = 10.0
"""Seconds that the group may take to become stable after the last fault, in addition to twice the time that a join or
sync may take."""
LOOK_S = 0.05
SOMETIMES = (
    "join told of another coordinator",
    "sync told of another coordinator",
    "static member fenced",
    "struck while PreparingRebalance",
    "struck while CompletingRebalance",
    "struck while Stable",
    "commit refused",
)


class Broken(AssertionError):
    """Error of a run in which a rule was broken."""


class Run:
    """The brokers, members and rules of one run."""

    def __init__(self, scenario: Scenario) -> None:
        self.rules = Rules()
        self._scenario = scenario
        rng = stream(scenario.seed, "run")
        self._brokers = Brokers(scenario, stream(scenario.seed, "brokers"), self._failed)
        self._post = Post(scenario, self._brokers, stream(scenario.seed, "post"))
        self._world = World(scenario, self._brokers, self._post, self.rules, rng, scenario.wait_s)
        self._members: dict[int, Member] = {}
        self._lives: dict[int, asyncio.Task[None]] = {}
        self._striking: list[asyncio.Task[None]] = []

    def _failed(self) -> None:
        self.rules.violate("no failure", "a task of a coordinator has ended by an error that nobody foresaw")

    async def play(self) -> None:
        """Runs the scenario from its first action to the last check."""
        seats = [asyncio.ensure_future(self._seat(number, seat)) for number, seat in enumerate(self._scenario.seats)]
        try:
            await self._happen()
            await self._settle()
            await self._look_at_offsets()
        finally:
            await cancel_all(seats)
            self._post.is_calm = True
            await self._post.drain()
            await self._brokers.close()

    async def _seat(self, number: int, seat: Seat) -> None:
        """Runs a member's process, and starts another one whenever it has ended."""
        await asyncio.sleep(seat.joins_s)
        while True:
            member = self._members[number] = Member(self._world, seat)
            life = self._lives[number] = asyncio.ensure_future(member.live())
            try:
                await asyncio.wait((life,))
                if not life.cancelled():
                    life.result()
            finally:
                await cancel_all((life,))
            await asyncio.sleep(0.2 * self._world.rng.random())

    # -- what happens ------------------------------------------------------------------------------------------------

    async def _happen(self) -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        for step in self._scenario.steps:
            await asyncio.sleep(max(0.0, began_s + step.at_s - loop.time()))
            self._striking.append(asyncio.ensure_future(self._strike(step)))
        await asyncio.sleep(max(0.0, began_s + self._scenario.chaos_s - loop.time()))
        await asyncio.gather(*self._striking)

    async def _strike(self, step: Step) -> None:
        if step.action in MOVES:
            phase = "not loaded" if self._group is None else self._group.phase.value
            self.rules.counters[f"struck while {phase}"] += 1
            await self._brokers.strike(step.action, step.lasts_s)
            return
        number = step.seat % len(self._scenario.seats)
        member, life = self._members.get(number), self._lives.get(number)
        if member is None or life is None:
            return
        self.rules.counters[step.action] += 1
        match step.action:
            case "crash":
                life.cancel()
            case "sleep":
                member.asleep_s = 2 * self._scenario.session_s * step.lasts_s
            case "leave":
                member.is_leaving = True
            case _:
                member.metadata += b"1"

    # -- the end -----------------------------------------------------------------------------------------------------

    @property
    def _group(self) -> ClassicGroup | None:
        coordinator = self._brokers.coordinator
        shard = None if coordinator is None else coordinator.shard
        group = None if shard is None else shard.groups.get(GROUP)
        return None if group is None else group.classic

    async def _settle(self) -> None:
        """Ends all faults, and demands that all members are in one generation in time, with one owner for each
        partition."""
        self._post.is_calm = True
        self._brokers.be_calm()
        await self._post.drain()
        loop = asyncio.get_running_loop()
        until_s = loop.time() + 2 * self._world.wait_s + SETTLED_S_MAX
        while (wrong := self._unsettled()) is not None:
            if loop.time() > until_s:
                self.rules.violate("stable", wrong)
                return
            await asyncio.sleep(LOOK_S)

    def _unsettled(self) -> str | None:
        group = self._group
        if group is None or group.phase is not Phase.STABLE:
            return f"the group is {None if group is None else group.phase}"
        members = list(self._members.values())
        if sorted(group.members) != sorted(member.member_id for member in members):
            return f"{sorted(group.members)} are in it, and {sorted(member.member_id for member in members)} live"
        if any(member.generation != group.generation for member in members):
            return f"not all are in generation {group.generation}"
        if sorted(one for member in members for one in member.owned) != list(range(self._scenario.partitions)):
            return "not every partition has one owner"
        return None

    async def _look_at_offsets(self) -> None:
        """Makes each member leave the group, and demands that the last commits are found then."""
        for member in self._members.values():
            member.is_leaving = True
        await asyncio.sleep(2.0)
        coordinator = self._brokers.coordinator
        shard = None if coordinator is None else coordinator.shard
        if self.rules.violations or shard is None:
            return
        offsets = shard.groups[GROUP].offsets
        kept = [offsets.get((TOPIC, number)) for number in range(self._scenario.partitions)]
        self.rules.found({number: None if one is None else one.offset for number, one in enumerate(kept)})


def run_scenario(scenario: Scenario) -> Outcome:
    """Runs a scenario; returns its outcome."""
    rules = Rules()
    failure: Exception | None = None

    async def main() -> None:
        nonlocal rules
        played = Run(scenario)
        rules = played.rules
        await played.play()

    try:
        run(main, scenario.seed)
    except (AssertionError, RuntimeError, TidelogError, ConnectionLost) as error:
        failure = error
    if rules.violations:
        failure = Broken("; ".join(rules.violations[:3]))
    counters = Counter({name: count for name, count in rules.counters.items() if count})
    trace = zlib.crc32(repr(sorted(counters.items())).encode())
    return Outcome(scenario, counters["commit kept"], trace, counters, failure)


def run_seed(seed: int) -> Outcome:
    """Runs the scenario of a seed; returns its outcome."""
    return run_scenario(draw_scenario(seed))


def run_groups(first: int, count: int, **how: Unpack[How[Outcome]]) -> Batch[Outcome]:
    """Runs these seeds, on `jobs` processes, until `failures_max` runs have failed."""
    return run_seeds(run_seed, first, count, sometimes=SOMETIMES, **how)
