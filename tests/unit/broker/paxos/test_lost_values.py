"""A chosen value that nobody can read any more: its offsets are damaged, and the partition goes on."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from tests.unit.broker.isr.stage import PARTITION, until
from tests.unit.broker.paxos.site import Site
from tests.unit.broker.paxos.stage import Stage, play
from tests.unit.broker.paxos.test_damage import write
from tidelog.broker.partitions.proposals import ProduceReceipt
from tidelog.broker.paxos.journal_truncation import JournalBounds
from tidelog.broker.paxos.lost_values import ABSENT_S
from tidelog.model.errors import DamagedBatch
from tidelog.storage.rows import Row

TOPICS = "topics"
JOURNAL = f"{TOPICS}/{PARTITION.topic_id}/0/journal"


def zero_last(site: Site) -> None:
    """Overwrites the last entry of a journal by zeros. Nothing says that it was durable."""
    journal = site.replica._files.store.journal
    *_, row = journal.entries(0)
    assert isinstance(row, Row)
    journal.active.log.pwritev([bytes(row.length)], row.file_position)
    journal.active.log.sync()


async def lose(stage: Stage, *nodes: int, is_zeroed: bool = False) -> None:
    """Writes ten values, and has an eleventh accepted by all, and learned by nobody. These brokers' journals lose its
    payload, or, at their very end, all of its entry, and all brokers are down then."""
    await stage.lead(1)
    await write(stage, 1, 10)
    await stage.quiet()
    stage.on_frame = lambda sender, to, _: sender == 1
    assert not isinstance(await stage.produce(1, b"lost", wait_s=0.5), ProduceReceipt)
    stage.on_frame = lambda sender, to, _: True
    for node in nodes:
        if is_zeroed:
            zero_last(stage.sites[node])
        else:
            assert stage.sites[node].harm_journal(max(stage.sites[node].replica.engine.node.replica.slots))
    for site in stage.sites.values():
        await site.crash(is_power_lost=False)


def read_all(site: Site) -> tuple[bytes, list[int]]:
    """Returns what can be read, and the offsets that cannot."""
    log = site.replica.log
    found, damaged, offset = b"", [], 0
    while offset < log.log_end_offset:
        try:
            extent = log.read(offset, 1, log.log_end_offset)
            found, offset = found + extent.data, extent.next_offset
        except DamagedBatch:
            damaged.append(offset)
            offset += 1
    return found, damaged


async def write_more(stage: Stage, node: int, *, within_s: float = 1.5) -> None:
    """Elects a broker, and writes three values behind the lost one, soon."""
    begun_s = asyncio.get_running_loop().time()
    stage.elect(node)
    site = stage.sites[node]
    await until(lambda: site.replica.leader is not None and site.replica.leader.is_serving)
    assert asyncio.get_running_loop().time() - begun_s < within_s
    for number in range(3):
        receipt = await stage.produce(node, b"more%d" % number)
        assert isinstance(receipt, ProduceReceipt) and receipt.base_offset == 11 + number


async def shown_alike(stage: Stage) -> list[int]:
    """Waits until all have applied the same; returns which offsets none of them can read."""
    await stage.quiet()
    shown = [read_all(site) for site in stage.sites.values()]
    assert shown[0] == shown[1] == shown[2] and shown[0][0].count(b"more") == 3
    return shown[0][1]


@pytest.mark.parametrize("is_zeroed", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_the_partition_goes_on_without_a_value_that_all_have_lost(seed: int, *, is_zeroed: bool) -> None:
    async def story(stage: Stage) -> None:
        await lose(stage, 1, 2, 3, is_zeroed=is_zeroed)
        for site in stage.sites.values():
            await site.boot()
        await write_more(stage, 2)
        assert await shown_alike(stage) == [10]
        for site in stage.sites.values():
            await site.crash()
            await site.boot()
        await stage.lead(3)
        assert await shown_alike(stage) == [10]
        assert isinstance(await stage.produce(3, b"last"), ProduceReceipt)

    play(story, seed)


@pytest.mark.parametrize("has", [1, 2, 3])
def test_two_journals_that_have_lost_their_last_entry_forget_nothing(has: int) -> None:
    """They know that a value may be chosen, whoever of the two leads, and wait for the third."""

    async def story(stage: Stage) -> None:
        first, second = [node for node in stage.sites if node != has]
        await lose(stage, first, second, is_zeroed=True)
        for node in (first, second):
            await stage.sites[node].boot()
        stage.elect(second)
        await asyncio.sleep(1)
        await stage.sites[has].boot()
        await write_more(stage, first)
        assert await shown_alike(stage) == []
        assert all(b"lost" in site.content() for site in stage.sites.values())

    play(story)


def test_an_election_that_waits_names_the_position_and_the_voters_once() -> None:
    """Brokers 1 and 3 have chosen a value of which 1 has only the name; 2 never heard of it."""

    async def story(stage: Stage) -> None:
        stage.cut.add((1, 2))
        await lose(stage, 1)
        stage.cut.clear()
        for node in (1, 2):
            await stage.sites[node].boot()
        first = stage.sites[1].replica
        with capture_logs() as logs:
            for _ in range(2):
                stage.elect(1)
                await asyncio.sleep(5)
        told = [line for line in logs if "nobody leads before" in line["event"]]
        assert [(line["position"], line["unheard_voters"], line["unheard_brokers"]) for line in told] == [
            (11, (3,), [3])
        ]
        assert first.wait.current is not None and first.wait.current.positions == 1 and first.wait.current.seconds > 9
        await stage.sites[3].boot()
        await until(lambda: first.is_elected)
        assert first.wait.current is None, "it is over"

    play(story)


def test_a_replica_without_others_ends_at_its_last_sound_entry() -> None:
    async def story(stage: Stage) -> None:
        await stage.lead(1)
        await write(stage, 1, 3)
        stage.sites[1].replica.log.truncate_to(2, high_watermark=2, now_ms=0)
        zero_last(stage.sites[1])
        await stage.sites[1].crash(is_power_lost=False)
        await stage.sites[1].boot()
        await stage.lead(1)
        assert stage.sites[1].is_sound()
        assert isinstance(await stage.produce(1, b"more"), ProduceReceipt)

    play(story, replicas=1)


@pytest.mark.parametrize("seed", range(5))
def test_the_copy_of_a_replica_that_was_down_comes_back_to_all(seed: int) -> None:
    async def story(stage: Stage) -> None:
        await lose(stage, 1, 2)
        await stage.sites[1].boot()
        await stage.sites[2].boot()
        await write_more(stage, 1, within_s=ABSENT_S + 1.5)
        await stage.quiet([1, 2])
        assert read_all(stage.sites[1])[1] == read_all(stage.sites[2])[1] == [10]
        await stage.sites[3].boot()
        await until(lambda: all(site.is_sound() for site in stage.sites.values()))
        assert await shown_alike(stage) == []
        assert b"lost" in stage.sites[1].content()
        for site in stage.sites.values():
            await site.crash()
            await site.boot()
            await until(site.is_sound)  # what the crash tore the journal has

    play(story, seed)


def test_one_that_is_on_its_way_up_is_waited_for() -> None:
    async def story(stage: Stage) -> None:
        await lose(stage, 1, 2)
        await stage.sites[1].boot()
        await stage.sites[2].boot()
        stage.elect(1)
        await asyncio.sleep(ABSENT_S - 1)
        assert stage.sites[1].replica.high_watermark == stage.sites[2].replica.high_watermark == 10
        await stage.sites[3].boot()
        await write_more(stage, 1)
        assert await shown_alike(stage) == []
        assert all(b"lost" in site.content() for site in stage.sites.values())

    play(story)


@pytest.mark.parametrize(("lost", "engine_id"), [(JOURNAL, 3), (TOPICS, 9)], ids=["mute", "under another id"])
def test_the_disk_of_a_voter_that_is_gone_is_waited_for_by_nobody(lost: str, engine_id: int) -> None:
    """It is the leader alone that hears from that broker that it does not vote under the old id any more."""

    async def story(stage: Stage) -> None:
        await lose(stage, 1, 2)
        third = stage.sites[3]
        third.disk.remove_tree(lost)
        third.engine_id = engine_id
        for site in stage.sites.values():
            await site.boot()
        await write_more(stage, 1)
        assert await shown_alike(stage) == [10]

    play(story)


def test_nothing_is_lost_while_one_that_is_live_has_not_answered() -> None:
    async def story(stage: Stage) -> None:
        await lose(stage, 1, 2)
        stage.cut = {(3, 1), (3, 2)}
        for site in stage.sites.values():
            await site.boot()
        stage.elect(1)
        first = stage.sites[1]
        await until(lambda: first.replica.is_elected)
        await asyncio.sleep(2 * ABSENT_S)
        assert first.replica.high_watermark == 10 and first.replica.applied_position > 11
        stage.cut = set()
        await until(lambda: first.replica.leader is not None and first.replica.leader.is_serving)
        await stage.quiet()
        assert all(b"lost" in site.content() for site in stage.sites.values())

    play(story)


def test_one_that_is_cut_off_gives_nothing_up_by_itself() -> None:
    async def story(stage: Stage) -> None:
        await stage.lead(1)
        await write(stage, 1, 10)
        await stage.quiet()
        third = stage.sites[3]
        await until(lambda: third.replica.log.durable_offset == 10)
        third.replica.log.truncate_to(8, high_watermark=8, now_ms=0)
        assert third.harm_journal(9)
        await third.crash()
        for node in (1, 2):
            await stage.sites[node].crash()
        await third.boot()
        await asyncio.sleep(2 * ABSENT_S)
        assert third.replica.high_watermark < 10 and third.replica.log.damaged_ranges() == []

    play(story)


def test_who_copies_a_log_goes_on_behind_what_all_the_others_have_damaged() -> None:
    """A batch rots in both logs that are left, and their journals have given it up; the third was down for long."""

    async def story(stage: Stage) -> None:
        await stage.restart(JournalBounds(bytes_max=1 << 30, slots_max=20))
        await stage.lead(1)
        await write(stage, 1, 2)
        await stage.quiet()
        first, second, third = stage.sites.values()
        await third.crash()
        await write(stage, 1, 60)
        await until(lambda: all(site.replica.engine.node.replica.begin > 20 for site in (first, second)))
        kept = bytes(first.replica.log.read(10, 1, 11).data)
        for site in (first, second):
            site.harm_log(10)
            assert not site.is_sound()
        await third.boot()
        await stage.quiet()
        assert read_all(third) == read_all(first) and read_all(third)[1] == [10]
        first.replica.log.repair(kept)
        await until(lambda: all(site.is_sound() for site in stage.sites.values()))
        assert third.content() == first.content()

    play(story)
