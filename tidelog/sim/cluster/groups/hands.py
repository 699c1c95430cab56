"""The work of a group member on its partitions: it reads, hands records out, handles them, commits, and gives
partitions up."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

from tidelog.broker.broker import Broker
from tidelog.broker.partitions.partition_handle import FetchedBatches
from tidelog.consumer.membership import Membership
from tidelog.groups.decision import GroupAnswer
from tidelog.model.errors import FencedMember, OffsetOutOfRange, UnknownMember
from tidelog.model.groups import JOIN, CommitAnswer, OffsetsAnswer, grouped
from tidelog.model.ids import TopicPartition
from tidelog.sim.cluster.clients import FAILURES, AnyBroker, ClusterHistory
from tidelog.sim.cluster.group_traffic import PAUSE_S, MemberPlan
from tidelog.sim.cluster.groups.holdings import Holding, Holdings
from tidelog.sim.cluster.groups.post import Asked, Post
from tidelog.sim.cluster.groups.rules import GroupRules
from tidelog.sim.kit.history import records_in
from tidelog.sim.kit.loop import SimLoop

FETCH_BYTES = 4_096
WAIT_S = 0.05
ASK_S = 0.6
"""Seconds that a member waits for an answer, beyond the wait that the request itself allows."""
HURRIED_S = 0.001
"""Mean seconds to handle a batch once the faults are over."""
FAILED = (TimeoutError, *FAILURES)


@dataclass(frozen=True, slots=True)
class MemberContext:
    """The parts of the simulation that a member uses: loop, network, rules and history."""

    loop: SimLoop
    anywhere: AnyBroker
    post: Post
    rules: GroupRules
    history: ClusterHistory


class Hands:
    """The work of one member process, whose name is `name`. `now_s` reads the process's clock; `gave_up` is called when
    it has given up partitions."""

    def __init__(
        self,
        name: str,
        plan: MemberPlan,
        membership: Membership,
        parts: MemberContext,
        rng: random.Random,
        now_s: Callable[[], float],
        gave_up: Callable[[], None],
    ) -> None:
        self.holdings = Holdings()
        self.dawdles_s = 0.0
        """Extra seconds that it takes to handle a batch."""
        self.subscribed: tuple[str, ...] | None = plan.topics or (plan.pattern,)
        """Subscription that the history does not have yet: it is recorded between two polls."""
        self.commits_under_way = 0
        self.is_leaving = False
        self._name = name
        self._plan = plan
        self._membership = membership
        self._parts = parts
        self._rng = rng
        self._now_s = now_s
        self._gave_up = gave_up

    async def ask(self, request: Asked, wait_s: float = 0.0) -> GroupAnswer:
        """Sends a group request to any broker and returns the answer. Raises `TimeoutError`, `Unreachable`,
        `ConnectionLost`, or the `TidelogError` with which the broker refuses."""
        return await self._parts.post.ask(self._parts.anywhere, self._parts.rules, request, ASK_S + wait_s)

    # -- partitions --------------------------------------------------------------------------------------------------

    def take(self, where: TopicPartition) -> Holding:
        holding = self.holdings.take(where)
        self._parts.rules.holds(self._membership.member_id, where, lambda: self._may_deliver(holding))
        return holding

    def _may_deliver(self, holding: Holding) -> bool:
        is_mine = self.holdings.has(holding) and not holding.is_going
        return is_mine and self._membership.may_deliver(self._now_s())

    async def start(self, holdings: list[Holding]) -> None:
        """Starts reading at the group's committed offsets; at offset 0 where none is committed."""
        while not self.is_leaving:
            waiting = [one for one in holdings if self.holdings.has(one)]
            if not waiting:
                return
            with suppress(*FAILED):
                answer = await self.ask(self._membership.fetch(grouped([one.where for one in waiting])))
                assert isinstance(answer, OffsetsAnswer)
                offsets = {(committed.topic, committed.partition): committed.offset for committed in answer.offsets}
                for holding in waiting:
                    holding.begin(max(0, offsets[holding.where]))
                return
            await asyncio.sleep(PAUSE_S)

    async def give_up(self, going: list[Holding]) -> None:
        """Waits until the batches in hand are handled, commits, and gives the partitions up, unless the coordinator has
        given them back meanwhile."""
        for holding in going:
            await holding.idle.wait()
        await self.commit()
        kept = self._membership.to_give_up
        given = [one.where for one in going if self.holdings.has(one) and one.where in kept]
        for where in given:
            self._parts.rules.drops(self._membership.member_id, where)
        self.holdings.drop(given)
        for holding in going:
            holding.is_going = False
        if given:
            self._membership.gave_up(given)
            self._gave_up()

    # -- records -----------------------------------------------------------------------------------------------------

    async def read(self) -> None:
        while not self.is_leaving:
            holding = self.holdings.next()
            if holding is None or not await self._poll(holding):
                await asyncio.sleep(PAUSE_S * self._rng.random())
            elif self._parts.post.is_calm:
                await self._read_on(holding)
            if not self._plan.commits_every_s:
                await self.commit()

    async def _read_on(self, holding: Holding) -> None:
        """Reads a partition to its end without a pause, since many records may be left at the end of a run."""
        while self._may_deliver(holding) and not self.is_leaving and await self._poll(holding):
            pass

    async def _poll(self, holding: Holding) -> bool:
        """Reads a batch of records, hands it out and handles it. Returns True if there was one."""
        history, where, position = self._parts.history, holding.where, holding.position
        assert position is not None
        if self.subscribed is not None:
            history.recorder.tell("subscribe", self.subscribed, process=self._name)
            self.subscribed = None
        poll = history.recorder.invoke(self._name, "poll")
        try:
            fetched = await self._fetch(where, position)
        except FAILED as error:
            history.recorder.complete(poll, "fail")
            if isinstance(error, OffsetOutOfRange) and error.log_start_offset > position:
                self._parts.rules.deleted(where, error.log_start_offset)
                history.recorder.tell("seek", [str(where)], process=self._name)
                holding.position = holding.handled = error.log_start_offset
            return False
        records = [*records_in(fetched.data, position)]
        if not records or not self._may_deliver(holding):
            history.recorder.complete(poll, "fail")
            self._pass_over(holding, fetched.next_offset, is_empty=not records)
            return False
        ends = {"high_watermark": fetched.high_watermark, "epoch": fetched.leader_epoch}
        history.show(poll, where, records, **ends, rebalanced=[*self.holdings.rebalanced])
        self.holdings.rebalanced.clear()
        await self._handle(holding, fetched.next_offset, [offset for offset, _ in records])
        return True

    def _pass_over(self, holding: Holding, end: int, *, is_empty: bool) -> None:
        """Moves the position to `end` if a read has returned no record (`is_empty`), since the offsets before `end`
        belong to none. Does nothing if records were read, or if the member may not hand out records any more."""
        assert holding.position is not None
        if is_empty and end > holding.position and self._may_deliver(holding):
            self._parts.rules.hands_out(self._membership.member_id, holding.where, holding.position, end, ())
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
        self._parts.rules.hands_out(self._membership.member_id, holding.where, holding.position, end, offsets)
        holding.position = end
        holding.idle.clear()
        mean_s = HURRIED_S if self._parts.post.is_calm else self._plan.handling_s
        await asyncio.sleep(self.dawdles_s + self._rng.expovariate(1 / mean_s))
        holding.handled = end
        holding.idle.set()

    async def commit_now_and_then(self) -> None:
        while not self.is_leaving:
            await asyncio.sleep(self._plan.commits_every_s)
            await self.commit()

    async def commit(self) -> None:
        holdings = [*self.holdings.uncommitted()]
        if not holdings or self._membership.member_epoch <= JOIN:
            return
        request = self._membership.commit([holding.to_commit() for holding in holdings])
        self.commits_under_way += 1
        try:
            answer = await self.ask(request)
        except (UnknownMember, FencedMember):
            self._parts.rules.counters["commit of an expelled member refused"] += 1
        except FAILED:
            self._parts.rules.counters["commit without an answer"] += 1
        else:
            assert isinstance(answer, CommitAnswer)
            self.holdings.committed(holdings, request, answer)
        finally:
            self.commits_under_way -= 1
