"""A process that is a member of a classic group in a cluster.

It does what `tidelog.sim.groups.member.Member` does, in a process of its own with a clock of its own. Before it works
on the partitions of a generation it reads their committed offsets, as every consumer does: what it finds must not be
older than any commit that was acknowledged before.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass

from tidelog.broker.broker import Broker
from tidelog.model.classic_groups import JoinAnswer, MemberAssignment
from tidelog.model.groups import NO_OFFSET, FetchOffsets, OffsetsAnswer, grouped
from tidelog.sim.cluster.clients import FAILURES, AnyBroker
from tidelog.sim.groups.brokers import TOPIC
from tidelog.sim.groups.member import GROUP, NOBODY_ANSWERS, PAUSE_S, Member, World
from tidelog.sim.groups.plan import Seat
from tidelog.sim.groups.rules import Rules, assignments
from tidelog.sim.kit.loop import SimLoop
from tidelog.sim.kit.process import Process, context_of

FETCH_S = 0.6
"""Seconds that a member waits for committed offsets."""


async def read_back(anywhere: AnyBroker, rules: Rules, partitions: list[int]) -> None:
    """Fetches the committed offsets of these partitions by any broker, and has the rules check them. Raises
    `TimeoutError` and what the broker raises."""
    since, loop = rules.event(), asyncio.get_running_loop()
    request = FetchOffsets(group=GROUP, partitions=grouped([(TOPIC, number) for number in partitions]))

    async def work(broker: Broker) -> OffsetsAnswer:
        return await broker.groups.ask(request, deadline_s=loop.time() + FETCH_S)

    async with asyncio.timeout(FETCH_S):
        answer = await anywhere.call(work)
    found = {one.partition: one.offset for one in answer.offsets if one.offset != NO_OFFSET}
    rules.found({number: found.get(number) for number in partitions}, since)
    rules.counters["committed offsets read back"] += bool(found)


@dataclass(frozen=True, slots=True)
class MemberContext:
    """The parts of the simulation that a member uses."""

    loop: SimLoop
    world: World
    anywhere: AnyBroker
    turns: list[int]
    """Generations of the assignments that the group's leaders have made, oldest first; all members share the list."""


class ClusterMember(Member):
    """A process that is a member of the group."""

    def __init__(self, context: MemberContext, seat: Seat, process: Process) -> None:
        super().__init__(context.world, seat)
        self.is_working = False
        """True from the answer to its sync until it joins again."""
        self._context = context
        self._process = process

    def begin(self) -> asyncio.Task[None]:
        """Starts the process. The returned task ends when the member has left, was fenced, or its process was
        ended."""
        return self._context.loop.create_task(self.live(), context=context_of(self._process))

    def pause(self) -> None:
        self._context.loop.pause(self._process)

    def resume(self) -> None:
        if not self._process.is_dying:
            self._context.loop.resume(self._process)

    async def crash(self) -> None:
        """Ends the process at once, as by SIGKILL; the brokers notice silence."""
        self._context.loop.doom(self._process)
        await self._context.loop.end(self._process)

    def _assign(self, answer: JoinAnswer) -> tuple[MemberAssignment, ...]:
        """Returns other assignments each time, as a leader may that has seen its topics grow: two assignments in one
        generation cannot be equal by chance."""
        self._context.turns.append(answer.generation)
        return assignments(answer, self._world.plan.partitions, len(self._context.turns))

    async def _work(self) -> None:
        """Works on until it has to join again: a change of coordinator alone leaves it in its generation."""
        self.is_working = True
        try:
            while not self.is_leaving:
                with suppress(*NOBODY_ANSWERS):
                    await super()._work()
                    return
                await self._look_for_coordinator()
                self._world.rules.counters["went on at another coordinator"] += 1
        finally:
            self.is_working = False

    async def _begin(self) -> None:
        """Reads the committed offsets of its partitions, and sends heartbeats until it has them."""
        while self.owned and not self.is_leaving:
            try:
                await read_back(self._context.anywhere, self._world.rules, self.owned)
                return
            except (TimeoutError, *FAILURES):
                await asyncio.sleep(PAUSE_S)
            with suppress(*NOBODY_ANSWERS):
                await self._beat()
                continue
            await self._look_for_coordinator()
