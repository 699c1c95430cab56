"""A fault in which a loss is accepted too early: all copies of a committed batch are damaged but one, whose broker is
down.

    one broker goes -> all others die -> their copies are damaged, they start -> an administrator gives the batch up,
    without the broker that is down -> readers pass -> the good copy comes back, and is shown to nobody

The ledger learns of the accepted loss from the metadata log, and every record that clients read is checked against it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from tidelog.broker.broker import Broker
from tidelog.broker.partitions.partition_handle import FetchedBatches
from tidelog.broker.repair.loss_report import LossReport
from tidelog.controller.partition_commands import AcceptLoss
from tidelog.controller.records import GivenUpRange
from tidelog.model.errors import LeaderNotAvailable, TidelogError
from tidelog.model.ids import NodeId, PartitionId
from tidelog.sim.cluster.blackout import blackout, draw_end
from tidelog.sim.cluster.good_copies import Copy, GoodCopies
from tidelog.sim.cluster.ledger import Ledger
from tidelog.sim.cluster.scenario import Effects, Strike
from tidelog.sim.cluster.shadows import Held
from tidelog.sim.cluster.world import World
from tidelog.sim.kit import rot
from tidelog.sim.kit.history import records_in
from tidelog.sim.kit.machine import ConnectionLost, Unreachable

LOOK_S = 0.05
FENCED_S_MAX = 4.0
"""Seconds in which the others should notice that a broker is down."""
ACCEPTED_S_MAX = 20.0
"""Seconds for which the administrator tries to have the loss accepted."""
ATTEMPT_S_MAX = 3.0
RETRY_S = 0.2
PASSED_S_MAX = 5.0
"""Seconds for which reads at the given-up offsets are tried."""
READ_BYTES = 4_096
ADMINISTRATOR = "administrator"


class LossStrikes:
    """Carries out the fault of a loss that is accepted too early; its first node is the broker that is down."""

    def __init__(self, world: World, ledger: Ledger) -> None:
        self._world = world
        self._ledger = ledger
        self._copies = GoodCopies(world, ledger)

    def effects(self) -> Effects:
        """Returns the functions that carry out the faults of this class, by the fault's name."""
        return {"late copy": self._late_copy}

    async def _late_copy(self, strike: Strike, rng: random.Random) -> None:
        away, truth = strike.nodes[0], self._world.truth
        async with self._world.keepers[away].down(draw_end(rng)):
            await self._until_fenced(away)
            await asyncio.sleep(strike.lasts_s)
            destroyed = await self._destroy(strike, rng)
            if destroyed is None or not await self._give_up(*destroyed, away, rng):
                truth.saw("fault withheld")
                return
            await self._look(*destroyed, [node for node in self._world.swarm.nodes if node != away])
        truth.saw("good copy comes back too late")
        await self._look(*destroyed, self._ledger.replicas(destroyed[0]))

    async def _until_fenced(self, node: int) -> None:
        for _ in range(round(FENCED_S_MAX / LOOK_S)):
            if not self._world.truth.image.is_live(NodeId(node)):
                return
            await asyncio.sleep(LOOK_S)

    # -- the damage --------------------------------------------------------------------------------------------------

    async def _destroy(self, strike: Strike, rng: random.Random) -> tuple[PartitionId, Held] | None:
        """Damages all copies of a batch but that of the broker that is down, and returns the batch; None if there is no
        suitable one."""
        away = strike.nodes[0]
        others = [node for node in self._world.swarm.nodes if node != away]
        async with blackout(self._world, strike, rng, others, written_back=self._world.swarm.nodes):
            candidates = [
                candidate
                for partition_id in sorted(self._ledger.books)
                for candidate in self._candidates(partition_id, away)
            ]
            if not candidates:
                return None
            partition_id, batch = rng.choice(candidates)
            for copy in self._others(partition_id, batch, away):
                _, path, position, size = copy.extent
                rot.flip_bit(self._world.medium(copy.node), path, position + rng.randrange(size), rng.randrange(8))
                self._world.truth.note("damage", *copy.extent)
                self._ledger.rots(copy.node, partition_id)
            self._ledger.guards(partition_id)
            self._world.truth.saw("all copies but one damaged")
        return partition_id, batch

    def _candidates(self, partition_id: PartitionId, away: int) -> list[tuple[PartitionId, Held]]:
        """Returns the batches in the log of the node `away` of which other replicas have copies, and whose damage there
        would lose no other batch."""
        kept = [
            copy.batches[0]
            for copy in self._copies.committed(partition_id, away, is_journal=False)
            if away in self._ledger.replicas(partition_id)
        ]
        hit = [(batch, self._others(partition_id, batch, away)) for batch in kept]
        return [(partition_id, batch) for batch, copies in hit if copies and self._copies.may_go(partition_id, copies)]

    def _others(self, partition_id: PartitionId, batch: Held, away: int) -> list[Copy]:
        return [
            copy
            for node in self._ledger.replicas(partition_id)
            for is_journal in (False, True)
            for copy in self._copies.read(partition_id, node, is_journal=is_journal)
            if node != away and batch in copy.batches
        ]

    # -- the administrator -------------------------------------------------------------------------------------------

    async def _give_up(self, partition_id: PartitionId, batch: Held, away: int, rng: random.Random) -> bool:
        """Tries to have the loss of a batch accepted; returns False if it is still refused after `ACCEPTED_S_MAX`
        seconds."""
        deadline_s = self._world.true_time + ACCEPTED_S_MAX
        others = [node for node in self._world.swarm.nodes if node != away]
        while not self._ledger.books[partition_id].is_given_up(batch):
            if self._world.true_time > deadline_s:
                return False
            via = rng.choice(others)
            try:
                async with asyncio.timeout(ATTEMPT_S_MAX):
                    await self._world.machine(via).call(lambda broker: self._ask(broker, partition_id, batch, away))
            except (TidelogError, TimeoutError, ConnectionLost, Unreachable) as error:
                self._world.truth.note("loss not accepted yet", f"via {via}", type(error).__name__, error)
            await asyncio.sleep(RETRY_S)
        return True

    async def _ask(self, broker: Broker, partition_id: PartitionId, batch: Held, away: int) -> None:
        """Asks which offsets are lost: first with the broker that is down counted, which must be refused, then without
        it; accepts the answer."""
        report = await find_losses(broker, partition_id, (batch.base, batch.end))
        if report.lost and not report.refusals:
            self._world.truth.violate("losses", f"{batch} may be given up, and node {away}, which has it, is not asked")
        report = await find_losses(broker, partition_id, (batch.base, batch.end), (away,))
        ranges = tuple(report.lost)
        if report.refusals:
            self._world.truth.note("loss refused", *report.refusals)
            return
        if any(lost.start < batch.base or lost.end > batch.end for lost in ranges):
            self._world.truth.violate("losses", f"{ranges} are called lost, and {batch} is")
        await accept_losses(broker, partition_id, ranges)

    # -- readers -----------------------------------------------------------------------------------------------------

    async def _look(self, partition_id: PartitionId, batch: Held, nodes: Sequence[int]) -> None:
        """Reads at the given-up batch from the copies of these brokers, and checks that none shows a record of it."""
        deadline_s = self._world.true_time + PASSED_S_MAX
        left = list(nodes)
        while left and self._world.true_time < deadline_s:
            for node in list(left):
                try:
                    async with asyncio.timeout(ATTEMPT_S_MAX):
                        fetched = await self._world.machine(node).call(
                            lambda broker: _read(broker, partition_id, batch)
                        )
                except (TidelogError, TimeoutError, ConnectionLost, Unreachable):
                    continue
                left.remove(node)
                shown = [offset for offset, _ in records_in(fetched.data, batch.base) if offset < batch.end]
                self._world.truth.saw("loss passed by the reader of a copy", not shown)
                if shown:
                    self._world.truth.violate("losses", f"node {node} shows {shown}, and {batch} was given up")
            await asyncio.sleep(LOOK_S)


async def find_losses(
    broker: Broker, partition_id: PartitionId, offsets: tuple[int, int], even_though: Sequence[int] = ()
) -> LossReport:
    """Asks the replicas which of these offsets are lost; `even_though` names brokers that need not answer. Raises
    `LeaderNotAvailable` if no replica can be asked, or `OffsetOutOfRange`."""
    topic = next(topic for topic in broker.image.topics.values() if topic.topic_id == partition_id.topic_id)
    return await broker.data.loss_finder.find(topic, topic.partitions[partition_id.partition], offsets, even_though)


async def accept_losses(broker: Broker, partition_id: PartitionId, ranges: tuple[GivenUpRange, ...]) -> None:
    """Accepts the loss of these offsets, as an administrator."""
    await broker.admin.accept_loss(AcceptLoss(*partition_id, ranges, ADMINISTRATOR, int(broker.node_id), 0))


async def _read(broker: Broker, partition_id: PartitionId, batch: Held) -> FetchedBatches:
    copy = broker.data.local_copy(partition_id)
    if copy is None:
        raise LeaderNotAvailable("there is no copy yet")
    return await copy.read(batch.base, bytes_max=READ_BYTES)
