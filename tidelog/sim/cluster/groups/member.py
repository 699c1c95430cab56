"""A process that is a member of a consumer group: it runs the shipped client core `Membership` and sends requests to
any broker.

It is a consumer without HTTP. Where a test ends the process (`crash`) or stops it (`pause`), the brokers notice only
silence; a paused process that goes on still has old requests to send.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

from tidelog.consumer.membership import Changes, Membership
from tidelog.model.errors import FencedMember, InstanceIdInUse, TidelogError, UnknownMember
from tidelog.model.groups import JOIN, HeartbeatAnswer
from tidelog.model.ids import TopicPartition
from tidelog.sim.cluster.group_traffic import PAUSE_S, MemberPlan
from tidelog.sim.cluster.groups.hands import FAILED, Hands, MemberContext
from tidelog.sim.kit.process import LocalTime, Process, context_of


class Member:
    """Process of a group member; `name` is unique in the run."""

    def __init__(
        self, group: str, name: str, plan: MemberPlan, parts: MemberContext, rng: random.Random, rate: float
    ) -> None:
        self.name = name
        self.plan = plan
        self.membership = Membership(
            group,
            f"{name}.0",
            topics=plan.topics,
            pattern=plan.pattern,
            instance_id=plan.instance_id,
            assignor=plan.assignor,
            session_timeout_ms=plan.session_timeout_ms,
            rebalance_timeout_ms=plan.rebalance_timeout_ms,
        )
        self._parts = parts
        self._process = Process(name, LocalTime(rate))
        self._joins = 0
        self._wake = asyncio.Event()
        self._hands = Hands(name, plan, self.membership, parts, rng, self._now_s, self._wake.set)
        self._tasks: asyncio.TaskGroup

    # -- life and death ----------------------------------------------------------------------------------------------

    def begin(self) -> asyncio.Task[None]:
        """Starts the process. The returned task ends when the member has left the group, and raises the error that
        ended it."""
        return self._parts.loop.create_task(self._run(), context=context_of(self._process))

    @property
    def held(self) -> list[TopicPartition]:
        """Partitions that the member has and is not giving up."""
        return sorted(where for where, holding in self._hands.holdings.held.items() if not holding.is_going)

    def dawdle(self, seconds: float) -> None:
        """Sets the extra seconds that handling a batch takes from now on."""
        self._hands.dawdles_s = seconds

    def pause(self) -> None:
        self._parts.loop.pause(self._process)

    def resume(self) -> None:
        self._parts.loop.resume(self._process)

    async def crash(self) -> None:
        """Ends the process at once, as by SIGKILL."""
        self._parts.rules.dies(self.membership.member_id)
        self._parts.loop.doom(self._process)
        await self._parts.loop.end(self._process)

    def leave(self) -> None:
        """Makes the member handle what it has handed out, commit, and leave the group."""
        self._hands.is_leaving = True
        self._wake.set()

    def subscribe(self, topics: tuple[str, ...]) -> None:
        if not self._hands.is_leaving:
            self._hands.subscribed = topics
            self.membership.subscribe(topics)
            self._wake.set()

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as self._tasks:
            self._tasks.create_task(self._beat())
            self._tasks.create_task(self._hands.read())
            if self.plan.commits_every_s:
                self._tasks.create_task(self._hands.commit_now_and_then())
        await self._hands.commit()
        rules, member_id = self._parts.rules, self.membership.member_id
        rules.dies(member_id)
        self._hands.holdings.held.clear()
        goodbye = self.membership.leave()
        if goodbye is not None:
            with suppress(*FAILED):
                await self._hands.ask(goodbye)

    def _now_s(self) -> float:
        return self._process.time.at(self._parts.loop.true_time)

    # -- heartbeats --------------------------------------------------------------------------------------------------

    async def _beat(self) -> None:
        while not self._hands.is_leaving:
            await self._until_due()
            request = self.membership.heartbeat(sent_s := self._now_s(), self.plan.wait_ms)
            try:
                answer = await self._hands.ask(request, request.wait_ms / 1000)
            except FAILED as error:
                if isinstance(error, TidelogError):
                    self._fail(error)
                await asyncio.sleep(PAUSE_S)
            else:
                assert isinstance(answer, HeartbeatAnswer)
                changes = self.membership.answered(answer, sent_s)
                waited_s = self._now_s() - sent_s
                self._count(changes, is_early=bool(changes) and waited_s < request.wait_ms / 1000)
                self._change(changes)

    async def _until_due(self) -> None:
        while (left_s := self.membership.due_s - self._now_s()) > 0 and not self._hands.is_leaving:
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._wake.wait()
            self._wake.clear()

    def _fail(self, error: TidelogError) -> None:
        was_member = self.membership.member_epoch > JOIN
        self._change(self.membership.failed(error, self._now_s()))
        rules = self._parts.rules
        if self.membership.is_out:
            if not isinstance(error, (UnknownMember, FencedMember, InstanceIdInUse)):
                rules.violate("members", f"{self.name} is refused: {type(error).__name__}: {error}")
            rules.counters["member expelled"] += was_member
            rules.dies(self.membership.member_id)
            self._joins += 1
            self.membership.rejoin(f"{self.name}.{self._joins}")

    def _count(self, changes: Changes, *, is_early: bool) -> None:
        counters = self._parts.rules.counters
        counters["long poll answered early"] += is_early
        counters["rebalance with a commit in flight"] += bool(changes) and self._hands.commits_under_way > 0

    def _change(self, changes: Changes) -> None:
        rules, member_id = self._parts.rules, self.membership.member_id
        for where in changes.lost:
            rules.drops(member_id, where)
        self._hands.holdings.drop(changes.lost)
        going = [self._hands.holdings.held[where] for where in changes.revoked]
        for holding in going:
            holding.is_going = True
        if going:
            self._tasks.create_task(self._hands.give_up(going))
        if changes.assigned:
            self._tasks.create_task(self._hands.start([self._hands.take(where) for where in changes.assigned]))
