"""When an old copy of a data directory is noticed whoever starts first, and what is asked of the disks while it may
lie there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import pytest
from structlog.testing import capture_logs

from tests.unit.controller.cluster import PaxosCluster, topic_id, voter
from tidelog.model.ids import NodeId, PartitionId, TopicId
from tidelog.sim.cluster.book import Book
from tidelog.sim.cluster.data_rot import DataRot
from tidelog.sim.cluster.ledger import Ledger
from tidelog.sim.cluster.rules import all_rules
from tidelog.sim.cluster.scenario import Strike, Swarm
from tidelog.sim.cluster.tail_strikes import TailStrikes
from tidelog.sim.cluster.truth import Truth
from tidelog.sim.cluster.watch import Watch
from tidelog.sim.cluster.witnesses import Witnesses, is_quorum_aware
from tidelog.sim.cluster.world import World
from tidelog.sim.kit import loop as sim_loop
from tidelog.sim.kit import rot
from tidelog.sim.kit.machine import Machine
from tidelog.sim.kit.process import owned_task
from tidelog.sim.kit.seeds import stream
from tidelog.storage.slot_entries import EntryKind, Head, encode_entry

UP_S_MAX = 20.0
SWARM = Swarm(3, 0, 1.0, 0.0, 0.001, 0.001, 0.0, 0.01)
METADATA_FILE = "metadata/00000000000000000000.log"
STRUCK = Strike(0.0, "tail of the metadata log", (1, 2), 0.1, 0.5)


@pytest.mark.parametrize(
    ("voters", "aware", "is_sure"),
    [
        (1, (), False),
        (2, (2,), True),
        (3, (2, 3), True),
        (3, (2,), False),
        (4, (3, 4), True),
        (4, (4,), False),
        (5, (3, 4, 5), True),
        (5, (4, 5), False),
    ],
)
def test_an_old_disk_is_told_if_it_is_no_majority_with_all_who_do_not_know(
    voters: int, aware: tuple[int, ...], is_sure: bool
) -> None:
    disks = [(node, f"disk-{node}") for node in aware]
    assert is_quorum_aware([voter(node) for node in range(1, 1 + voters)], (1, "disk-1"), disks) is is_sure


def test_another_disk_of_a_node_that_knows_tells_nothing_for_the_voter_that_is_gone() -> None:
    voters = [voter(1), voter(2), voter(3)]
    assert not is_quorum_aware(voters, (1, "disk-1"), [(2, "disk-2"), (3, "another")])
    assert is_quorum_aware(voters, (4, "disk-4"), []), "it has no vote"


def in_world(story: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        asyncio.get_running_loop().set_task_factory(owned_task)
        truth = Truth(all_rules())
        world = World(1, SWARM, truth)
        truth.clock = lambda: asyncio.get_running_loop().time()
        with Watch(world).open():
            try:
                await story(world)
            finally:
                await world.close()

    with capture_logs():
        sim_loop.run(main, 1)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(UP_S_MAX):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("lags", [False, True])
def test_who_lags_behind_the_last_start_does_not_know(lags: bool) -> None:
    """Node 1 stops, is copied, and starts again; node 2 hears of that start, or is away meanwhile."""

    async def story(world: World) -> None:
        def starts(node: int) -> int:
            broker = world.machine(node).broker
            return 0 if broker is None else broker.image.brokers[NodeId(1)].starts

        world.start(SWARM.founders)
        await until(lambda: all(world.machine(node).is_up for node in SWARM.nodes))
        async with AsyncExitStack() as holds:
            async with world.keepers[1].down(Machine.kill):
                backup = world.machine(1).back_up()
                before = starts(3)
                if lags:
                    await holds.enter_async_context(world.keepers[2].down(Machine.kill))
            know = (3,) if lags else (2, 3)
            await until(lambda: world.machine(1).is_up and all(starts(node) > before for node in know))
            await asyncio.sleep(1.0)  # what is known is on the disks
            for node in SWARM.nodes:
                await holds.enter_async_context(world.keepers[node].down(Machine.kill))
            assert Witnesses(world).recognise(1, backup) is not lags
            assert not Witnesses(world).recognise(1, world.machine(1).back_up()), "that is no old copy"

    in_world(story)


@pytest.mark.parametrize("is_whole", [False, True])
def test_what_an_old_directory_has_of_the_metadata_log_is_no_good_copy(is_whole: bool) -> None:
    async def story(world: World) -> None:
        ledger = Ledger()
        entry = encode_entry(Head(EntryKind.SLOT, 0, 1, b"digest"), b"value", 0, 1)
        for node in SWARM.nodes:
            rot.plant(world.machine(node).disk.medium, METADATA_FILE, b"".join(entry.buffers))
            world.truth.storages[node] = [f"disk-{node}"]
        if not is_whole:
            world.destroy(3)
        tails = TailStrikes(world, ledger, DataRot(world, ledger))
        await tails.effects()[STRUCK.kind](STRUCK, stream(1, "strike"))
        assert world.truth.counters["last entry damaged"] == is_whole
        assert world.truth.counters["fault withheld"] == (not is_whole)

    in_world(story)


def test_the_journals_of_a_directory_on_which_a_broker_begins_anew_have_no_vote() -> None:
    cluster = PaxosCluster()
    partition_id, ledger = PartitionId(TopicId(topic_id("t")), 0), Ledger()
    ledger.attach(Truth((), image=cluster.image))
    book = ledger.books[partition_id] = Book("t-0", False, True)
    ledger.majorities.created(partition_id, book, cluster.partition, lambda node: 0)
    assert all(ledger.may_rob(node, partition_id) for node in (1, 2, 3))
    ledger.begins_anew(1)
    assert not ledger.may_rob(2, partition_id) and not ledger.may_rob(3, partition_id), "two of three votes"
    assert ledger.may_rob(1, partition_id), "it is lost already"
