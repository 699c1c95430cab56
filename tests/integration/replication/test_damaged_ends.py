"""Three whole brokers, all killed at an acknowledgement: the last batch is damaged on two, and the third stays away.

Only the third can say what the batch was, or that it is damaged there as well. Nobody may lead before that, and none of
the two gains anything by making way for the other. If it never comes back, an operator has the partition go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from tidelog.broker.broker import Broker, NewTopic
from tidelog.broker.repair.loss_report import LossReport
from tidelog.broker.repair.remains_report import RemainsReport
from tidelog.broker.replicas.data_plane import WaitingPartition
from tidelog.controller.partition_commands import AcceptLoss, RegroupPartition
from tidelog.model.cluster import PartitionInfo, Topic
from tidelog.model.errors import DamagedBatch, LossRefused, OffsetOutOfRange, TidelogError
from tidelog.model.ids import PartitionId
from tidelog.sim.kit.loop import run
from tidelog.sim.kit.seeds import stream
from tidelog.sim.sweep.brokers import Brokers, brokers_of
from tidelog.sim.sweep.cases import Case, Damage, Plan, Protocol, Stop, Variant
from tidelog.sim.sweep.copies import damage_copies, find_copies
from tidelog.sim.sweep.reading import append
from tidelog.storage.log_manager import JOURNAL, log_directory

PLAN = Plan(Protocol.ISR, Stop.ACKNOWLEDGED, Variant.PLAIN, seed=1)
TOPIC = "t"
VALUES = [b"value %d" % number for number in range(4)]
LAST = 3
AWAY = 3
PATIENCE_S = 30.0
"""Ten times as long as a leader tries to settle its log before another had better lead."""


class Stage:
    """Brokers 1 and 2 have the last batch damaged, and run; broker 3 has it whole, and does not run."""

    def __init__(self, brokers: Brokers) -> None:
        self.brokers = brokers
        self._epoch = -1
        """The partition epoch at which `remains` has asked."""

    @property
    def topic(self) -> Topic:
        return self.brokers.image.topics[TOPIC]

    @property
    def info(self) -> PartitionInfo:
        return self.topic.partitions[0]

    async def ask(self, work: Callable[[Broker], Any], node: int = 1) -> Any:
        return await self.brokers.machines[node].call(work)

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not is_so():
                await asyncio.sleep(0.05)

    async def until_waiting(self) -> None:
        """The session of broker 3 is over, and one of the others is to lead."""
        machines = [self.brokers.machines[node] for node in (1, 2)]
        await self.until(
            lambda: (
                all(machine.is_up for machine in machines)
                and all(self.brokers.image.is_live(node) for node in (1, 2))
                and not self.brokers.image.is_live(AWAY)
                and self.info.leader in (1, 2)
            )
        )

    async def losses(self, offsets: tuple[int, int] | None = None, *even_though: int) -> LossReport:
        async def find(broker: Broker) -> LossReport:
            return await broker.data.loss_finder.find(self.topic, self.info, offsets, even_though)

        found: LossReport = await self.ask(find)
        return found

    async def remains(self, *even_though: int) -> RemainsReport:
        info = self.info

        async def find(broker: Broker) -> RemainsReport:
            return await broker.data.remains_finder.find(self.topic, info, even_though)

        found: RemainsReport = await self.ask(find)
        self._epoch = info.partition_epoch
        return found

    async def regroup(self, report: RemainsReport) -> None:
        """Does as `accept-loss --votes --execute`, with a report of earlier."""
        what = (report.kept, report.end, report.source, report.statements)
        command = RegroupPartition(self.topic.topic_id, 0, self._epoch, *what, "op", 1, 7)
        await self.ask(lambda broker: broker.admin.regroup(command))

    async def give_up(self, report: LossReport) -> None:
        """Does as `accept-loss --execute`."""
        command = AcceptLoss(self.topic.topic_id, 0, tuple(report.lost), "op", 1, 8)
        await self.ask(lambda broker: broker.admin.accept_loss(command))

    async def read(self, offset: int) -> bytes:
        """Reads at the leader."""

        async def fetch(broker: Broker) -> bytes:
            return bytes((await broker.partition(TOPIC, 0).read(offset, bytes_max=1)).data)

        data: bytes = await self.ask(fetch)
        return data

    async def until_written(self, value: bytes) -> int:
        async with asyncio.timeout(60):
            while True:
                try:
                    offset: int = await self.ask(lambda broker: append(broker, TOPIC, 0, value))
                    return offset
                except TidelogError:
                    await asyncio.sleep(0.1)

    async def wait(self, node: int) -> WaitingPartition | None:
        """Returns what the partition waits for at this broker."""

        async def look(broker: Broker) -> WaitingPartition | None:
            return broker.data.waiting().get((TOPIC, 0))

        found: WaitingPartition | None = await self.ask(look, node)
        return found

    async def start_the_third(self) -> None:
        self.brokers.start(AWAY)
        assert await self.brokers.are_up()


def play(story: Callable[[Stage], Awaitable[None]], minimum: int = 3) -> None:
    """Writes, kills, damages, starts brokers 1 and 2, and plays the story, in virtual time."""

    async def main() -> None:
        async with brokers_of(PLAN, "written") as brokers:
            for node in PLAN.nodes:
                brokers.start(node)
            assert await brokers.are_up()
            configs = {"commit.protocol": "isr", "min.insync.replicas": str(minimum)}
            new = NewTopic(TOPIC, assignments={0: [*PLAN.nodes]}, configs=configs)
            placed = await brokers.machines[1].call(lambda broker: broker.admin.create_topic(new))
            for value in VALUES:
                await brokers.machines[1].call(partial(append, topic=TOPIC, number=0, value=value))
            disks = await brokers.end()
        directory = f"{log_directory(PartitionId(placed.topic_id, 0))}/"
        copies = [one for node in disks for one in find_copies(node, disks[node], directory, VALUES, JOURNAL)]
        pattern = sum(1 << LAST * len(PLAN.nodes) + node - 1 for node in (1, 2))
        async with brokers_of(PLAN, "played") as brokers:
            brokers.restore(disks)
            damage_copies(Case(pattern, Damage.FLIP), copies, brokers.media, len(PLAN.nodes), stream("damage"))
            brokers.start(1)
            brokers.start(2)
            stage = Stage(brokers)
            await stage.until_waiting()
            await story(stage)

    run(main)


def test_two_that_wait_for_a_third_do_not_take_turns() -> None:
    async def story(stage: Stage) -> None:
        await asyncio.sleep(5)
        epoch, leader = stage.info.leader_epoch, stage.info.leader
        await asyncio.sleep(PATIENCE_S)
        assert stage.info.leader_epoch == epoch
        wait = await stage.wait(leader)
        assert wait is not None and wait.awaited == {AWAY} and wait.seconds > PATIENCE_S
        await stage.start_the_third()
        assert await stage.until_written(b"after") == len(VALUES)
        assert VALUES[LAST] in await stage.read(LAST)
        await asyncio.sleep(5)
        assert await stage.wait(leader) is None

    play(story)


def test_what_is_not_known_to_be_committed_is_not_given_up_and_the_operator_is_told_what_to_do() -> None:
    """The high watermarks were not on any disk yet, so that the partition seems to be empty."""

    async def story(stage: Stage) -> None:
        await asyncio.sleep(5)
        for asked, even_though in ((None, ()), ((LAST, LAST + 1), ()), (None, (AWAY,)), ((LAST, LAST + 1), (AWAY,))):
            report = await stage.losses(asked, *even_though)
            assert report.lost == []
            (refusal,) = report.refusals
            assert "offsets 3-3" in refusal and "broker 3" in refusal and "--votes" in refusal, refusal
        with pytest.raises(OffsetOutOfRange, match="holds 0 to 3"):
            await stage.losses((LAST, LAST + 2))
        refused = await stage.remains()
        assert len(refused.refusals) == 1 and "--even-though 3" in refused.refusals[0]
        assert "everything that was acknowledged" in refused.refusals[0]

    play(story)


@pytest.mark.parametrize("minimum", [2, 3])
def test_an_operator_has_the_partition_go_on_without_the_third(minimum: int) -> None:
    """It leads without the last batch, which is then given up like any other; what the third has does not count."""

    async def story(stage: Stage) -> None:
        await asyncio.sleep(5)
        report = await stage.remains(AWAY)
        info = stage.info
        assert (report.refusals, report.kept, report.source, report.end) == ((), (1, 2), info.leader, len(VALUES))
        await stage.regroup(report)
        assert stage.info.leader_epoch == info.leader_epoch + 1
        assert AWAY not in (*stage.info.isr, *stage.info.elr)
        await stage.until(lambda: {1, 2} <= {*stage.info.isr})
        with pytest.raises(DamagedBatch):
            await stage.read(LAST)
        found = await stage.losses((LAST, LAST + 1), AWAY)
        assert (found.refusals, [(lost.start, lost.end) for lost in found.lost]) == ((), [(LAST, LAST + 1)])
        await stage.give_up(found)
        after = await stage.remains(AWAY)
        assert after.refusals and after.before is not None, "it was done already"
        await stage.start_the_third()
        assert await stage.until_written(b"after") == len(VALUES)
        assert VALUES[LAST] not in await stage.read(LAST)
        await stage.until(lambda: {*stage.info.isr} == {*PLAN.nodes})
        assert [offset for offset in range(LAST) if VALUES[offset] in await stage.read(offset)] == [*range(LAST)]

    play(story, minimum=minimum)


def test_a_leader_that_waits_for_one_who_is_there_is_not_given_up() -> None:
    """Broker 3 comes back: it is asked, and has the batch."""

    async def story(stage: Stage) -> None:
        await asyncio.sleep(5)
        report = await stage.remains(AWAY)
        await stage.start_the_third()
        await stage.until_written(b"after")
        with pytest.raises(LossRefused, match="has changed"):
            await stage.regroup(report)
        assert "leads this partition" in (await stage.remains()).refusals[0]

    play(story)
