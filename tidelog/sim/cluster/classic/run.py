"""The classic group of one run, from its first member to the last check.

begin -> members join, while brokers and members are disturbed -> settle: faults are over; all members must be in one
stable generation in time, static members keep theirs over a restart, and every committed offset is found
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial

from tidelog.model.groups import DescribeGroup
from tidelog.sim.cluster.classic.brokers import ClusterBrokers
from tidelog.sim.cluster.classic.member import FETCH_S, ClusterMember, MemberContext, read_back
from tidelog.sim.cluster.classic.rules import ClusterRules
from tidelog.sim.cluster.clients import FAILURES, AnyBroker, create
from tidelog.sim.cluster.group_traffic import Mishap
from tidelog.sim.cluster.groups.demands import STABLE
from tidelog.sim.cluster.groups.operator import Operator, has_lost_offsets
from tidelog.sim.cluster.ledger import Ledger
from tidelog.sim.cluster.traffic import TopicPlan
from tidelog.sim.cluster.truth import Truth
from tidelog.sim.cluster.world import World
from tidelog.sim.groups.brokers import TOPIC
from tidelog.sim.groups.member import GROUP
from tidelog.sim.groups.member import World as Shared
from tidelog.sim.groups.plan import GroupPlan, Seat
from tidelog.sim.groups.post import Post
from tidelog.sim.kit.loop import SimLoop
from tidelog.sim.kit.machine import Machine
from tidelog.sim.kit.process import LocalTime, Process
from tidelog.sim.kit.seeds import stream
from tidelog.sim.kit.tasks import cancel_all, raise_failures

STABLE_S_MAX = 10.0
"""Seconds that the group may take to become stable on a healthy cluster, in addition to twice the time that a join or
sync may take."""
QUIET_S = 2.0
"""Seconds after which every request that a member has sent to an earlier coordinator is over."""
LOOK_S = 0.1
RESTART_S = 0.2
"""Longest time in seconds until another process takes the place of one that has ended."""
SYNC_S_MAX = 3.0
"""Seconds for which a fault waits for a sync that it can hit."""
FIND_TRIES_MAX = 50
RACK_FACTOR = 3


class Classic:
    """The classic group of one run; it does nothing in a scenario without one."""

    def __init__(self, seed: int, world: World, truth: Truth, ledger: Ledger) -> None:
        plan = world.swarm.classic or GroupPlan(
            seats=(), partitions=0, session_s=0, rebalance_s=0, initial_delay_ms=0, late_rate=0
        )
        self._seed = seed
        self._plan = plan
        self._cluster = world
        self._truth = truth
        self._anywhere = partial(self._client, "classic group")
        self.rules = ClusterRules(truth, partial(has_lost_offsets, truth, ledger))
        brokers = self._brokers = ClusterBrokers(world, self._client("coordinator of the classic group"))
        self._post = Post(plan, brokers, stream(seed, "post of the classic group"))
        # A broker may be paused for as long as there are faults, and its deadlines run meanwhile.
        wait_s = plan.wait_s + world.swarm.chaos_s
        rng = self._rng = stream(seed, "classic group")
        self._shared = Shared(plan, brokers, self._post, self.rules, rng, wait_s)
        self._operator = Operator(truth, ledger, partial(self._client, "operator of the classic group"))
        self._asking = self._client("asking for the classic group")
        self._turns: list[int] = []
        self._members: dict[int, ClusterMember] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def _client(self, purpose: str) -> AnyBroker:
        return AnyBroker(self._cluster, stream(self._seed, purpose))

    @property
    def has_members(self) -> bool:
        """True if the scenario has a classic group."""
        return bool(self._plan.seats)

    # -- the run -----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Starts the members, and creates the topic whose offsets they commit."""
        if not self._plan.seats:
            return
        topic = TopicPlan(TOPIC, self._plan.partitions, RACK_FACTOR)
        self._tasks.append(asyncio.ensure_future(create(topic, self._client("topic of the classic group"))))
        self._tasks += [asyncio.ensure_future(self._seat(number, seat)) for number, seat in enumerate(self._plan.seats)]

    async def _seat(self, number: int, seat: Seat) -> None:
        """Runs a member's process, and starts another one whenever it has ended."""
        name, drift = f"{GROUP}-{number}", self._cluster.swarm.clock_drift
        rng, anywhere = stream(self._seed, f"clock {name}"), self._client(name)
        await asyncio.sleep(seat.joins_s)
        while True:
            process = Process(name, LocalTime(1 + rng.uniform(-drift, drift)))
            member = self._members[number] = ClusterMember(self._context(anywhere), seat, process)
            life = member.begin()
            try:
                await asyncio.wait((life,))
                if not life.cancelled():
                    life.result()
            finally:
                await member.crash()
            await asyncio.sleep(RESTART_S * self._rng.random())

    def _context(self, anywhere: AnyBroker) -> MemberContext:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        return MemberContext(loop, self._shared, anywhere, self._turns)

    async def befall(self, mishap: Mishap) -> None:
        """Disturbs a member, as the mishap says."""
        member = self._members.get(mishap.member % len(self._plan.seats))
        self._truth.note("mishap", mishap.kind, mishap.member, member is not None)
        if member is None:
            return
        self._truth.saw(f"mishap: {mishap.kind}")
        match mishap.kind:
            case "crash":
                await member.crash()
            case "sleep":
                member.pause()
                await asyncio.sleep(2 * self._plan.session_s * mishap.amount)
                member.resume()
            case "leave":
                member.is_leaving = True
            case "death at a sync":
                await self._die_at_sync(mishap)
            case _:
                member.metadata += b"1"

    async def _die_at_sync(self, mishap: Mishap) -> None:
        """Kills the coordinator's broker as soon as any member is told its assignment."""
        self.rules.sync_answered.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(SYNC_S_MAX):
                await self.rules.sync_answered.wait()
            self._truth.saw("coordinator died at a sync")
            async with self._cluster.keepers[self._brokers.leader].down(Machine.kill):
                await asyncio.sleep(mishap.lasts_s)

    # -- the end -----------------------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Ends the faults of the network between members and brokers, and makes the last checks."""
        if not self._plan.seats:
            return
        self._post.is_calm = True
        await self._post.drain()
        if await self._become_stable("stable") and await self._keep_static_members():
            await self._find_offsets()
            self._truth.saw("classic group at rest")

    async def _become_stable(self, rule: str) -> bool:
        """Demands that all members are in one stable generation in time, with one owner for each partition."""
        deadline_s = self._cluster.true_time + 2 * self._plan.wait_s + STABLE_S_MAX
        while (wrong := await self._unsettled()) is not None:
            raise_failures(self._tasks)
            if self._cluster.true_time > deadline_s:
                self.rules.violate(rule, wrong)
                return False
            await asyncio.sleep(LOOK_S)
        return True

    async def _unsettled(self) -> str | None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(FETCH_S):
                described = await self._asking.call(
                    lambda broker: broker.groups.ask(DescribeGroup(group=GROUP), deadline_s=loop.time() + FETCH_S)
                )
        except (TimeoutError, *FAILURES) as error:
            await self._operator.look()
            return f"the group cannot be described: {type(error).__name__}: {error}"
        members, generation = list(self._members.values()), described.group_epoch
        known, living = sorted(one.member_id for one in described.members), sorted(one.member_id for one in members)
        if described.state != STABLE:
            return f"the group is {described.state}"
        if known != living or len(members) < len(self._plan.seats):
            return f"{known} are in it, and {living} live"
        if any(member.generation != generation or not member.is_working for member in members):
            return f"not all are in generation {generation}"
        if sorted(one for member in members for one in member.owned) != list(range(self._plan.partitions)):
            return "not every partition has one owner"
        return None

    async def _keep_static_members(self) -> bool:
        """Restarts each static member, and demands that it has its partitions again, in the same generation."""
        for number, seat in enumerate(self._plan.seats):
            if seat.instance_id is None:
                continue
            await asyncio.sleep(QUIET_S)
            if not await self._become_stable("stable"):
                return False
            before = self._members[number]
            await before.crash()
            while self._members[number] is before:  # noqa: ASYNC110 - until its successor is started
                await asyncio.sleep(LOOK_S)
            if not await self._become_stable("static"):
                return False
            after = self._members[number]
            if (after.generation, after.owned) != (before.generation, before.owned):
                what = f"had {before.owned} in generation {before.generation}, and has {after.owned} in"
                self.rules.violate("static", f"{seat.instance_id} {what} {after.generation}")
            self._truth.saw("static member restarted in a stable generation")
        return True

    async def _find_offsets(self) -> None:
        """Fetches the committed offsets of all partitions, which the rules check."""
        error: Exception | None = None
        for _ in range(FIND_TRIES_MAX):
            try:
                await read_back(self._asking, self.rules, list(range(self._plan.partitions)))
                return
            except (TimeoutError, *FAILURES) as failure:
                error = failure
            await asyncio.sleep(LOOK_S)
        self.rules.violate("offsets", f"the committed offsets cannot be asked for: {error}")

    async def close(self) -> None:
        """Ends the processes of all members, and the requests that are still under way."""
        await cancel_all(self._tasks)
        self._post.is_calm = True
        await self._post.drain()

    def report(self) -> None:
        """Adds the group's counters to the run's result (`Truth`)."""
        self._truth.counters.update({f"classic: {name}": count for name, count in self.rules.counters.items()})
