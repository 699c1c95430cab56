"""The data of one run: its topics, its clients, and the checks of them at the end.

begin -> topics are created, clients write and read during the faults -> settle: when all brokers are back, the clients
learn the outcome of all that they sent, the replicas become equal, and every promise is checked
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress

from msgspec.structs import replace

from tidelog.broker.broker import Broker
from tidelog.broker.isr.partition import Partition
from tidelog.broker.paxos.replica import PaxosReplica
from tidelog.broker.repair.copies import Holder
from tidelog.checker.operations import View
from tidelog.model.cluster import TOTAL, PartitionInfo
from tidelog.model.ids import PartitionId, TopicPartition
from tidelog.sim.broker.crash import Client
from tidelog.sim.broker.readers import read_all
from tidelog.sim.cluster import clients
from tidelog.sim.cluster.bystanders import CopyReader, Deleter
from tidelog.sim.cluster.early_reads import EarlyClient
from tidelog.sim.cluster.ledger import Ledger
from tidelog.sim.cluster.shadows import Held, ends_at, read_batches
from tidelog.sim.cluster.traffic import Traffic
from tidelog.sim.cluster.truth import Truth
from tidelog.sim.cluster.world import World
from tidelog.sim.kit.seeds import stream
from tidelog.sim.kit.tasks import cancel_all, raise_failures

FINISH_S_MAX = 60.0
"""Seconds that clients may need on a healthy cluster to learn the outcome of every batch that they sent."""
EQUAL_S_MAX = 30.0
"""Seconds that replicas may need to become equal when nothing is written any more."""
ANYWHERE = 1 << 62
LOOK_S = 0.05
DELETERS_SHARE = 0.3
"""Share of Paxos partitions that have a client deleting old records."""


class Data:
    """The data of one run: topics and clients, and the final check of them."""

    def __init__(self, seed: int, world: World, truth: Truth, ledger: Ledger) -> None:
        self.history = clients.ClusterHistory(ledger)
        self._seed = seed
        self._world = world
        self._truth = truth
        self._ledger = ledger
        self._traffic: Traffic = world.swarm.traffic
        self._work: asyncio.Task[None] | None = None
        self._clients: dict[asyncio.Task[None], tuple[Client, TopicPartition | None]] = {}
        self._early: dict[TopicPartition, EarlyClient] = {}
        """The clients that read by key or without order, by partition."""
        self._stopping = asyncio.Event()
        ledger.lost = self.history.lose
        ledger.gives_up = self.history.damage
        ledger.passes = self.history.go_on
        self._plan()

    def _plan(self) -> None:
        for topic in self._traffic.topics:
            watched = [TopicPartition(topic.name, number) for number in range(topic.partitions)]
            self.history.watched.update(watched)
            if topic.is_lossy:
                self.history.volatile.update(watched)
            if topic.order != TOTAL:
                self.history.recorder.tell("holes", map(str, watched))
                self._early.update((where, self._early_client(where, topic.order)) for where in watched)
            if "retention.bytes" in topic.configs:
                for where in watched:
                    self.history.ask_start(where, ANYWHERE)

    def _early_client(self, where: TopicPartition, order: str) -> EarlyClient:
        rng = stream(self._seed, f"early {where}")
        return EarlyClient(where, self._anywhere(f"early {where}"), self.history, rng, order)

    def _anywhere(self, purpose: str) -> clients.AnyBroker:
        return clients.AnyBroker(self._world, stream(self._seed, f"anywhere {purpose}"))

    # -- the run -----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Starts creating the topics, and then the clients."""
        if self._traffic.topics:
            self._work = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        for topic in self._traffic.topics:
            await clients.create(topic, self._anywhere(topic.name))
        for client, where in self._make_clients():
            task = asyncio.ensure_future(client.run())
            self._clients[task] = client, where
        self._truth.note("clients begin")

    def _make_clients(self) -> Iterator[tuple[Client, TopicPartition | None]]:
        for plan in self._traffic.producers:
            where = TopicPartition(plan.topic, plan.partition)
            rng = stream(self._seed, plan.name)
            anywhere = self._anywhere(plan.name)
            args = plan.name, plan.kind, plan.acks, where, anywhere, self.history, rng, plan.keys
            yield clients.ClusterProducer(*args), where
        for where in sorted(self.history.watched):
            rng = stream(self._seed, f"reader {where}")
            yield clients.ClusterReader(where, self._anywhere(f"reader {where}"), self.history, rng), where
            if self._is_by_majority(where):
                rng = stream(self._seed, f"copies {where}")
                yield CopyReader(where, self._anywhere(f"copies {where}"), self.history, rng), where
                if stream(self._seed, f"deletes {where}").random() < DELETERS_SHARE:
                    rng = stream(self._seed, f"deleter {where}")
                    yield Deleter(where, self._anywhere(f"deleter {where}"), self.history, rng), where
        yield from ((early, where) for where, early in self._early.items())
        if self._traffic.tunes:
            rng = stream(self._seed, "tuner")
            yield clients.Tuner(self._traffic.topics, self._anywhere("tuner"), rng), None

    def _is_by_majority(self, where: TopicPartition) -> bool:
        return any(topic.name == where.topic and topic.is_paxos for topic in self._traffic.topics)

    async def close(self) -> None:
        """Cancels the tasks of all clients."""
        await cancel_all([*self._clients, *([self._work] if self._work is not None else [])])

    # -- the end -----------------------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Stops the clients once all brokers are back, waits until replicas are equal, and checks the logs."""
        if self._work is None:
            return
        await asyncio.sleep(0.5)
        await self._hurry_moves()
        if await self._finish() and await self._become_equal():
            await self._check()

    async def _hurry_moves(self) -> None:
        """Removes the replication throttle, so that reassignments end within the time that the final check allows."""
        for node in self._world.swarm.nodes:
            with suppress(*clients.FAILURES):
                await self._world.machine(node).call(lambda broker: broker.admin.alter_reassignments((), 0))
                return

    async def _finish(self) -> bool:
        assert self._work is not None
        deadline_s = self._world.true_time + FINISH_S_MAX
        with suppress(TimeoutError):
            async with asyncio.timeout(FINISH_S_MAX):
                await asyncio.shield(self._work)
        for client, _ in self._clients.values():
            client.stop()
        while left := self._unfinished():
            if self._world.true_time > deadline_s:
                break
            await asyncio.sleep(LOOK_S)
        raise_failures([*self._clients, self._work])
        if left or not self._work.done():
            self._truth.violate("clients", f"do not get through within {FINISH_S_MAX:.0f} s: {left}")
            return False
        return True

    def _unfinished(self) -> list[str]:
        return [
            str(where)
            for task, (_, where) in self._clients.items()
            if not task.done() and (where is None or not self._is_gone(where))
        ]

    def _is_gone(self, where: TopicPartition) -> bool:
        topic = self._ledger.topic_of(where)
        book = self._ledger.book_of(where)
        if topic is None or book is None:
            return False
        partition_id = PartitionId(topic.topic_id, where.partition)
        return book.is_gone or self._ledger.waits_for_a_word(partition_id)

    def _partitions(self) -> Iterator[tuple[TopicPartition, PartitionId, PartitionInfo]]:
        for where in sorted(self.history.watched):
            topic = self._truth.image.topics[where.topic]
            if where.partition < len(topic.partitions) and not self._is_gone(where):
                info = topic.partitions[where.partition]
                yield where, PartitionId(topic.topic_id, where.partition), info

    async def _become_equal(self) -> bool:
        deadline_s = self._world.true_time + EQUAL_S_MAX
        while missing := [wrong for partition in self._partitions() for wrong in self._unequal(*partition)]:
            if self._world.true_time > deadline_s:
                for wrong in missing:
                    self._truth.violate("convergence", f"after {EQUAL_S_MAX:.0f} s {wrong}")
                return False
            await asyncio.sleep(LOOK_S)
        return True

    def _unequal(self, where: TopicPartition, partition_id: PartitionId, info: PartitionInfo) -> Iterator[str]:
        if info.adding or info.removing:
            yield f"{where}: replicas are still moving, to {info.target}"
            return
        if sorted(info.isr) != sorted(info.replicas):
            yield f"{where}: ISR {info.isr} of replicas {info.replicas}"
            return
        if info.members != info.wanted:
            yield f"{where}: members {info.members}, and {info.wanted} are wanted"
            return
        ends = dict[int, tuple[int, int]]()
        starts: set[int] = set()
        for node in info.replicas:
            broker = self._world.machine(node).broker
            role = None if broker is None else broker.data.replicas.holders.get(partition_id)
            if role is None:
                yield f"{where}: node {node} has no role"
                return
            may_have_gaps = (
                self._ledger.is_rotten(partition_id)
                or self._ledger.books[partition_id].torn
                or role.log.damaged_ranges()  # a power cut took a batch of which others have copies
            )
            readable_to = ends_at(role.log, self._ledger.torn_offsets(partition_id)) if may_have_gaps else ANYWHERE
            if readable_to < role.log.log_end_offset:
                yield f"{where}: node {node} cannot read on at {readable_to}"
            if (wrong := _wrong_with(role, is_leader=node == info.leader)) is not None:
                yield f"{where}: node {node} {wrong}"
            ends[node] = role.high_watermark, role.log.log_end_offset
            starts.update([role.log.log_start_offset] if isinstance(role, PaxosReplica) else [])
        if len({*ends.values()}) > 1 or any(high != end for high, end in ends.values()):
            yield f"{where}: high watermarks and ends {ends}"
        if len(starts) > 1:
            yield f"{where}: logs begin at {sorted(starts)}"

    # -- checks ------------------------------------------------------------------------------------------------------

    async def _check(self) -> None:
        self._truth.saw("replicas compared")
        self._truth.saw("partition left out of the comparison", any(map(self._is_gone, self.history.watched)))
        views: list[View] = []
        for where, partition_id, info in self._partitions():
            self._compare(where, partition_id, info)
            self._ledger.comes_to_rest(partition_id)
            views.append(self._without(self._ledger.torn_offsets(partition_id), await self._view(where)))
            if where in self._early and where not in self.history.volatile:
                self._early[where].check(views[-1])
        if self._truth.counters["fault: repeat frames"]:
            self.history.recorder.tell("repeats")
        self.history.check(views)

    def _without(self, torn: set[int], view: View) -> View:
        """Returns the view without its damaged offsets that are `torn`: batches that no disk ever held whole. Records
        there are missing from the view, so that one which was acknowledged or read counts as lost."""
        self._truth.saw("torn batch chosen by its name", not torn.isdisjoint(view.damaged))
        return replace(view, damaged=[offset for offset in view.damaged if offset not in torn])

    async def _view(self, where: TopicPartition) -> View:
        anywhere = self._anywhere(f"view {where}")
        for _ in range(100):
            try:
                return await read_all(anywhere, where, self.history, is_sparse=self.history.is_sparse(where))
            except clients.FAILURES as error:
                self._truth.note("reading at the end", where, type(error).__name__, error)
                await asyncio.sleep(LOOK_S)
        raise AssertionError(f"{where} cannot be read on a healthy cluster")

    def _compare(self, where: TopicPartition, partition_id: PartitionId, info: PartitionInfo) -> None:
        """Checks that all replicas hold the same batches, namely the committed ones, except those whose loss was
        accepted."""
        copies: dict[int, list[Held]] = {}
        end, torn = 0, self._ledger.torn_offsets(partition_id)
        for node in map(int, info.replicas):
            broker = self._world.machine(node).broker
            assert isinstance(broker, Broker)
            log = broker._manager.logs[partition_id]
            copies[node], end = read_batches(log, torn=torn), max(end, log.log_end_offset)
        start = max((batches[0].base for batches in copies.values() if batches), default=end)
        kept = {node: [batch for batch in batches if batch.base >= start] for node, batches in copies.items()}
        book = self._ledger.books[partition_id]
        expected = [batch for batch in book.shown(0) if batch.base >= start]
        for holder, batches in kept.items():
            if batches != expected:
                wrong = f"{where}: node {holder} holds {len(batches)} batches, and {len(expected)} others are committed"
                self._truth.violate("equal replicas", wrong)

    def report(self) -> None:
        """Adds the clients' violations and counters to the run's result (`Truth`)."""
        for wrong in self.history.violations:
            self._truth.violate("clients", wrong)
        self._truth.counters.update({f"client: {name}": count for name, count in self.history.counters.items()})
        acknowledged = sum(len(sent.values) for sent in self.history.sent if sent.is_acknowledged)
        self._truth.counters["records acknowledged"] += acknowledged
        self._truth.hash.update(self.history.hash.digest())


def _wrong_with(role: Holder, *, is_leader: bool) -> str | None:
    """Returns how a replica's role differs from the one that the metadata gives it; None if it does not."""
    if not isinstance(role, PaxosReplica):
        return None if isinstance(role, Partition) == is_leader else "has another role than the metadata says"
    if (role.leader is not None and role.leader.is_serving) != is_leader:
        return "does not lead yet, or still does"
    if role.applying.delivery.needs_snapshot is not None or not role.is_voting:
        return "lacks a part of the log, or the right to vote"
    return None
