"""A member's place in a group: its plan, the process that fills it, and the disturbances of that process.

| kind | what happens |
|---|---|
| crash | the process ends without leaving; another one takes its place, a static member under the same instance id |
| sleep | the process is paused for about as long as its session timeout, then goes on unaware |
| dawdle | it takes about its rebalance timeout to handle a batch |
| leave | it leaves the group, and comes back later |
| resubscribe | it subscribes to one topic only for a while |
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress

from tidelog.sim.cluster.group_traffic import MemberPlan, Mishap
from tidelog.sim.cluster.groups.hands import MemberContext
from tidelog.sim.cluster.groups.member import Member

LEAVE_S_MAX = 5.0
"""Seconds after which the process of a leaving member is ended."""


class Slot:
    """The place of one member in a group: one process after another fills it. `context` makes the `MemberContext` of
    each new process, by its name."""

    def __init__(
        self,
        group: str,
        name: str,
        plan: MemberPlan,
        context: Callable[[str], MemberContext],
        rng: random.Random,
        drift: float,
    ) -> None:
        self.plan = plan
        self.member: Member | None = None
        self._group = group
        self._name = name
        self._context = context
        self._rng = rng
        self._drift = drift
        self._lives = 0
        self._life: asyncio.Task[None] | None = None
        self._is_struck = False

    def begin(self) -> None:
        """Starts a member process that fills the place."""
        assert self.member is None, "somebody has it"
        self._lives += 1
        name = f"{self._name}.{self._lives}"
        rate = 1 + self._rng.uniform(-self._drift, self._drift)
        self.member = Member(self._group, name, self.plan, self._context(name), self._rng, rate)
        self._life = self.member.begin()

    async def end(self) -> None:
        """Ends the process, if there is one. Raises the error that it failed with before."""
        member, life = self.member, self._life
        self.member = self._life = None
        if member is None or life is None:
            return
        if life.done():
            life.result()
        await member.crash()

    def check(self) -> None:
        """Raises the error that the process has failed with."""
        if self._life is not None and self._life.done():
            self._life.result()

    # -- mishaps -----------------------------------------------------------------------------------------------------

    async def befall(self, mishap: Mishap) -> bool:
        """Carries out a disturbance; returns False if another one is under way or there is no process."""
        member = self.member
        if member is None or self._is_struck:
            return False
        self._is_struck = True
        kinds: dict[str, Callable[[Member, Mishap], Awaitable[None]]] = {
            "crash": self._crash,
            "sleep": self._sleep,
            "dawdle": self._dawdle,
            "leave": self._leave,
            "resubscribe": self._resubscribe,
        }
        await kinds[mishap.kind](member, mishap)
        self._is_struck = False
        return True

    async def _crash(self, member: Member, mishap: Mishap) -> None:
        await self.end()
        await asyncio.sleep(mishap.lasts_s)
        self.begin()

    async def _sleep(self, member: Member, mishap: Mishap) -> None:
        member.pause()
        await asyncio.sleep(self.plan.session_timeout_ms / 1000 * (0.3 + 1.7 * mishap.amount))
        member.resume()

    async def _dawdle(self, member: Member, mishap: Mishap) -> None:
        member.dawdle(self.plan.rebalance_timeout_ms / 1000 * (0.5 + 1.5 * mishap.amount))
        await asyncio.sleep(mishap.lasts_s)
        member.dawdle(0.0)

    async def _leave(self, member: Member, mishap: Mishap) -> None:
        member.leave()
        assert self._life is not None
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_S_MAX):
                await asyncio.shield(self._life)
        await self.end()
        await asyncio.sleep(mishap.lasts_s)
        self.begin()

    async def _resubscribe(self, member: Member, mishap: Mishap) -> None:
        topics = self.plan.topics
        if len(topics) < 2:
            return
        member.subscribe((topics[int(mishap.amount * len(topics))],))
        await asyncio.sleep(mishap.lasts_s)
        member.subscribe(topics)
