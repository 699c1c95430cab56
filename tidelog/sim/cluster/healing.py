"""The end of every run: without faults the cluster must work again, within bounded time.

Transient faults hide livelocks: the next one shakes the cluster loose (TigerBeetle's liveness mode). So at the end the
faults stop. First all brokers come back; then a random core, a bare majority of the voters, goes on while all others
are lost for good. Each time there must be a controller, a topic can be created through any broker, and all live brokers
have equal images.

One case is excused, and counted: a metadata log whose only voter lost the entry that it was writing to failing
fsyncs. It cannot tell that entry from one that it has promised, and waits for an operator.

A core right after the faults, without all brokers coming back first, is demanded only if no change of voters is under
way: such a change may need brokers of the other set.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from tidelog.broker.broker import NewTopic
from tidelog.model.errors import TidelogError
from tidelog.sim.cluster.disk_strikes import METADATA
from tidelog.sim.cluster.watch import Watch
from tidelog.sim.cluster.world import World
from tidelog.sim.kit.faults import NO_FAULTS
from tidelog.sim.kit.machine import ConnectionLost, Unreachable
from tidelog.sim.kit.medium import CAPACITY_BYTES

LIVE_S_MAX = 45.0
"""Seconds that a cluster without faults may need to work again: sessions, elections and replaced voters, one after the
other."""
LOOK_S = 0.05
TRY_S = 3.0
BEYOND_HELP = "excused wait of an only voter"
"""Counter of the excused cases in which an only voter waits for an operator. Too rare to be expected in 500 seeds."""


class Healing:
    """Ends the faults of one run and demands that the cluster works again."""

    def __init__(self, world: World, watch: Watch, rng: random.Random) -> None:
        self._world = world
        self._watch = watch
        self._rng = rng
        self._topics = 0

    async def run(self, *, core_at_once: bool, settle: Callable[[], Awaitable[None]]) -> None:
        """Ends the faults and demands that the cluster works; `settle` is awaited when all brokers are back."""
        self._end_faults()
        nodes = list(self._world.swarm.nodes)
        is_settled = core_at_once and self._watch.is_settled()
        if not is_settled:
            if not await self._demand("everything is back", nodes):
                return
            await settle()
        core = self._draw_core()
        if core is not None:
            self._world.truth.note("core", *core)
            self._world.truth.saw("core lives on")
            await self._world.lose([node for node in self._world.swarm.nodes if node not in core])
            await self._demand("only a core is left", core)

    def _end_faults(self) -> None:
        world, swarm = self._world, self._world.swarm
        for link in world.links():
            link.heal()
            link.delay_s_min, link.delay_s_mean = swarm.delay_min_s, swarm.delay_mean_s
            link.tail_rate = link.break_rate = link.replay_rate = 0.0
        for node in swarm.nodes:
            machine = world.machine(node)
            machine.resume()
            machine.change_disk_delay(swarm.disk_delay_s)
            medium = machine.disk.medium
            medium.faults, medium.capacity_bytes = NO_FAULTS, CAPACITY_BYTES

    def _draw_core(self) -> list[int] | None:
        """Draws a majority of the voters and some of the other brokers; None if that would be all brokers, or a voter's
        disk has lost data."""
        voters = [voter.node_id for voter in self._world.voters]
        others = [node for node in self._world.swarm.nodes if node not in voters]
        if any(voter.incarnation in self._world.destroyed for voter in self._world.voters):
            return None
        core = self._rng.sample(voters, len(voters) // 2 + 1)
        core += self._rng.sample(others, self._rng.randint(0, len(others)))
        return sorted(core) if len(core) < len(self._world.swarm.nodes) else None

    # -- life --------------------------------------------------------------------------------------------------------

    async def _demand(self, when: str, nodes: list[int]) -> bool:
        missing = "nothing was looked at"
        deadline_s = self._world.true_time + LIVE_S_MAX
        while self._world.true_time < deadline_s:
            missing = await self._what_is_missing(nodes)
            if not missing:
                self._world.truth.note("alive", when)
                return True
            await asyncio.sleep(LOOK_S)
        if self._is_beyond_help():
            self._world.truth.note("beyond help", when)
            self._world.truth.saw(BEYOND_HELP)
            return False
        self._world.truth.violate("liveness", f"{when} (nodes {nodes}): after {LIVE_S_MAX:.0f} s {missing}")
        return False

    def _is_beyond_help(self) -> bool:
        """Returns True if the only voter rightly waits for an operator: the entry being written when fsyncs failed is
        half there, and the voter cannot tell whether it was chosen. It was not: no broker has ever applied it."""
        if len(self._world.voters) != 1:
            return False
        node = self._world.voters[0].node_id
        machine = self._world.machine(node)
        positions = self._watch.unreadable.get(node, [])
        return (
            not machine.is_up
            and bool(positions)
            and not any(position in self._world.truth.log for position in positions)
            and any(
                path.startswith(METADATA) and file.has_failed_sync for path, file in machine.disk.medium.walk().items()
            )
        )

    async def _what_is_missing(self, nodes: list[int]) -> str:
        self._world.check_keepers()
        down = [node for node in nodes if not self._world.machine(node).is_up]
        if down:
            errors = [error for node in down for error in self._world.keepers[node].start_errors[-1:]]
            return f"nodes {down} are not up {errors or ''}"
        refusal = await self._create_topic(self._rng.choice(nodes))
        return refusal or self._disagreement(nodes)

    async def _create_topic(self, node: int) -> str:
        self._topics += 1
        topic = NewTopic(f"final{self._topics}", 1, 1)
        try:
            async with asyncio.timeout(TRY_S):
                await self._world.machine(node).call(lambda broker: broker.admin.create_topic(topic))
        except (TidelogError, TimeoutError, ConnectionLost, Unreachable) as error:
            return f"no topic can be created on node {node}: {type(error).__name__}: {error}"
        return ""

    def _disagreement(self, nodes: list[int]) -> str:
        """Returns how the brokers disagree: one has ended, is fenced, or has another image. Empty if they agree."""
        images = [broker.image for node in nodes if (broker := self._world.machine(node).broker) is not None]
        if len(images) < len(nodes):
            return "a broker has ended"
        fenced = [node for node in nodes if not images[0].is_live(node)]
        if fenced:
            return f"nodes {fenced} are fenced"
        if any(image != images[0] for image in images):
            return f"images differ: positions {[image.position for image in images]}"
        return ""
