"""Runs a scenario: one process, one virtual clock, all brokers of the cluster.

founders start -> come up -> faults and orders, side by side -> healing -> the last checks
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Sequence

from structlog.testing import capture_logs

from tidelog.model.cluster import TOTAL
from tidelog.sim.cluster.administrator import Administrators
from tidelog.sim.cluster.classic.run import Classic
from tidelog.sim.cluster.data import Data
from tidelog.sim.cluster.drawing import MOVES, draw_scenario
from tidelog.sim.cluster.families import ON, Family
from tidelog.sim.cluster.group_traffic import Mishap
from tidelog.sim.cluster.groups.run import Groups
from tidelog.sim.cluster.groups.watch import GroupWatch
from tidelog.sim.cluster.healing import LIVE_S_MAX, LOOK_S, Healing
from tidelog.sim.cluster.ledger import Ledger
from tidelog.sim.cluster.movers import Movers
from tidelog.sim.cluster.nemesis import Nemesis
from tidelog.sim.cluster.paxos_watch import PaxosWatch
from tidelog.sim.cluster.refusal_watch import RefusalWatch
from tidelog.sim.cluster.replica_watch import ReplicaWatch
from tidelog.sim.cluster.rules import all_rules
from tidelog.sim.cluster.scenario import Scenario, Step, Strike, simpler
from tidelog.sim.cluster.sometimes import RUNS_WITH_GROUPS, RUNS_WITH_HOLES, count_logs, count_steps, runs_with
from tidelog.sim.cluster.stories import Story, draw_story
from tidelog.sim.cluster.traffic import Mix
from tidelog.sim.cluster.truth import Truth
from tidelog.sim.cluster.watch import Watch
from tidelog.sim.cluster.world import World
from tidelog.sim.kit import loop as sim_loop
from tidelog.sim.kit.collection import no_collection
from tidelog.sim.kit.loop import SimLoop
from tidelog.sim.kit.outcome import Outcome
from tidelog.sim.kit.process import owned_task
from tidelog.sim.kit.seeds import stream
from tidelog.sim.kit.shrink import Shrinking

SHRINK_RUNS_MAX = 300


def run_seed(seed: int, mix: Mix | None = None, groups: bool | None = None, families: Sequence[Family] = ON) -> Outcome:
    """Runs one seed to its end. `mix` (commit protocols) and `groups` (consumer groups) override what the seed draws;
    faults of these `families` are added."""
    return run_scenario(draw_scenario(seed, mix, groups, families))


def run_story(story: Story, seed: int) -> Outcome:
    """Runs the short scenario of a seed about one family of faults, or about a classic group (`draw_story`)."""
    return run_scenario(draw_story(story, seed))


def shrink(scenario: Scenario, *, runs_max: int = SHRINK_RUNS_MAX) -> Scenario:
    """Returns a smaller scenario that breaks the same rule as this one, after `runs_max` runs at most. The scenario
    must fail."""
    broken = _broken_rules(run_scenario(scenario))
    assert broken, "this scenario does not fail"

    def fails(candidate: Scenario) -> bool:
        return bool(broken & _broken_rules(run_scenario(candidate)))

    return Shrinking(scenario, fails, runs_max=runs_max).run(simpler)


def _broken_rules(outcome: Outcome) -> set[str]:
    return {violation.partition(":")[0] for violation in outcome.violations}


def run_scenario(scenario: Scenario, *, keeps_events: bool = False) -> Outcome:
    """Runs a scenario to its end. An error that no code handled is a violation too.

    The outcome has the events line by line if the run has failed, or with `keeps_events`.
    """
    ledger = Ledger()
    truth = Truth([*all_rules(), ledger])
    ledger.attach(truth)
    run = Run(scenario, truth, ledger)
    with capture_logs() as logs, no_collection():
        try:
            sim_loop.run(run.run, scenario.seed)
        except Exception as error:  # noqa: BLE001 - the batch goes on, the seed has failed
            truth.events += traceback.format_exception(error)
            truth.violate("crash", f"{type(error).__name__}: {error}")
    count_logs(truth, logs)
    count_steps(truth)
    if scenario.swarm.groups.groups:
        truth.counters[RUNS_WITH_GROUPS] = 1
    else:  # the topics of groups are never lossy: what that brings about is not to be expected of them
        for topic in scenario.swarm.traffic.topics:
            truth.counters[runs_with(topic.protocol)] = 1
            if topic.order != TOTAL:
                truth.counters[RUNS_WITH_HOLES] = 1
    return Outcome(
        scenario.seed,
        tuple(truth.violations),
        truth.hash.hexdigest() + "".join(run.disk_traces),
        truth.counters,
        run.records_acknowledged,
        tuple(truth.events) if truth.violations or keeps_events else (),
    )


class Run:
    """The run of one scenario."""

    def __init__(self, scenario: Scenario, truth: Truth, ledger: Ledger) -> None:
        self.disk_traces: list[str] = []
        self.records_acknowledged = 0
        self._scenario = scenario
        self._truth = truth
        self._ledger = ledger

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        loop.set_task_factory(owned_task)
        self._truth.clock = lambda: loop.true_time
        world = World(self._scenario.seed, self._scenario.swarm, self._truth)
        world.may_lose_data = self._ledger.may_wipe
        watch = Watch(world)
        data = Data(self._scenario.seed, world, self._truth, self._ledger)
        groups = Groups(self._scenario.seed, world, self._truth, self._ledger, data.history)
        classic = Classic(self._scenario.seed, world, self._truth, self._ledger)
        looking = asyncio.ensure_future(_look(world))
        try:
            with (
                watch.open(),
                ReplicaWatch(world, self._ledger).open(),
                PaxosWatch(world, self._ledger).open(),
                GroupWatch(world.swarm.groups, self._truth).open(),
                RefusalWatch(self._scenario, self._truth).open(),
            ):
                try:
                    await self._play(world, watch, data, groups, classic)
                finally:
                    looking.cancel()
                    await groups.close()
                    await classic.close()
                    await data.close()
                    await world.close()
        finally:
            data.report()
            groups.report()
            classic.report()
            self.records_acknowledged = data.history.records_acknowledged
            self.disk_traces = [keeper.machine.disk.medium.trace() for keeper in world.keepers.values()]

    async def _play(self, world: World, watch: Watch, data: Data, groups: Groups, classic: Classic) -> None:
        scenario, swarm = self._scenario, self._scenario.swarm
        world.start(swarm.founders)
        if swarm.is_calm_at_first:
            await self._wait_until_up(world)
        data.begin()
        groups.begin()
        classic.begin()
        nemesis, administrators = Nemesis(scenario.seed, world, self._ledger), Administrators(world, self._truth)
        movers = Movers(scenario.seed, world, self._truth)
        async with asyncio.TaskGroup() as group:
            for node in swarm.nodes[swarm.voters :]:
                group.create_task(_join(world, node, stream(scenario.seed, f"join {node}").random() * swarm.chaos_s))
            for number, step in enumerate(scenario.steps):
                group.create_task(_take(step, number, nemesis, administrators, movers, groups, classic))
        healing = Healing(world, watch, stream(scenario.seed, "healing"))
        core_at_once = scenario.ending == "core" and not swarm.traffic.topics

        async def settle() -> None:
            await groups.become_stable()
            await data.settle()
            await groups.drain()
            await groups.close()
            await classic.settle()
            await classic.close()

        await healing.run(core_at_once=core_at_once, settle=settle)
        administrators.check_all()

    async def _wait_until_up(self, world: World) -> None:
        deadline_s = world.true_time + LIVE_S_MAX
        while not all(world.machine(node).is_up for node in world.swarm.founders):
            world.check_keepers()
            if world.true_time > deadline_s:
                self._truth.violate("liveness", f"the cluster does not come up in {LIVE_S_MAX:.0f} s")
                return
            await asyncio.sleep(LOOK_S)


async def _join(world: World, node: int, at_s: float) -> None:
    await asyncio.sleep(at_s)
    world.start(range(node, node + 1))


async def _take(
    step: Step,
    number: int,
    nemesis: Nemesis,
    administrators: Administrators,
    movers: Movers,
    groups: Groups,
    classic: Classic,
) -> None:
    """Carries out a step of the scenario at its time."""
    await asyncio.sleep(step.at_s)
    if isinstance(step, Strike):
        await nemesis.strike(step)
    elif isinstance(step, Mishap) and classic.has_members:
        await classic.befall(step)
    elif isinstance(step, Mishap):
        if step.group < len(groups):
            await groups.befall(step, administrators)
    elif step.kind in MOVES:
        await movers.carry_out(number, step)
    else:
        await administrators.carry_out(number, step)


async def _look(world: World) -> None:
    """Compares all brokers' images with the true metadata, from time to time."""
    while True:
        await asyncio.sleep(LOOK_S)
        for node, machine in world.running():
            if machine.broker is not None and machine.is_up:
                world.truth.look(node, machine.broker.image)
