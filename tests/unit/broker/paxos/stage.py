"""Replicas of one Paxos partition, each a process of its own with a simulated disk; frames go from hand to hand, late,
lost and out of order; the metadata's part is played by the story."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from tests.unit.broker.conftest import batch
from tests.unit.broker.isr.stage import PARTITION, until
from tests.unit.broker.paxos.site import DELAY_S, Site
from tidelog.broker.partitions.proposals import ProduceReceipt
from tidelog.broker.paxos.context import voters_of
from tidelog.broker.paxos.journal_truncation import JournalBounds
from tidelog.broker.paxos.messages import AppliedDurable, PartitionFrame
from tidelog.broker.paxos.partition import PaxosPartition
from tidelog.config.schema import TopicConfig
from tidelog.model.cluster import BrokerInfo, ClusterImage, PartitionInfo, PartitionMember, Topic, Voter
from tidelog.model.errors import LeaderNotAvailable, TidelogError, TimedOutAfterAppend
from tidelog.model.ids import NodeId
from tidelog.model.levels import LEVEL_MAX
from tidelog.sim.kit.environment import DISK_DELAY_S
from tidelog.sim.kit.faults import Crashed
from tidelog.sim.kit.loop import run
from tidelog.sim.kit.process import context_of, outside, owned_task
from tidelog.sim.kit.seeds import stream

WIRE = msgspec.msgpack.Decoder(PartitionFrame | AppliedDurable)


class Stage:
    """Three brokers, from 1 on; `loss` is the share of frames that get lost."""

    def __init__(self, seed: object, replicas: int = 3, spares: int = 0) -> None:
        self.seed = seed
        self.rng = stream(seed, "stage")
        self.loss = 0.0
        self.disk_delay_s = DISK_DELAY_S
        self.cut: set[tuple[int, int]] = set()
        self.asks_answered = True
        self.is_orderly = False
        """Frames arrive in their order, as on a connection that does not break: of each lane, if there are several."""
        self.lanes = 1
        self.delay_s: Callable[[int, int, int], float] = lambda sender, to, lane: DELAY_S
        """Returns the time that the next frame takes on its lane, if nothing holds it up."""
        self.arrives_s: dict[tuple[int, int, int], float] = {}
        self.journal_bounds = JournalBounds()
        self.level = LEVEL_MAX
        self.config = TopicConfig()
        self.members = [PartitionMember(node, node, "") for node in range(1, replicas + 1)]
        self.sites = {node: Site(self, node, node) for node in range(1, replicas + 1)}
        for node in range(replicas + 1, replicas + spares + 1):
            self.sites[node] = Site(self, node, 0)
        self._last_id = replicas + spares
        self.leader, self.epoch = -1, -1
        self.on_frame: Callable[[int, int, msgspec.Struct], bool] = lambda sender, to, message: True
        """False if the frame is to be lost."""

    async def boot(self) -> None:
        for site in self.sites.values():
            await site.boot()

    async def restart(self, bounds: JournalBounds | None = None, *, is_power_lost: bool = True) -> None:
        """Crashes all sites and boots them, with these bounds of their journals from now on if some are given."""
        self.journal_bounds = bounds or self.journal_bounds
        for site in self.sites.values():
            await site.crash(is_power_lost=is_power_lost)
        await self.boot()

    async def close(self) -> None:
        for site in self.sites.values():
            site.resume()
            await site.crash(is_power_lost=False)

    # -- network -------------------------------------------------------------------------------------------------------

    def is_cut(self, sender: int, to: int) -> bool:
        return (sender, to) in self.cut or (to, sender) in self.cut

    def carry(self, sender: int, to: int, message: bytes, payload: bytes, lane: int) -> None:
        decoded = WIRE.decode(message)
        if self.rng.random() < self.loss or self.is_cut(sender, to) or not self.on_frame(sender, to, decoded):
            return
        loop = asyncio.get_running_loop()
        delay_s = self.delay_s(sender, to, lane) if self.is_orderly else self.rng.expovariate(1 / DELAY_S)
        if self.is_orderly:
            way = sender, to, lane
            self.arrives_s[way] = max(self.arrives_s.get(way, 0.0), loop.time() + delay_s)
            delay_s = self.arrives_s[way] - loop.time()
        outside(loop.call_later, delay_s, self._deliver, sender, to, decoded, payload)

    def _deliver(self, sender: int, to: int, message: msgspec.Struct, payload: bytes) -> None:
        site = self.sites[to]
        site.act(lambda: self._hand(site, sender, message, payload))

    @staticmethod
    def _hand(site: Site, sender: int, message: msgspec.Struct, payload: bytes) -> None:
        if site.is_up and hasattr(site, "service"):
            if isinstance(message, PartitionFrame):
                site.service.take_frame(sender, message, memoryview(payload))
            else:
                assert isinstance(message, AppliedDurable)
                site.service.take_durable(sender, message, memoryview(payload))

    def image(self) -> ClusterImage:
        """Returns what a repairer needs to know: who has a replica, and is live."""
        nodes = tuple(NodeId(node) for node in self.sites)
        brokers = {
            node: BrokerInfo(node, {}, None, self.sites[node].lives, f"life-{node}", "h", 2, f"disk-{node}")
            for node in nodes
        }
        info = PartitionInfo(0, NodeId(self.leader), max(self.epoch, 0), nodes, nodes)
        return ClusterImage("c", topics={"t": Topic("t", PARTITION.topic_id, {}, (info,))}, brokers=brokers)

    # -- metadata ------------------------------------------------------------------------------------------------------

    def elect(self, node: int) -> None:
        """Names the leader of the next epoch; everybody hears of it in time."""
        self.leader, self.epoch = node, self.epoch + 1
        for site in self.sites.values():
            self.tell(site)

    def tell(self, site: Site) -> None:
        if self.leader < 0:
            return
        leader, epoch = self.leader, self.epoch

        def hear() -> None:
            replica = site.replica
            if replica.leader_epoch >= epoch:
                return
            replica.set_members(voters_of(self.members), list(self.sites))
            if leader == site.node:
                partition = replica.lead(epoch, self.config)
                site.spawn("partition", partition.run())
            else:
                replica.follow(epoch, leader)

        site.act(hear)

    async def lead(self, node: int) -> PaxosPartition:
        """Elects a broker, and waits until it serves."""
        self.elect(node)
        site = self.sites[node]
        await until(lambda: site.replica.leader is not None and site.replica.leader.is_serving)
        assert site.replica.leader is not None
        return site.replica.leader

    # -- clients -------------------------------------------------------------------------------------------------------

    async def produce(
        self,
        node: int,
        value: bytes,
        *,
        key: bytes | None = None,
        acks: int = -1,
        wait_s: float = 5.0,
        producer: tuple[int, int] | None = None,
        expected_end: int | None = None,
    ) -> ProduceReceipt | TidelogError | None:
        """One request to a broker: its receipt, its error, or None if it does not answer any more."""
        site = self.sites[node]
        if not site.is_up or site.process is None:
            return None
        producer_id, sequence = producer or (-1, -1)
        batches = batch(value, key=key, producer_id=producer_id, sequence=sequence, timestamp_ms=1_700_000_000_000)

        async def ask() -> ProduceReceipt | TidelogError | None:
            leader = site.replica.leader
            if leader is None:
                return None
            deadline_s = asyncio.get_running_loop().time() + wait_s
            try:
                return await leader.produce(batches, acks=acks, deadline_s=deadline_s, expected_end=expected_end)
            except TidelogError as error:
                return error

        task = asyncio.get_running_loop().create_task(ask(), context=context_of(site.process))
        await asyncio.wait([task])
        return None if task.cancelled() else task.result()

    async def delete(self, node: int, offset: int, *, wait_s: float = 5.0) -> TidelogError | None:
        """One request to delete a prefix: its error, or None if it is deleted, or does not answer any more."""
        site = self.sites[node]
        leader = site.replica.leader
        if not site.is_up or site.process is None or leader is None:
            return LeaderNotAvailable("nobody is there")

        async def ask() -> TidelogError | None:
            try:
                await leader.delete_records(offset, deadline_s=asyncio.get_running_loop().time() + wait_s)
            except TidelogError as error:
                return error
            except Crashed:
                return TimedOutAfterAppend("the machine has died")
            return None

        task = asyncio.get_running_loop().create_task(ask(), context=context_of(site.process))
        await asyncio.wait([task])
        return None if task.cancelled() else task.result()

    async def change(self, node: int, *, add: int | None = None, remove: int | None = None) -> None:
        """Has the leader change who votes; a broker that is added has been given its own number as its id."""
        site = self.sites[node]
        voter = None if add is None else Voter(add, add, "", "", 0)
        voters = site.replica.voters.with_change(add=voter, remove=remove)
        if add is not None:
            self.sites[add].engine_id = add
            self.sites[add].act(lambda: self.sites[add].replica.set_engine_id(add))
            await until(lambda: self.sites[add].replica.is_voting)
        assert site.process is not None
        loop = asyncio.get_running_loop()
        await loop.create_task(site.replica.voting.change(voters), context=context_of(site.process))

    async def tend(self) -> None:
        """The controller's part where a disk has forgotten what it accepted: it gets another id, and the leader puts
        that one in the place of the old."""
        while True:
            await asyncio.sleep(0.1)
            for site in self.sites.values():
                if site.is_ready and site.replica.lost_engine_id == site.engine_id:
                    self._last_id += 1
                    site.engine_id = self._last_id
                self.inform(site)
            leader = self.sites.get(self.leader)
            if leader is not None and leader.is_ready:
                await self._replace_voter(leader)

    def inform(self, site: Site) -> None:
        """Of its engine id, again."""
        if site.is_ready:
            site.act(lambda: site.replica.set_engine_id(site.engine_id))

    async def _replace_voter(self, leader: Site) -> None:
        replica = leader.replica
        if not replica.voting.is_settled:
            return
        for voter in replica.voters.voters:
            site = self.sites[voter.node_id]
            if site.engine_id != voter.voter_id and site.is_ready and site.replica.is_voting:
                add = Voter(site.engine_id, site.node, "", "", 0)
                task = leader.run(replica.voting.change(replica.voters.with_change(add=add, remove=voter.voter_id)))
                await asyncio.wait([task])
                if not task.cancelled():
                    assert task.exception() is None or isinstance(task.exception(), TidelogError | Crashed)
                return

    @property
    def is_whole(self) -> bool:
        """Does every voter in force remember all that it accepted, as far as the leader knows?"""
        leader = self.sites.get(self.leader)
        if leader is None or not leader.is_ready or not leader.replica.voting.is_settled:
            return False
        ids = {site.node: site.engine_id for site in self.sites.values() if site.is_ready and site.replica.is_voting}
        return {voter.node_id: voter.voter_id for voter in leader.replica.voters.voters} == ids

    async def quiet(self, nodes: Sequence[int] = ()) -> None:
        """Waits until these replicas have applied the same."""
        sites = [site for node, site in self.sites.items() if node in nodes or not nodes]

        def is_quiet() -> bool:
            ends = {
                (site.replica.applied_position, site.replica.log.log_start_offset, site.replica.log.log_end_offset)
                for site in sites
            }
            return len(ends) == 1 and all(site.replica.applying.delivery.needs_snapshot is None for site in sites)

        await until(is_quiet)


def play(story: Callable[[Stage], Awaitable[None]], seed: object = 1, replicas: int = 3, spares: int = 0) -> None:
    """Runs a story on a stage, in virtual time."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_task_factory(owned_task)
        stage = Stage(seed, replicas, spares)
        await stage.boot()
        try:
            await story(stage)
        finally:
            await stage.close()

    run(main, seed)


def random_of(seed: object) -> random.Random:
    return stream(seed, "story")
