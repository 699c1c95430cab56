"""A log that holds more than its journal accounts for: who has forgotten has no vote, and what was never agreed on goes
before anybody sees it."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.broker.isr.stage import until
from tests.unit.broker.paxos.site import Site
from tests.unit.broker.paxos.stage import Stage, play, random_of
from tests.unit.broker.paxos.test_damage import write
from tests.unit.broker.paxos.test_journal_copies import begin, positions
from tidelog.broker.partitions.proposals import ProduceReceipt
from tidelog.broker.paxos.ballots import number_of
from tidelog.broker.paxos.comparison import AppliedRow, Comparison, birth_of, find_forgotten, row_identity
from tidelog.broker.paxos.messages import PartitionFrame
from tidelog.replication.paxos.apply import Verdict
from tidelog.replication.paxos.events import Applied
from tidelog.replication.paxos.messages import LearnResponse
from tidelog.replication.paxos.state import NOP, UNKNOWN, Kind, Prefix, Slot, Value
from tidelog.storage.partition_log import PartitionLog
from tidelog.storage.rows import ROW_BYTES, Row
from tidelog.storage.segment import Segment

V = Value(Kind.APPEND, 5, 10, 2, b"v" * 16)
"""Offsets 10 and 11, in two batches."""


def rows(*placed: tuple[int, int, int]) -> list[AppliedRow]:
    return [AppliedRow(offset, position, birth, True) for offset, position, birth in placed]


def applied(position: int, value: Value, verdict: Verdict = Verdict.APPLIED) -> Applied:
    return Applied(position, value, verdict, False)


# -- the judgement ---------------------------------------------------------------------------------------------------


def test_a_row_says_whether_its_journal_had_the_value() -> None:
    for is_accounted in (True, False):
        position, number = row_identity(7, 5, is_accounted=is_accounted)
        assert (position, birth_of(number)) == (7, 5)
    assert row_identity(7, 5, is_accounted=True) != row_identity(7, 5, is_accounted=False)


@pytest.mark.parametrize(
    ("slots", "is_accounted", "has_forgotten"),
    [
        ((Slot(4, 9, V),), True, False),
        ((Slot(4, 9, UNKNOWN, faulty=True),), True, False),
        ((), True, True),
        ((), False, False),
        ((Slot(4, 9, Value(Kind.APPEND, 3, 10, 2, b"w" * 16)),), True, True),
        ((Slot(4, 9, NOP, learned=True),), True, True),
    ],
    ids=["there", "its name is lost", "not there", "was not there yet", "an older value", "a NOP"],
)
def test_who_has_forgotten(slots: tuple[Slot, ...], is_accounted: bool, has_forgotten: bool) -> None:
    row = AppliedRow(10, 4, 5, is_accounted)
    assert find_forgotten([row], slots) == (row if has_forgotten else None)


@pytest.mark.parametrize(
    ("seen", "odd"),
    [
        (applied(4, V), None),
        (applied(4, Value(Kind.APPEND, 4, 10, 2, b"w" * 16)), 10),
        (applied(4, NOP, Verdict.NOTHING), 10),
        (applied(4, V, Verdict.VOID), 10),
        (applied(5, NOP, Verdict.NOTHING), 10),
        (applied(3, NOP, Verdict.NOTHING), None),
        (applied(3, Value(Kind.BARRIER, 5)), None),
        (applied(3, Value(Kind.BARRIER, 6)), 10),
        (applied(3, Value(Kind.APPEND, 5, 9, 1, b"u" * 16)), None),
        (applied(3, Value(Kind.APPEND, 5, 9, 2, b"u" * 16)), 10),
    ],
)
def test_where_a_log_is_at_odds_with_what_is_applied(seen: Applied, odd: int | None) -> None:
    comparison = Comparison(rows((10, 4, 5), (11, 4, 5), (12, 6, 5)), rows_hidden_from=10)
    assert comparison.at_odds(seen) == odd
    assert comparison.at_odds(seen) == odd, "it may be asked again"


def test_what_is_compared_is_shown() -> None:
    comparison = Comparison(rows((10, 4, 5), (11, 4, 5), (12, 6, 5)), rows_hidden_from=10)
    assert comparison.at_odds(applied(4, V)) is None
    assert comparison.hidden_from == 12 and not comparison.is_done
    assert comparison.at_odds(applied(6, Value(Kind.APPEND, 5, 12, 1, b"x" * 16))) is None
    assert comparison.hidden_from is None and comparison.is_done


@pytest.mark.parametrize(("hidden_from", "doubted"), [(10, range(10, 12)), (None, range(0))])
def test_what_a_jump_leaves_uncompared_is_relied_on_if_nothing_was_forgotten_and_doubted_else(
    hidden_from: int | None, doubted: range
) -> None:
    comparison = Comparison(rows((10, 4, 5), (12, 6, 5)), hidden_from)
    assert comparison.jumped(Prefix(6, 5, 12)) is None
    assert comparison.jumped(Prefix(4, 5, 10)) is None
    assert comparison.hidden_from == hidden_from and list(comparison.doubted) == list(doubted)
    assert not comparison.is_done


def test_a_floor_before_the_hidden_part_leaves_nothing_in_doubt() -> None:
    comparison = Comparison(rows((5, 1, 5), (6, 2, 5), (9, 4, 5)), rows_hidden_from=9)
    assert comparison.jumped(Prefix(3, 5, 7)) is None
    assert comparison.hidden_from == 9 and not comparison.doubted
    assert comparison.at_odds(applied(4, Value(Kind.APPEND, 5, 9, 1, b"x" * 16))) is None
    assert comparison.hidden_from is None and comparison.is_done


def test_what_stands_behind_the_end_of_a_floor_though_before_its_position_was_never_agreed_on() -> None:
    comparison = Comparison(rows((5, 1, 5), (6, 2, 5), (9, 4, 5)), rows_hidden_from=9)
    assert comparison.jumped(Prefix(5, 5, 7)) == 9
    comparison = Comparison(rows((5, 1, 5), (6, 2, 5), (9, 4, 5)), rows_hidden_from=5)
    assert comparison.jumped(Prefix(5, 5, 7)) == 9
    comparison.truncated(9)
    assert comparison.doubted == range(5, 7), "what lies below is compared all the same"


def test_what_is_doubted_stays_hidden_until_it_is_settled() -> None:
    comparison = Comparison(rows((10, 4, 5), (11, 4, 5), (12, 6, 5)), rows_hidden_from=10)
    assert comparison.jumped(Prefix(5, 5, 12)) is None and comparison.hidden_below(12) == 10
    assert comparison.at_odds(applied(3, NOP, Verdict.NOTHING)) is None
    assert comparison.hidden_from == 10
    comparison.settled(11)
    assert comparison.doubted == range(11, 12) and comparison.hidden_from == 11
    comparison.settled(12)
    assert not comparison.doubted and comparison.hidden_from == 12, "the next row is compared as ever"
    assert comparison.hidden_below(12) == -1
    assert comparison.at_odds(applied(6, Value(Kind.APPEND, 5, 12, 1, b"x" * 16))) is None
    assert comparison.is_done


def test_a_row_that_names_no_position_is_at_odds_with_another_leader_epoch() -> None:
    birth = number_of(2, 1, 1)
    first, second = Value(Kind.APPEND, birth, 10, 2, b"v" * 16), Value(Kind.APPEND, birth, 12, 1, b"w" * 16)
    comparison = Comparison(unnamed=[(8, 9), (10, 2), (11, 2), (12, 8)])
    assert comparison.at_odds(applied(4, first)) is None and not comparison.is_done
    assert comparison.at_odds(applied(5, NOP)) is None
    assert not comparison.agrees(6, second), "so its batches are asked for"
    assert comparison.at_odds(applied(6, second)) == 12
    assert comparison.at_odds(applied(6, second)) == 12, "it may be asked again"
    assert comparison.hidden_from == 12, "nobody sees it"
    comparison.truncated(12)
    assert comparison.is_done and comparison.hidden_from is None


def test_a_row_that_names_no_position_is_hidden_until_it_is_compared() -> None:
    birth = number_of(2, 1, 1)
    comparison = Comparison(rows((11, 5, birth)), unnamed=[(10, 2), (12, 2)])
    assert comparison.hidden_from == 10
    assert comparison.at_odds(applied(4, Value(Kind.APPEND, birth, 10, 1, b"v" * 16))) is None
    assert comparison.hidden_from == 12
    comparison.pass_over(13)
    assert comparison.is_done and comparison.hidden_from is None


@pytest.mark.parametrize(("epoch", "odd"), [(2, None), (3, 12)])
def test_a_jump_leaves_nothing_of_a_leader_epoch_that_is_later_than_its_floor(epoch: int, odd: int | None) -> None:
    comparison = Comparison(unnamed=[(10, 1), (12, epoch), (20, 9)])
    assert comparison.jumped(Prefix(6, number_of(2, 1, 1), 20)) == odd
    assert comparison.hidden_from == (20 if odd is None else 12)


# -- replicas --------------------------------------------------------------------------------------------------------


def lose_end(log: PartitionLog, offset: int) -> None:
    """Leaves neither batches nor rows of what begins at this offset: it looks as if it had never been written."""
    for part in log.parts(offset):
        assert isinstance(part, Segment)
        for row in part.entries(offset):
            assert isinstance(row, Row)
            part.catalog.pwritev([bytes(ROW_BYTES)], (row.sequence - part.first_sequence) * ROW_BYTES)
            part.log.pwritev([bytes(row.length)], row.file_position)
        part.catalog.sync()
        part.log.sync()


def lose_journal_end(site: Site, position: int) -> None:
    store = site.replica._files.store
    slot = site.replica.engine.node.replica.slots[position]
    stored = store._entries.index.find(position, slot.value.digest)
    assert stored is not None and stored.offset < store.durable_end
    lose_end(store.journal, stored.offset)


def misdate_end(log: PartitionLog, offset: int) -> None:
    """Takes the row of the last batch, and turns over a bit of the leader epoch in the batch."""
    segment, row = next(log.parts(offset)), next(log.entries(offset))
    assert isinstance(segment, Segment) and isinstance(row, Row) and row.next_offset == log.log_end_offset
    segment.catalog.pwritev([bytes(ROW_BYTES)], (row.sequence - segment.first_sequence) * ROW_BYTES)
    position = row.file_position + 13
    (byte,) = segment.log.pread(1, position)
    segment.log.pwritev([bytes([byte ^ 1])], position)
    segment.catalog.sync()
    segment.log.sync()


async def restart(*sites: Site) -> None:
    for site in sites:
        await site.crash(is_power_lost=False)
    for site in sites:
        await site.boot()


def test_a_journal_that_has_lost_its_end_has_no_vote_until_it_has_another_id() -> None:
    async def story(stage: Stage) -> None:
        before = await begin(stage)
        third = stage.sites[3]
        lose_journal_end(third, positions(third)[9])
        stage.cut = {(3, 1), (3, 2)}
        await restart(third)
        assert third.replica.lost_engine_id == 3 and not third.replica.is_voting
        assert third.replica.high_watermark == 9 < third.replica.log.log_end_offset
        await asyncio.sleep(5)
        assert third.replica.high_watermark == 9, "what nobody has confirmed is shown to nobody"
        stage.cut = set()
        await until(lambda: third.replica.high_watermark == 10)
        assert third.content() == before
        tending = asyncio.get_running_loop().create_task(stage.tend())
        await until(lambda: stage.is_whole)
        tending.cancel()
        assert third.replica.is_voting and third.engine_id > 3
        await restart(third)
        assert third.replica.lost_engine_id == 0

    play(story)


def test_two_journals_that_have_lost_what_was_acknowledged_choose_nothing_else() -> None:
    async def story(stage: Stage) -> None:
        before = await begin(stage)
        first, second, third = stage.sites.values()
        for site in (second, third):
            lose_journal_end(site, positions(site)[9])
        await first.stop()
        await restart(second, third)
        stage.elect(2)
        assert not isinstance(await stage.produce(2, b"other", wait_s=5.0), ProduceReceipt)
        await first.boot()
        await until(lambda: all(site.replica.high_watermark == 10 for site in stage.sites.values()))
        assert all(site.content() == before for site in stage.sites.values())

    play(story)


def test_what_was_never_agreed_on_goes_before_anybody_sees_it() -> None:
    """The journals of all have lost the last value, and the logs of two as well: a majority cannot know it, and chooses
    another. The third log, which has it, gives way."""

    async def story(stage: Stage) -> None:
        await begin(stage)
        first, second, third = stage.sites.values()
        for site in stage.sites.values():
            lose_journal_end(site, positions(site)[9])
        for site in (first, second):
            lose_end(site.replica.log, 9)
        await restart(first, second, third)
        shown: list[bytes] = []

        def look() -> bool:
            replica = third.replica
            if replica.is_readable and replica.high_watermark > 9:
                shown.append(bytes(replica.log.read(9, 1, replica.high_watermark).data))
            return bool(shown)

        await stage.lead(1)
        await write(stage, 1, 3)
        await until(look)
        await stage.quiet()
        assert third.content() == first.content() == second.content()
        assert shown[0] in first.content()

    play(story)


def test_a_leader_does_not_serve_what_names_no_position_before_it_is_compared() -> None:
    """A power cut took the last row, the batch has another leader epoch since, and the leader's journal has lost what
    belongs there: until another replica gives it, nobody sees anything else."""

    async def story(stage: Stage) -> None:
        before = await begin(stage)
        first = stage.sites[1]
        assert first.harm_journal(positions(first)[9])
        misdate_end(first.replica.log, 9)
        await restart(*stage.sites.values())
        stage.on_frame = lambda sender, to, said: (
            not (isinstance(said, PartitionFrame) and isinstance(said.frame.message, LearnResponse))
        )
        stage.elect(1)
        await until(lambda: first.replica.is_elected)
        await asyncio.sleep(1)
        assert first.replica.log.log_end_offset == 10 and first.replica.high_watermark == 9
        assert first.replica.leader is not None and not first.replica.leader.is_serving
        stage.on_frame = lambda sender, to, said: True
        await write(stage, 1, 1)
        assert first.content().startswith(before)

    play(story)


@pytest.mark.parametrize("seed", [*range(8), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(8, 25))])
def test_who_has_lost_nothing_that_was_durable_keeps_its_vote(seed: int) -> None:
    """However a cluster loses its power, or is killed, under load."""

    async def story(stage: Stage) -> None:
        rng = random_of(seed)
        await stage.lead(1)
        for turn in range(4):
            loop = asyncio.get_running_loop()
            asking = [loop.create_task(stage.produce(stage.leader, b"%d" % n, wait_s=1.0)) for n in range(30)]
            stage.loss = rng.choice([0.0, 0.2])
            await asyncio.sleep(rng.uniform(0.0, 0.1) if rng.random() < 0.8 else 1.5)
            is_power_lost = rng.random() < 0.7
            for site in stage.sites.values():
                await site.crash(is_power_lost=is_power_lost)
            await asyncio.gather(*asking)
            await stage.boot()
            assert [site.replica.lost_engine_id for site in stage.sites.values()] == [0, 0, 0]
            assert all(site.replica.is_voting for site in stage.sites.values())
            stage.loss = 0.0
            await stage.lead(1 + turn % 3)

    play(story, seed)
