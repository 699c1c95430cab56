"""A replica's roles as images come: while nobody leads it is held, and nothing of its log changes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from msgspec import UNSET

from tests.unit.broker.isr.stage import PARTITION, Site
from tidelog.broker.isr.follower import Follower
from tidelog.broker.isr.isr_roles import IsrRoles
from tidelog.broker.isr.partition import Partition
from tidelog.broker.isr.recent_batches import RecentBytes
from tidelog.broker.partitions.replica_logs import ReplicaLogs
from tidelog.broker.partitions.roles import Assignment
from tidelog.broker.runtime.role_tasks import RoleTasks
from tidelog.config.schema import BrokerConfig, TopicConfig
from tidelog.controller.partition_commands import UnfitReason
from tidelog.model.cluster import END_UNKNOWN, NO_LEADER, ClusterImage, PartitionInfo, Regrouping, Topic
from tidelog.model.ids import NodeId
from tidelog.replication.isr.events import FollowerFetched, Tick
from tidelog.replication.isr.log_events import Appended, Flushed, Propose
from tidelog.sim.kit.loop import run

NODE, OTHER = NodeId(1), NodeId(2)


class Cast:
    """The roles of broker 1, whose log holds three records of epoch 1, two of them known to be committed."""

    def __init__(self) -> None:
        self.site = site = Site(1)
        site.write(1, b"a", b"b", b"c")
        self.followed: dict[int, list[Follower]] = {}
        """The followers that a fetcher asks for, by leader."""
        self._disk = asyncio.ensure_future(site.writer.run())
        manager = cast("Any", SimpleNamespace(logs={PARTITION: site.log}))
        logs = ReplicaLogs(manager, site.clock, site.stats, site.writer, lambda _: None)
        logs.high_watermarks[PARTITION] = 2
        context: Any = SimpleNamespace(
            node_id=NODE,
            config=BrokerConfig(),
            logs=logs,
            tasks=RoleTasks(lambda: None),
            log_writer=site.writer,
            clock=site.clock,
            stats=site.stats,
            recent=RecentBytes(),
            awaiting={},
            begins_to_await=asyncio.Event(),
            lease=None,
            purgatory=None,
            replication=SimpleNamespace(progressed=lambda _: None),
            newest=None,
            on_metadata_applied=None,
        )
        new_fetcher: Any = self._new_fetcher
        self.shared = context
        self.roles = IsrRoles(context, context, new_fetcher, lambda _: None, new_fetcher)
        self.info = PartitionInfo(0, NO_LEADER, 3, (NODE, OTHER), ())

    async def serve(self, leader: NodeId, epoch: int, **changes: Any) -> None:
        self.info = replace(self.info, leader=leader, leader_epoch=epoch, **changes)
        topic = Topic("t", PARTITION.topic_id, {}, (self.info,))
        await self.roles.serve(Assignment(PARTITION, topic, self.info, TopicConfig()), ClusterImage("c"))

    @property
    def held(self) -> Follower:
        """The replica, of which nobody leads the partition."""
        found = self.roles.followers[PARTITION]
        assert found.is_readable and self.roles.readable[PARTITION] is found
        assert not any(self.followed.values())
        return found

    async def close(self) -> None:
        await self.roles.close()
        assert not self.roles.holders
        self._disk.cancel()
        await asyncio.gather(self._disk, return_exceptions=True)

    def _new_fetcher(self, leader: int) -> object:
        known = self.followed[leader] = []
        return SimpleNamespace(add=known.append, remove=lambda _: known.clear(), run=asyncio.Event().wait)


def play(story: Callable[[Cast], Awaitable[None]]) -> None:
    async def main() -> None:
        made = Cast()
        await story(made)
        await made.close()

    run(main)


def test_a_replica_is_held_from_the_start_though_nobody_leads_and_shows_what_is_known_to_be_committed() -> None:
    async def story(it: Cast) -> None:
        await it.serve(NO_LEADER, 3)
        held = it.held
        assert (held.leader_epoch, held.high_watermark, held.log.log_end_offset) == (3, 2, 3)
        await it.roles.stop(PARTITION)  # as if the replica were moved away
        assert not it.roles.holders and not held.is_readable

    play(story)


def test_who_followed_or_led_is_held_when_nobody_leads_any_more_and_follows_or_leads_again() -> None:
    async def story(it: Cast) -> None:
        await it.serve(OTHER, 3)
        following = it.roles.followers[PARTITION]
        assert it.followed == {2: [following]}
        await it.serve(NO_LEADER, 4)
        assert it.held.high_watermark == 2 and not following.is_readable
        await it.serve(NODE, 5, isr=(NODE,))
        leading = it.roles.holders[PARTITION]
        assert isinstance(leading, Partition) and leading.high_watermark == 3
        await it.serve(NO_LEADER, 6, isr=(), elr=(NODE,))
        assert it.held.high_watermark == 3
        await it.serve(OTHER, 7, isr=(OTHER,), elr=())
        assert it.followed == {2: [it.roles.followers[PARTITION]]}

    play(story)


def test_a_leader_whose_disk_hangs_is_told_of_as_unfit_until_it_takes_something_again() -> None:
    async def story(it: Cast) -> None:
        await it.serve(NODE, 4, isr=(NODE, OTHER))
        leading = it.roles.holders[PARTITION]
        assert isinstance(leading, Partition) and it.roles.unfit() == {}
        leading._protocol.step(Propose(1))
        leading._protocol.step(Appended(4))  # and is never flushed
        it.shared.awaiting[PARTITION] = leading
        leading.fetched(FollowerFetched(2, 0, 4, 4, 4, 0))
        for now_ms in range(0, 1_000, 100):
            leading.tell(Tick(now_ms))
        assert it.roles.unfit() == {PARTITION: UnfitReason.STALLED}
        leading._protocol.step(Flushed(4))
        leading.tell(Tick(1_000))
        assert it.roles.unfit() == {}

    play(story)


def test_what_an_operator_gave_up_is_not_shown_by_who_comes_back() -> None:
    async def story(it: Cast) -> None:
        regroupings = [Regrouping(epoch, end, 0, "op", 2, 2) for epoch, end in ((1, 0), (2, END_UNKNOWN), (2, 1))]
        await it.serve(NO_LEADER, 3, regroupings=tuple(regroupings[:2]))
        assert it.held.high_watermark == 2, "the log has batches of that epoch"
        await it.serve(NO_LEADER, 4, regroupings=tuple(regroupings))
        assert it.held.high_watermark == 1

    play(story)


def test_a_log_that_stands_in_for_a_lost_one_does_so_until_it_is_in_sync() -> None:
    async def story(it: Cast) -> None:
        log = it.site.log
        log.stands_in_since = 5
        await it.serve(NO_LEADER, 3, since=((NODE, 5),), elr=(NODE,))
        assert log.stands_in_since == 5, "the metadata count on the lost one still"
        await it.serve(OTHER, 4, since=((NODE, 9),), isr=(OTHER,), elr=())
        assert log.stands_in_since == 5
        await it.serve(OTHER, 4, isr=(NODE, OTHER))
        assert log.metainfo(0).stands_in_since is UNSET

    play(story)


class Leader:
    """A partition as `tick` sees it: the times that it was told, and what it waits for."""

    def __init__(self) -> None:
        self.partition_id = PARTITION
        self.log_end_offset = self.high_watermark = 3
        self.told_ms: list[int] = []
        self.is_at_rest = False

    def tell(self, tick: Tick) -> None:
        self.told_ms.append(tick.now_ms)


def test_a_leader_that_waits_for_nobody_is_told_the_time_seldom() -> None:
    async def story(cast_: Cast) -> None:
        leader = Leader()
        cast_.roles.partitions[PARTITION] = cast("Any", leader)
        ticking = asyncio.ensure_future(cast_.roles.tick())
        await asyncio.sleep(10)
        assert 8 <= len(leader.told_ms) <= 11
        leader.told_ms.clear()
        leader.log_end_offset = 4
        cast_.shared.awaiting[PARTITION] = leader
        cast_.shared.begins_to_await.set()
        await asyncio.sleep(1)
        assert len(leader.told_ms) >= 8, "a stall is noticed however long nothing was written before"
        leader.is_at_rest, leader.high_watermark = True, 4
        await asyncio.sleep(1)
        leader.told_ms.clear()
        await asyncio.sleep(10)
        assert leader.told_ms == [], "the time tells it nothing new"
        ticking.cancel()
        del cast_.roles.partitions[PARTITION]

    play(story)
