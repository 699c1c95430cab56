"""The consumer groups of one run, from their first member to the final checks.

begin -> members join, while brokers and members are disturbed -> become_stable: faults are over, each group settles ->
drain: producers have stopped, and everything is handed out and committed
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from tidelog.model.groups import DescribeGroup, FetchOffsets, GroupDescription, OffsetsAnswer
from tidelog.model.ids import PartitionId, TopicPartition
from tidelog.sim.cluster.administrator import Administrators
from tidelog.sim.cluster.clients import FAILURES, AnyBroker, ClusterHistory
from tidelog.sim.cluster.group_traffic import GroupPlan, Mishap
from tidelog.sim.cluster.groups.demands import unsettled, wants
from tidelog.sim.cluster.groups.hands import MemberContext
from tidelog.sim.cluster.groups.operator import Operator, has_lost_offsets
from tidelog.sim.cluster.groups.post import Asked, Post
from tidelog.sim.cluster.groups.rules import GroupRules
from tidelog.sim.cluster.groups.slots import Slot
from tidelog.sim.cluster.ledger import Ledger
from tidelog.sim.cluster.truth import Truth
from tidelog.sim.cluster.world import World
from tidelog.sim.kit.loop import SimLoop
from tidelog.sim.kit.seeds import stream
from tidelog.sim.kit.tasks import cancel_all

STABLE_S_MAX = 10.0
"""The seconds that a group may take to settle on a healthy cluster, once the sessions of dead members are over."""
DRAIN_S_MAX = 120.0
"""Seconds that members may take to receive and commit all records, a few at a time."""
LOOK_S = 0.1
ASK_S = 1.0
FIND_TRIES_MAX = 50
GROW_S = 2.0
PARTITIONS_MAX = 6


class Group:
    """A consumer group of the run: its plan, its rules, and the places of its members (`Slot`)."""

    def __init__(self, plan: GroupPlan, rules: GroupRules, slots: list[Slot]) -> None:
        self.name = plan.name
        self.plan = plan
        self.rules = rules
        self.slots = slots

    @property
    def session_s_max(self) -> float:
        return max(member.session_timeout_ms for member in self.plan.members) / 1000

    def has(self, topic: str) -> bool:
        """Returns True if a member of the group subscribes to the topic."""
        return any(wants(member, topic) for member in self.plan.members)


class Groups:
    """The consumer groups of one run."""

    def __init__(self, seed: int, world: World, truth: Truth, ledger: Ledger, history: ClusterHistory) -> None:
        self._seed = seed
        self._world = world
        self._truth = truth
        self._ledger = ledger
        self._history = history
        traffic = world.swarm.groups
        self._post = Post(traffic, stream(seed, "post"), partial(AnyBroker, world, stream(seed, "late posts")))
        self._groups = [self._make(plan) for plan in traffic.groups]
        self._joining: list[asyncio.Task[None]] = []
        self._asking = stream(seed, "asking for groups")
        self._operator = Operator(truth, ledger, partial(AnyBroker, world, stream(seed, "operator of groups")))

    def _make(self, plan: GroupPlan) -> Group:
        rules = GroupRules(plan.name, self._truth.violate, is_gone=self._has_lost_offsets)
        slots = list[Slot]()
        for number, member in enumerate(plan.members):
            name = f"{plan.name}m{number}"
            context = partial(self._context, rules)
            drift = self._world.swarm.clock_drift
            slots.append(Slot(plan.name, name, member, context, stream(self._seed, name), drift))
        return Group(plan, rules, slots)

    def _context(self, rules: GroupRules, name: str) -> MemberContext:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        anywhere = AnyBroker(self._world, stream(self._seed, f"anywhere {name}"))
        return MemberContext(loop, anywhere, self._post, rules, self._history)

    def __len__(self) -> int:
        return len(self._groups)

    # -- the run -----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Starts the first members of all groups."""
        self._joining += [asyncio.ensure_future(_join(slot)) for group in self._groups for slot in group.slots]

    async def befall(self, mishap: Mishap, administrators: Administrators) -> None:
        """Disturbs a member (crash, pause, leave, ...) or adds a partition to a topic, as the mishap says."""
        group = self._groups[mishap.group % len(self._groups)]
        if mishap.kind == "grow":
            has_happened = await self._grow(mishap, administrators)
        else:
            has_happened = await group.slots[mishap.member % len(group.slots)].befall(mishap)
        self._truth.note("mishap", mishap.kind, group.name, mishap.member, has_happened)
        self._truth.saw(f"mishap: {mishap.kind}", has_happened)

    async def _grow(self, mishap: Mishap, administrators: Administrators) -> bool:
        """Adds a partition to a topic. No producer writes to it; members get it assigned like any other."""
        topics, nodes = self._world.swarm.traffic.topics, self._world.swarm.nodes
        name = topics[int(mishap.amount * len(topics))].name
        via = nodes[int(mishap.amount * 1_000) % len(nodes)]
        broker = self._world.machine(via).broker
        topic = None if broker is None else broker.image.topics.get(name)
        if topic is None or len(topic.partitions) >= PARTITIONS_MAX:
            return False
        total = len(topic.partitions) + 1
        key = f"grow {topic.topic_id} to {total}"
        outcome = await administrators.give(key, lambda broker: broker.admin.add_partitions(name, total), via, GROW_S)
        return outcome == "ok"

    # -- the end -----------------------------------------------------------------------------------------------------

    async def become_stable(self) -> None:
        """Demands, on a healthy cluster, that each group becomes stable in time, with each partition assigned to one
        member that subscribes to it."""
        self._post.is_calm = True
        await asyncio.gather(*self._joining)
        begun_s = self._world.true_time
        await asyncio.gather(
            *(
                self._demand("stable", group, begun_s + STABLE_S_MAX + group.session_s_max, self._unsettled)
                for group in self._groups
            )
        )

    async def drain(self) -> None:
        """Demands, once producers have stopped, that every record is handed out and committed."""
        begun_s = self._world.true_time
        deadline_s = begun_s + DRAIN_S_MAX
        await asyncio.gather(
            *(self._demand("delivery", group, deadline_s, self._undelivered) for group in self._groups)
        )
        for group in self._groups:
            await self._find_offsets(group)
            self._truth.saw("group at rest")

    async def _demand(
        self, rule: str, group: Group, deadline_s: float, look: Callable[[Group], Awaitable[list[str]]]
    ) -> None:
        begun_s = self._world.true_time
        while missing := await look(group):
            for slot in group.slots:
                slot.check()
            if self._has_lost_offsets():
                return
            if self._world.true_time > deadline_s:
                for wrong in missing:
                    self._truth.violate(rule, f"{group.name}: after {deadline_s - begun_s:.1f} s {wrong}")
                return
            await asyncio.sleep(LOOK_S)
        self._truth.note(rule, group.name)

    def _has_lost_offsets(self) -> bool:
        return has_lost_offsets(self._truth, self._ledger)

    async def _unsettled(self, group: Group) -> list[str]:
        described = await self._ask(group, DescribeGroup(group=group.name))
        if not isinstance(described, GroupDescription):
            await self._operator.look()
            return [f"it cannot be described: {described}"]
        members = {
            slot.member.membership.member_id: (slot.plan, slot.member.held)
            for slot in group.slots
            if slot.member is not None
        }
        topics = self._truth.image.topics
        partitions = {name: len(topic.partitions) for name, topic in topics.items() if group.has(name)}
        return [*unsettled(described, members, partitions)]

    async def _undelivered(self, group: Group) -> list[str]:
        return [*group.rules.missing(self._ends(group))]

    def _ends(self, group: Group) -> dict[TopicPartition, int]:
        """Returns the high watermarks of all partitions that the group reads."""
        ends = dict[TopicPartition, int]()
        for name, topic in self._truth.image.topics.items():
            for number in range(len(topic.partitions) if group.has(name) else 0):
                book = self._ledger.books.get(PartitionId(topic.topic_id, number))
                if book is not None and not book.is_gone:
                    ends[TopicPartition(name, number)] = book.end
        return ends

    async def _find_offsets(self, group: Group) -> None:
        """Fetches the committed offsets of a group, which the rules then judge (`GroupRules.found`)."""
        for _ in range(FIND_TRIES_MAX):
            found = await self._ask(group, FetchOffsets(group=group.name))
            if isinstance(found, OffsetsAnswer) or self._has_lost_offsets():
                return
            await asyncio.sleep(LOOK_S)
        self._truth.violate("offsets", f"{group.name}: its committed offsets cannot be asked for: {found}")

    async def _ask(self, group: Group, request: Asked) -> object:
        """Sends a group request; returns the answer, or a text that says why there is none."""
        anywhere = AnyBroker(self._world, self._asking)
        try:
            return await self._post.ask(anywhere, group.rules, request, ASK_S)
        except (TimeoutError, *FAILURES) as error:
            return f"{type(error).__name__}: {error}"

    async def close(self) -> None:
        """Ends the tasks of all members."""
        await cancel_all(self._joining)
        for group in self._groups:
            for slot in group.slots:
                await slot.end()
        await self._post.close()

    def report(self) -> None:
        """Adds the groups' counters to the run's result (`Truth`)."""
        for group in self._groups:
            self._truth.counters.update({f"group: {name}": count for name, count in group.rules.counters.items()})


async def _join(slot: Slot) -> None:
    await asyncio.sleep(slot.plan.joins_s)
    slot.begin()
