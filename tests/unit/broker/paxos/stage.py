"""Replicas of one Paxos partition, each a process of its own with a simulated disk; frames go from hand to hand, late,
lost and out of order; the metadata's part is played by the story."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from tests.unit.broker.conftest import batch
from tests.unit.broker.isr.stage import PARTITION, until
from tidelog.broker.partitions.proposals import ProduceReceipt
from tidelog.broker.partitions.throttle import Throttle
from tidelog.broker.paxos.comparison import birth_of
from tidelog.broker.paxos.context import PartitionContext, ReplicaIdentity, voters_of
from tidelog.broker.paxos.journal_truncation import JournalBounds
from tidelog.broker.paxos.lanes import Lanes
from tidelog.broker.paxos.messages import AppliedDurable, PartitionFrame, ReadApplied, ReadValue
from tidelog.broker.paxos.move_throttle import MoveThrottle, ThrottledPeers
from tidelog.broker.paxos.opening import open_replica
from tidelog.broker.paxos.partition import PaxosPartition
from tidelog.broker.paxos.replica import PaxosReplica
from tidelog.broker.paxos.service import PaxosService
from tidelog.broker.repair.copies import Copies
from tidelog.broker.repair.repair_messages import RecoverQuery
from tidelog.broker.repair.repairer import Repairer
from tidelog.broker.runtime.lease import Lease
from tidelog.broker.runtime.log_writer import LogWriter
from tidelog.broker.runtime.purgatory import Purgatory
from tidelog.broker.runtime.stats import Stats
from tidelog.config.schema import BrokerConfig, TopicConfig
from tidelog.model.cluster import BrokerInfo, ClusterImage, PartitionInfo, PartitionMember, Topic, Voter
from tidelog.model.errors import DamagedBatch, LeaderNotAvailable, TidelogError, TimedOutAfterAppend
from tidelog.model.ids import NodeId
from tidelog.model.levels import LEVEL_MAX
from tidelog.model.ports import Buffer
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.environment import DISK_DELAY_S, SimClock, SimEntropy, SimRunner
from tidelog.sim.kit.faults import Crashed
from tidelog.sim.kit.loop import SimLoop, run
from tidelog.sim.kit.process import Process, context_of, outside, owned_task
from tidelog.sim.kit.seeds import stream
from tidelog.storage.log_manager import LogManager
from tidelog.storage.partition_log import LogSettings, PartitionLog
from tidelog.storage.rows import Row
from tidelog.storage.segment import Segment
from tidelog.transport.peer import Answer, Lane

T = TypeVar("T")
SETTINGS = LogSettings(segment_bytes=20_000, segment_ms=1 << 40)
WIRE = msgspec.msgpack.Decoder(PartitionFrame | AppliedDurable)
DELAY_S = 0.001


@dataclass(frozen=True)
class Shared:
    """`LeaderContext`."""

    clock: SimClock
    stats: Stats
    log_writer: LogWriter
    purgatory: Purgatory
    lease: Lease


class Site:
    """One broker: a disk, and one life after the other."""

    def __init__(self, stage: Stage, node: int, engine_id: int) -> None:
        self.stage = stage
        self.node = node
        self.engine_id = engine_id
        self.disk = SimDisk(f"{stage.seed}/{node}")
        self.process: Process | None = None
        self.replica: PaxosReplica
        self.service: PaxosService
        self.lives = 0
        self._begun = 0
        self.entropy = SimEntropy(stream(stage.seed, f"entropy {node}"))

    @property
    def is_up(self) -> bool:
        return self.process is not None and not self.process.is_dying

    @property
    def is_ready(self) -> bool:
        """Does it take part?"""
        return self.is_up and self._begun == self.lives

    async def boot(self) -> None:
        """Starts the next life, on what the disk holds."""
        loop = asyncio.get_running_loop()
        self.lives += 1
        process = self.process = Process(f"broker {self.node}")
        self.disk.on_crash = self._die
        task = loop.create_task(self._begin(), context=context_of(process))
        while not task.done() and self.is_up:
            await asyncio.sleep(0.001)
        if self.is_up:
            task.result()
            self.stage.tell(self)

    def _die(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop) and self.process is not None
        self.process.is_dying = True
        loop.pause(self.process)

    async def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        clock, stats = SimClock(loop), Stats()
        rng = stream(self.stage.seed, f"runner {self.node}.{self.lives}")
        writer = LogWriter(SimRunner(rng, self.stage.disk_delay_s), clock, stats)
        lease = Lease(clock, 1 << 40)
        lease.renew(clock.monotonic_s())
        shared = Shared(clock, stats, writer, Purgatory(), lease)
        manager = LogManager(self.disk, open_max=64, new_incarnation=lambda: self.entropy.token_hex(16))
        founders = voters_of(self.stage.members)
        is_founder = 0 < self.engine_id <= len(self.stage.members)
        files = open_replica(
            manager,
            clock.wall_ms(),
            partition_id=PARTITION,
            settings=SETTINGS,
            engine_id=self.engine_id,
            founders=founders if is_founder else None,
            since=0,
            is_alone=len(self.stage.sites) == 1,
        )
        self.spawn("disk", writer.run())
        self.stats = stats
        self.throttle = Throttle(NodeId(self.node), BrokerConfig(), clock, stats)
        move_throttle = MoveThrottle(self.node, self.throttle)
        context = PartitionContext(
            shared,
            ThrottledPeers(self, move_throttle),
            self.entropy,
            self.spawn,
            self.stage.journal_bounds,
            lambda: self.stage.level,
        )
        identity = ReplicaIdentity("t", PARTITION, self.node, self.engine_id)
        self.replica = PaxosReplica(identity, founders, files, context)
        self.lanes = Lanes(clock, stats)
        self.service = PaxosService(lambda _: self.replica, move_throttle, self.lanes if self.stage.lanes > 1 else None)
        self.copies = Copies(lambda _: self.replica, lambda _: True, lambda: self.lives, self)
        repairer = Repairer(
            NodeId(self.node), lambda _: self.replica, self.stage.image, self.copies, shared.log_writer, stats
        )
        files.log.damage.on_change = lambda: repairer.noticed(PARTITION)
        repairer.noticed(PARTITION)
        self.spawn("repairer", repairer.run())
        self.replica.start()
        self._begun = self.lives

    def spawn(self, name: object, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(work, name=str(name))

    def act(self, call: Callable[[], None]) -> None:
        """Has the broker do something, if it is up; while it is paused, later."""
        if self.process is not None and self.is_up:
            asyncio.get_running_loop().call_soon(call, context=context_of(self.process))

    def run(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Has the broker do something that takes time."""
        assert self.process is not None and self.is_up
        return asyncio.get_running_loop().create_task(work, context=context_of(self.process))

    def pause(self) -> None:
        loop = asyncio.get_running_loop()
        if isinstance(loop, SimLoop) and self.process is not None and self.is_up:
            loop.pause(self.process)

    def resume(self) -> None:
        loop = asyncio.get_running_loop()
        if isinstance(loop, SimLoop) and self.process is not None and self.is_up:
            loop.resume(self.process)

    async def stop(self) -> None:
        """Ends this life in good order."""
        process = self.process
        self.resume()
        if self.is_ready:
            closing = self.run(self._close())
            while self.process is process and self.is_up and not closing.done():
                await asyncio.sleep(0.001)
        await self.crash(is_power_lost=False)

    async def _close(self) -> None:
        await self.replica.close()
        await self.replica.at_rest()

    async def crash(self, *, is_power_lost: bool = True) -> None:
        """Ends this life."""
        process, self.process = self.process, None
        self.disk = self.disk.crash() if is_power_lost else self.disk.kill()
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        if process is None:
            return
        process.is_dying = True
        for _ in range(10):
            tasks = [task for task in process.tasks if not task.done()]
            for task in tasks:
                task.cancel()
            loop.resume(process)
            await loop.run_dry(process)
            for task in tasks:
                if task.done() and not task.cancelled():
                    task.exception()
        loop.bury(process)

    # -- `Peers` -----------------------------------------------------------------------------------------------------

    def notify(self, node_id: int, message: msgspec.Struct, payload: Sequence[Buffer] = ()) -> bool:
        lane = 1
        if isinstance(message, PartitionFrame) and self.stage.lanes > 1:
            lane = self.lanes.choose(node_id, message, range(1, 1 + self.stage.lanes))
        self.stage.carry(self.node, node_id, msgspec.msgpack.encode(message), b"".join(payload), lane)
        return True

    async def ask(self, node_id: int, message: ReadApplied | ReadValue, deadline_s: float) -> Answer:
        await asyncio.sleep(DELAY_S)
        other = self.stage.sites[node_id]
        if not other.is_ready or self.stage.is_cut(self.node, node_id) or not self.stage.asks_answered:
            raise TimeoutError
        if isinstance(message, ReadValue):
            answer = await other.service.read_value(message)
        else:
            answer = await other.service.read(self.node, message)
        return Answer(answer.message, (b"".join(answer.payload),))

    def is_live(self, node_id: int) -> bool:
        return self.stage.sites[node_id].is_up

    async def request(
        self, node_id: int, message: msgspec.Struct, *, deadline_s: float, lane: Lane = Lane.CONTROL
    ) -> Answer:
        """For the repairer."""
        assert isinstance(message, RecoverQuery)
        await asyncio.sleep(DELAY_S)
        other = self.stage.sites[node_id]
        if not other.is_ready or self.stage.is_cut(self.node, node_id):
            raise TimeoutError
        answer = other.copies.answer(message)
        return Answer(answer.message, (b"".join(bytes(part) for part in answer.payload),))

    # -- damage --------------------------------------------------------------------------------------------------------

    def harm_log(self, offset: int) -> None:
        """A byte of an applied batch turns over on this disk."""
        _harm(self.replica.log, offset)

    def harm_journal(self, position: int) -> bool:
        """A byte of what was accepted there turns over; False if there is no payload."""
        store = self.replica._files.store
        place = store._entries.index.slots.get(position)
        if place is None or place.payload is None:
            return False
        _harm(store.journal, place.payload.offset)
        return True

    def is_sound(self) -> bool:
        """Can all of the log be read?"""
        try:
            self.content()
        except DamagedBatch:
            return False
        return True

    # -- for the story -------------------------------------------------------------------------------------------------

    def content(self) -> bytes:
        """All batches in the log."""
        log = self.replica.log
        found, offset = b"", log.log_start_offset
        while offset < log.log_end_offset:
            extent = log.read(offset, 1 << 20, log.log_end_offset)
            found, offset = found + bytes(extent.data), extent.next_offset
        return found

    def rows(self) -> list[tuple[int, int, int]]:
        """Base offset, position and number of every batch."""
        return [
            (row.base_offset, row.position, birth_of(row.number))  # type: ignore[union-attr]  # there is no damage here
            for row in self.replica.log.entries(self.replica.log.log_start_offset)
            if row.kind == 4  # type: ignore[union-attr]  # as above
        ]


def _harm(log: PartitionLog, offset: int) -> None:
    """Of what is durable, and known to be: else it would look torn, and be cut off."""
    log.mark()
    log.active.catalog.sync()
    segment, row = next(log.parts(offset)), next(log.entries(offset))
    if isinstance(segment, Segment) and isinstance(row, Row) and row.next_offset <= log.durable_offset:
        position = row.file_position + row.length - 2
        (byte,) = segment.log.pread(1, position)
        segment.log.pwritev([bytes([byte ^ 1])], position)
        segment.log.sync()


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
