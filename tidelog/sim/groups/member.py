"""A member of the classic group, as Kafka's clients are: it finds the coordinator, joins, syncs, sends heartbeats,
commits, and again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from tidelog.broker.groups.classic_reach import ClassicGroups
from tidelog.model import classic_groups
from tidelog.model.errors import (
    CoordinatorLost,
    CoordinatorNotAvailable,
    FencedInstance,
    IllegalGeneration,
    MemberIdRequired,
    NotCoordinator,
    RebalanceInProgress,
    TidelogError,
    UnknownMember,
)
from tidelog.model.groups import CommitAnswer, CommittedOffset
from tidelog.sim.groups.brokers import TOPIC
from tidelog.sim.groups.plan import GroupPlan, Seat
from tidelog.sim.groups.post import Post
from tidelog.sim.groups.reach import Reach
from tidelog.sim.groups.rules import Rules, assignments, read_assignment
from tidelog.sim.kit.machine import ConnectionLost

T = TypeVar("T")
GROUP = "g"
NOBODY_ANSWERS = (CoordinatorNotAvailable, CoordinatorLost, ConnectionLost)
"""Errors after which a member looks for the coordinator, and repeats its request."""
PAUSE_S = 0.05
CALL_S = 1.0
COMMIT_S = 15.0
"""Seconds that a commit may take: longer than a coordinator tries an append, so that it answers before the member gives
up."""


@dataclass(eq=False)
class World:
    """State that all members share. `next_value` numbers the commits; a join or sync may take `wait_s` seconds."""

    plan: GroupPlan
    brokers: Reach
    post: Post
    rules: Rules
    rng: random.Random
    wait_s: float
    next_value: int = 0


class Member:
    """A process that is a member of the group, until it leaves or is fenced."""

    def __init__(self, world: World, seat: Seat) -> None:
        self.member_id = ""
        self.generation = -1
        self.owned: list[int] = []
        self.asleep_s = 0.0
        """Seconds by which its next request is delayed, as if the process were paused."""
        self.is_leaving = False
        self.metadata = b"1"
        self._world = world
        self._seat = seat
        self._node_id = 1

    @property
    def identity(self) -> str:
        """Name of the member in the rules: its instance id, or its member id."""
        return self._seat.instance_id or self.member_id

    async def live(self) -> None:
        """Joins the group again and again, until the member leaves or is fenced."""
        while not self.is_leaving:
            self.owned = []
            try:
                await self._join()
                await self._sync()
                await self._begin()
                await self._work()
            except FencedInstance:
                self._world.rules.counters["static member fenced"] += 1
                return
            except (UnknownMember, IllegalGeneration):
                self.member_id = ""
            except MemberIdRequired as error:
                self.member_id = error.member_id
            except RebalanceInProgress:
                pass
            except NOBODY_ANSWERS:
                await self._look_for_coordinator()
        await self._leave()

    async def _look_for_coordinator(self) -> None:
        self._node_id = await self._world.brokers.find(self._node_id)
        await asyncio.sleep(PAUSE_S * (1 + self._world.rng.random()))

    # -- the protocol ------------------------------------------------------------------------------------------------

    async def _join(self) -> None:
        plan = self._world.plan
        request = classic_groups.JoinGroup(
            group=GROUP,
            member_id=self.member_id,
            instance_id=self._seat.instance_id,
            session_timeout_ms=int(1000 * plan.session_s),
            rebalance_timeout_ms=int(1000 * plan.rebalance_s),
            protocol_type="consumer",
            protocols=(classic_groups.Protocol("range", self.metadata),),
            can_skip_assignment=self._seat.can_skip_assignment,
        )

        async def deliver(node_id: int) -> classic_groups.JoinAnswer:
            answer = await self._waits("join", node_id, lambda groups, until_s: groups.join(request, until_s))
            self._world.rules.joined(self._seat.instance_id or answer.member_id, answer)
            return answer

        answer = await self._send(deliver)
        self.member_id, self.generation, self._answer = answer.member_id, answer.generation, answer

    async def _sync(self) -> None:
        is_to_assign = self._answer.members and not self._answer.skip_assignment
        given = self._assign(self._answer) if is_to_assign else ()
        identity, generation = self.identity, self.generation
        request = classic_groups.SyncGroup(**self._who, generation=generation, protocol="range", assignments=given)

        async def deliver(node_id: int) -> classic_groups.SyncAnswer:
            answer = await self._waits("sync", node_id, lambda groups, until_s: groups.sync(request, until_s))
            self._world.rules.synced(identity, generation, answer)
            return answer

        said = read_assignment((await self._send(deliver)).assignment)
        self.owned = [] if said is None else said["partitions"]

    def _assign(self, answer: classic_groups.JoinAnswer) -> tuple[classic_groups.MemberAssignment, ...]:
        """Returns the assignments of a generation that this member leads."""
        return assignments(answer, self._world.plan.partitions)

    async def _begin(self) -> None:
        """Prepares the work on the partitions of a new generation: here nothing."""

    async def _work(self) -> None:
        while not self.is_leaving:
            await asyncio.sleep(self._seat.beats_every_s)
            if self.owned and self._world.rng.random() < 0.5:
                await self.commit(self._world.rng.choice(self.owned))
            await self._beat()

    async def _beat(self) -> None:
        request = classic_groups.ClassicHeartbeat(**self._who, generation=self.generation)
        try:
            await self._send(
                lambda node_id: self._ask(node_id, lambda groups, until_s: groups.heartbeat(request, until_s))
            )
        except RebalanceInProgress:
            if self.owned:
                await self.commit(self.owned[0])
            raise

    async def commit(self, partition: int) -> None:
        """Commits the next value for a partition. Raises `ConnectionLost`, or the `TidelogError` with which the
        coordinator refuses."""
        self._world.next_value += 1
        value, generation, rules = self._world.next_value, self.generation, self._world.rules
        request = classic_groups.CommitAsMember(
            **self._who, generation=generation, offsets=(CommittedOffset(TOPIC, partition, value),)
        )

        async def deliver(node_id: int) -> CommitAnswer:
            attempt = rules.attempt(partition, value)
            try:
                answer = await self._ask(node_id, lambda groups, until_s: groups.commit(request, until_s), COMMIT_S)
            except TidelogError as error:
                if error.definite:
                    rules.refused(partition, attempt)
                raise
            if answer.verdicts[0].code:
                rules.refused(partition, attempt)
            else:
                rules.kept(attempt, generation)
            return answer

        await self._send(deliver)

    async def _leave(self) -> None:
        request = classic_groups.LeaveGroup(
            group=GROUP, members=(classic_groups.Leaving(self.member_id, self._seat.instance_id),)
        )
        if self.member_id:
            try:
                await self._send(
                    lambda node_id: self._ask(node_id, lambda groups, until_s: groups.leave(request, until_s))
                )
            except (TidelogError, ConnectionLost):
                self._world.rules.counters["left without an answer"] += 1

    # -- the way there -----------------------------------------------------------------------------------------------

    @property
    def _who(self) -> dict[str, str]:
        who = {"group": GROUP, "member_id": self.member_id}
        return who if self._seat.instance_id is None else {**who, "instance_id": self._seat.instance_id}

    async def _send(self, deliver: Callable[[int], Awaitable[T]]) -> T:
        asleep_s, self.asleep_s = self.asleep_s, 0.0
        if asleep_s:
            await asyncio.sleep(asleep_s)
        return await self._world.post.send(self._node_id, deliver)

    async def _ask(self, node_id: int, do: Callable[[ClassicGroups, float], Awaitable[T]], wait_s: float = CALL_S) -> T:
        # The deadline is by the clock of the broker, in whose process the call runs.
        loop = asyncio.get_running_loop()
        return await self._world.brokers.call(node_id, lambda groups: do(groups, loop.time() + wait_s), wait_s)

    async def _waits(self, what: str, node_id: int, do: Callable[[ClassicGroups, float], Awaitable[T]]) -> T:
        """Sends a join or sync, which may wait for other members; checks that the answer comes in time."""
        loop, rules, wait_s = asyncio.get_running_loop(), self._world.rules, self._world.wait_s

        async def wait(groups: ClassicGroups, until_s: float) -> T:
            began_s = loop.time()
            try:
                return await do(groups, until_s)
            except RebalanceInProgress:
                if loop.time() - began_s > wait_s - 0.01:
                    rules.waited(what, loop.time() - began_s)
                raise
            except NotCoordinator:
                rules.counters[f"{what} told of another coordinator"] += loop.time() - began_s > 2 * PAUSE_S
                raise

        return await self._ask(node_id, wait, wait_s)
