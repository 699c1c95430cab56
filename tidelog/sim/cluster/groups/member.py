"""One life of one member: a process of its own that runs the shipped `Membership`, asks any broker, reads, hands out,
takes its time, commits.

It is what a consumer is without HTTP. Where this ends a process (`crash`) or stops it (`pause`), the brokers notice
nothing but silence; a process that goes on has old requests still to send.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from tidelog.broker.broker import Broker
from tidelog.broker.partition_handle import FetchedBatches
from tidelog.consumer.membership import Changes, Membership
from tidelog.groups.decision import GroupAnswer
from tidelog.model.errors import FencedMember, InstanceIdInUse, OffsetOutOfRange, TidelogError, UnknownMember
from tidelog.model.groups import JOIN, CommitAnswer, HeartbeatAnswer, OffsetsAnswer, grouped
from tidelog.model.ids import TopicPartition
from tidelog.sim.cluster.clients import FAILURES, AnyBroker, ClusterHistory
from tidelog.sim.cluster.groups.holdings import Holding, Holdings
from tidelog.sim.cluster.groups.plans import MemberPlan
from tidelog.sim.cluster.groups.post import Asked, Post
from tidelog.sim.cluster.groups.rules import GroupRules
from tidelog.sim.history import records_in
from tidelog.sim.loop import SimLoop
from tidelog.sim.process import LocalTime, Process, context_of

FETCH_BYTES = 4_096
WAIT_S = 0.05
PAUSE_S = 0.05
ASK_S = 0.6
"""How long an answer is waited for, beyond what the request lets it wait."""
HURRIED_S = 0.001
"""Mean time to handle a batch in the end."""
FAILED = (TimeoutError, *FAILURES)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a member needs of the world."""

    loop: SimLoop
    anywhere: AnyBroker
    post: Post
    rules: GroupRules
    history: ClusterHistory


class Member:
    """`name` is that of the process, and like no other of the run."""

    def __init__(
        self, group: str, name: str, plan: MemberPlan, parts: Surroundings, rng: random.Random, rate: float
    ) -> None:
        self.name = name
        self.plan = plan
        self.dawdles_s = 0.0
        """It takes so much longer to handle a batch."""
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
        self._rng = rng
        self._process = Process(name, LocalTime(rate))
        self._holdings = Holdings()
        self._joins = 0
        self._subscribed: tuple[str, ...] | None = plan.topics or (plan.pattern,)
        """What is not in the history yet: there it stands between two polls."""
        self._commits_under_way = 0
        self._is_leaving = False
        self._wake = asyncio.Event()
        self._tasks: asyncio.TaskGroup
        self._work: asyncio.Task[None] | None = None

    # -- life and death ----------------------------------------------------------------------------------------------

    def begin(self) -> asyncio.Task[None]:
        """Starts the process. The task ends when it has left, or fails as it does."""
        self._work = self._parts.loop.create_task(self._run(), context=context_of(self._process))
        return self._work

    @property
    def held(self) -> list[TopicPartition]:
        """What it has, and is not about to give up."""
        return sorted(where for where, holding in self._holdings.held.items() if not holding.is_going)

    def pause(self) -> None:
        self._parts.loop.pause(self._process)

    def resume(self) -> None:
        self._parts.loop.resume(self._process)

    async def crash(self) -> None:
        """Ends the process, in the middle of whatever it does."""
        self._parts.rules.dies(self.membership.member_id)
        self._parts.loop.doom(self._process)
        await self._parts.loop.end(self._process)

    def leave(self) -> None:
        """It finishes what it has handed out, commits, and leaves."""
        self._is_leaving = True
        self._wake.set()

    def subscribe(self, topics: tuple[str, ...]) -> None:
        if not self._is_leaving:
            self._subscribed = topics
            self.membership.subscribe(topics)
            self._wake.set()

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as self._tasks:
            self._tasks.create_task(self._beat())
            self._tasks.create_task(self._read())
            if self.plan.commits_every_s:
                self._tasks.create_task(self._commit_now_and_then())
        await self._commit()
        rules, member_id = self._parts.rules, self.membership.member_id
        rules.dies(member_id)
        self._holdings.held.clear()
        goodbye = self.membership.leave()
        if goodbye is not None:
            with suppress(*FAILED):
                await self._ask(goodbye)

    def _now_s(self) -> float:
        return self._process.time.at(self._parts.loop.true_time)

    async def _ask(self, request: Asked, wait_s: float = 0.0) -> GroupAnswer:
        return await self._parts.post.ask(self._parts.anywhere, self._parts.rules, request, ASK_S + wait_s)

    # -- heartbeats --------------------------------------------------------------------------------------------------

    async def _beat(self) -> None:
        while not self._is_leaving:
            await self._until_due()
            request = self.membership.heartbeat(sent_s := self._now_s(), self.plan.wait_ms)
            try:
                answer = await self._ask(request, request.wait_ms / 1000)
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
        while (left_s := self.membership.due_s - self._now_s()) > 0 and not self._is_leaving:
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
        counters["rebalance with a commit in flight"] += bool(changes) and self._commits_under_way > 0

    def _change(self, changes: Changes) -> None:
        rules, member_id = self._parts.rules, self.membership.member_id
        for where in changes.lost:
            rules.drops(member_id, where)
        self._holdings.drop(changes.lost)
        going = [self._holdings.held[where] for where in changes.revoked]
        for holding in going:
            holding.is_going = True
        if going:
            self._tasks.create_task(self._give_up(going))
        if changes.assigned:
            self._tasks.create_task(self._start([self._take(where) for where in changes.assigned]))

    # -- partitions --------------------------------------------------------------------------------------------------

    def _take(self, where: TopicPartition) -> Holding:
        holding = self._holdings.take(where)
        self._parts.rules.holds(self.membership.member_id, where, lambda: self._may_deliver(holding))
        return holding

    def _may_deliver(self, holding: Holding) -> bool:
        is_mine = self._holdings.has(holding) and not holding.is_going
        return is_mine and self.membership.may_deliver(self._now_s())

    async def _start(self, holdings: list[Holding]) -> None:
        """Begins at the group's places; where there is none, at the beginning."""
        while not self._is_leaving:
            waiting = [one for one in holdings if self._holdings.has(one)]
            if not waiting:
                return
            with suppress(*FAILED):
                answer = await self._ask(self.membership.fetch(grouped([one.where for one in waiting])))
                assert isinstance(answer, OffsetsAnswer)
                places = {(place.topic, place.partition): place.offset for place in answer.offsets}
                for holding in waiting:
                    holding.begin(max(0, places[holding.where]))
                return
            await asyncio.sleep(PAUSE_S)

    async def _give_up(self, going: list[Holding]) -> None:
        """Waits for what is being handled, commits, and lets go; unless it may keep them after all."""
        for holding in going:
            await holding.idle.wait()
        await self._commit()
        kept = self.membership.to_give_up
        given = [one.where for one in going if self._holdings.has(one) and one.where in kept]
        for where in given:
            self._parts.rules.drops(self.membership.member_id, where)
        self._holdings.drop(given)
        for holding in going:
            holding.is_going = False
        if given:
            self.membership.gave_up(given)
            self._wake.set()

    # -- records -----------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        while not self._is_leaving:
            holding = self._holdings.next()
            if holding is None or not await self._poll(holding):
                await asyncio.sleep(PAUSE_S * self._rng.random())
            if not self.plan.commits_every_s:
                await self._commit()

    async def _poll(self, holding: Holding) -> bool:
        """Reads, hands out, and handles. True if there was anything."""
        history, where, position = self._parts.history, holding.where, holding.position
        assert position is not None
        if self._subscribed is not None:
            history.recorder.tell("subscribe", self._subscribed, process=self.name)
            self._subscribed = None
        poll = history.recorder.invoke(self.name, "poll")
        try:
            fetched = await self._fetch(where, position)
        except FAILED as error:
            history.recorder.complete(poll, "fail")
            if isinstance(error, OffsetOutOfRange) and error.log_start_offset > position:
                self._parts.rules.deleted(where, error.log_start_offset)
                history.recorder.tell("seek", [str(where)], process=self.name)
                holding.position = holding.handled = error.log_start_offset
            return False
        records = [*records_in(fetched.data, position)]
        if not records or not self._may_deliver(holding):
            history.recorder.complete(poll, "fail")
            self._pass_over(holding, fetched.next_offset, is_empty=not records)
            return False
        ends = {"high_watermark": fetched.high_watermark, "epoch": fetched.leader_epoch}
        history.show(poll, where, records, **ends, rebalanced=[*self._holdings.rebalanced])
        self._holdings.rebalanced.clear()
        await self._handle(holding, fetched.next_offset, [offset for offset, _ in records])
        return True

    def _pass_over(self, holding: Holding, end: int, *, is_empty: bool) -> None:
        """Offsets that belong to no record are nothing to hand out."""
        assert holding.position is not None
        if is_empty and end > holding.position and self._may_deliver(holding):
            self._parts.rules.hands_out(self.membership.member_id, holding.where, holding.position, end, ())
            holding.position = holding.handled = end

    async def _fetch(self, where: TopicPartition, position: int) -> FetchedBatches:
        async def fetch(broker: Broker) -> FetchedBatches:
            partition = broker.partition(*where)
            await partition.wait_for_data(position, bytes_min=1, deadline_s=asyncio.get_running_loop().time() + WAIT_S)
            return await partition.read(position, bytes_max=FETCH_BYTES)

        async with asyncio.timeout(ASK_S):
            return await self._parts.anywhere.call(fetch)

    async def _handle(self, holding: Holding, end: int, offsets: Iterable[int]) -> None:
        assert holding.position is not None
        self._parts.rules.hands_out(self.membership.member_id, holding.where, holding.position, end, offsets)
        holding.position = end
        holding.idle.clear()
        mean_s = HURRIED_S if self._parts.post.is_calm else self.plan.handling_s
        await asyncio.sleep(self.dawdles_s + self._rng.expovariate(1 / mean_s))
        holding.handled = end
        holding.idle.set()

    async def _commit_now_and_then(self) -> None:
        while not self._is_leaving:
            await asyncio.sleep(self.plan.commits_every_s)
            await self._commit()

    async def _commit(self) -> None:
        holdings = [*self._holdings.uncommitted()]
        if not holdings or self.membership.member_epoch <= JOIN:
            return
        request = self.membership.commit([holding.place() for holding in holdings])
        self._commits_under_way += 1
        try:
            answer = await self._ask(request)
        except (UnknownMember, FencedMember):
            self._parts.rules.counters["commit of an expelled member refused"] += 1
        except FAILED:
            self._parts.rules.counters["commit without an answer"] += 1
        else:
            assert isinstance(answer, CommitAnswer)
            self._holdings.committed(holdings, request, answer)
        finally:
            self._commits_under_way -= 1
