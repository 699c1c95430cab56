"""A replica that has forgotten what it accepted goes on at a floor: what its log holds below stays, hidden, until other
logs have told what stands there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest

from tests.unit.broker.conftest import batch
from tests.unit.broker.isr.stage import until
from tests.unit.broker.paxos.site import DELAY_S, Site
from tests.unit.broker.paxos.stage import Stage, play
from tests.unit.broker.paxos.test_comparison import restart
from tests.unit.broker.paxos.test_damage import write
from tests.unit.broker.paxos.test_journal_copies import batch_at, begin, positions
from tidelog.broker.paxos import opening
from tidelog.broker.paxos.journal import Floor, decode_floor
from tidelog.broker.paxos.journal_truncation import JournalBounds
from tidelog.broker.paxos.messages import AppliedRead, ReadApplied
from tidelog.model.batch_codec import empty_batch
from tidelog.model.batch_header import iter_batches
from tidelog.model.errors import DamagedBatch
from tidelog.replication.paxos.state import Prefix
from tidelog.sim.kit.patching import patched
from tidelog.storage.rows import ROW_BYTES, Row
from tidelog.storage.segment import Segment
from tidelog.transport.peer import Answer

HIDDEN_FROM = 7
"""The third replica's journal has lost what its log holds from here to offset 9."""

Read = Callable[[int, ReadApplied], Coroutine[Any, Any, Answer]]


async def forget(stage: Stage) -> bytes:
    """Has the third replica forget what it accepted, and the others write on and give up so much that it will have to
    jump; returns what all are to hold. Nobody tells the third anything before `stage.cut` is lifted."""
    # A value that is applied before the journal has it on disk would prove no loss.
    stage.disk_delay_s = DELAY_S / 100
    await stage.restart()
    await begin(stage)
    *others, third = stage.sites.values()
    lose_all_from(third, HIDDEN_FROM)
    await third.crash(is_power_lost=False)
    stage.journal_bounds = JournalBounds(slots_max=8)
    await restart(*others)
    await stage.lead(1)
    position = stage.sites[1].replica.applied_position
    while any(site.replica.engine.node.replica.begin <= position for site in others):
        await write(stage, 1, 4)
        await asyncio.sleep(1.5)
    stage.cut = {(3, 1), (3, 2)}
    await third.boot()
    assert third.replica.high_watermark == HIDDEN_FROM and third.replica.lost_engine_id == 3
    return stage.sites[1].content()


def lose_all_from(site: Site, offset: int) -> None:
    """Takes all entries and rows of the journal from that of this offset on."""
    store, position = site.replica._files.store, positions(site)[offset]
    stored = store._entries.index.find(position, site.replica.engine.node.replica.slots[position].value.digest)
    assert stored is not None
    segment, row = next(store.journal.parts(stored.offset)), next(store.journal.entries(stored.offset))
    assert isinstance(segment, Segment) and isinstance(row, Row)
    slot = row.sequence - segment.first_sequence - 1  # its NAME row
    segment.catalog.pwritev([bytes((segment.slots - slot) * ROW_BYTES)], slot * ROW_BYTES)
    segment.log.pwritev([bytes(segment.log.size() - row.file_position)], row.file_position)
    segment.catalog.sync()
    segment.log.sync()


def forge(site: Site, value: bytes) -> None:
    """Puts batches that nobody ever agreed on in the place of the log's last two."""
    log = site.replica.log
    epoch = log.tail.epoch
    log.truncate_to(8, high_watermark=8, now_ms=0)
    for offset in (8, 9):
        whole = bytearray(batch(value, timestamp_ms=1_700_000_000_000)[0].data)
        whole[:8], whole[12:16] = offset.to_bytes(8, "big"), epoch.to_bytes(4, "big")
        log.append(list(iter_batches(whole)), 0)
    log.flush()


def lose_row(site: Site, offset: int) -> None:
    """Takes the row of a batch in the log."""
    segment, row = next(site.replica.log.parts(offset)), next(site.replica.log.entries(offset))
    assert isinstance(segment, Segment) and isinstance(row, Row)
    segment.catalog.pwritev([bytes(ROW_BYTES)], (row.sequence - segment.first_sequence) * ROW_BYTES)
    segment.catalog.sync()


def floor_of(site: Site) -> Floor:
    """The floor that its journal holds now."""
    return decode_floor(site.replica._encode_floor(site.replica.engine.node.replica.floor))


def jumped(site: Site) -> bool:
    """Does its journal begin behind what its log shows?"""
    return site.replica.engine.node.replica.floor.next_offset > HIDDEN_FROM


def test_a_jump_keeps_the_last_good_copy_of_a_batch() -> None:
    async def story(stage: Stage) -> None:
        before = await forget(stage)
        first, second, third = stage.sites.values()
        for site in (first, second):
            site.harm_log(8)
            assert not site.is_sound()
        stage.cut = set()
        await stage.quiet()
        await until(lambda: all(site.is_sound() for site in stage.sites.values()))
        assert [site.content() for site in stage.sites.values()] == [before] * 3
        assert floor_of(third).hidden_from == -1

    play(story)


def test_what_no_other_log_knows_any_more_is_believed() -> None:
    """The others have lost the batch and its row."""

    async def story(stage: Stage) -> None:
        before = await forget(stage)
        first, second, third = stage.sites.values()
        for site in (first, second):
            site.harm_log(8)
            lose_row(site, 8)
        stage.cut = set()
        await stage.quiet()
        assert third.content() == before

    play(story)


@pytest.mark.parametrize("is_given_up", [False, True], ids=["yet to copy it", "given up"])
def test_who_has_yet_to_copy_a_batch_or_has_given_it_up_knows_nothing_of_it(is_given_up: bool) -> None:
    async def story(stage: Stage) -> None:
        before = await forget(stage)
        first, second, third = stage.sites.values()
        first.harm_log(8)
        lose_row(first, 8)
        read = second.service.read

        async def answer(node_id: int, request: ReadApplied) -> Answer:
            if not HIDDEN_FROM <= request.offset < 10:
                return await read(node_id, request)
            floor = msgspec.msgpack.encode(second.replica.floor())
            body = empty_batch(request.offset, 10, second.replica.log.tail.epoch) if is_given_up else b""
            return Answer(AppliedRead(0, floor), (body, b""))

        second.service.read = answer  # type: ignore[method-assign]  # for this story
        stage.cut = {(1, 2)}
        await until(lambda: third.replica.high_watermark > 10)
        assert third.content() == before[: len(third.content())]

    play(story)


def test_a_log_that_is_copied_up_to_a_later_floor_is_compared_up_to_there() -> None:
    """The others have truncated once more since the jump."""

    async def story(stage: Stage) -> None:
        before = await forget(stage)
        first, _, third = stage.sites.values()
        applying, applied = third.replica.applying, third.replica.applied
        delivered = applying.delivery.position
        applying._on_copied(Floor(positions(first)[9] + 1, first.replica.floor().epoch, 10))
        assert applying.delivery.position == delivered and applied.doubts.offsets() == range(HIDDEN_FROM, 10)
        stage.cut = set()
        await stage.quiet()
        assert third.content() == before

    play(story)


def test_what_lies_below_the_floor_that_a_log_was_copied_up_to_is_not_missed_when_the_next_value_comes() -> None:
    """Rows wait to be compared with values that are not delivered any more."""

    async def story(stage: Stage) -> None:
        await begin(stage)
        first, _, third = stage.sites.values()
        stage.cut = {(3, 1), (3, 2)}
        lose_all_from(third, HIDDEN_FROM)
        with patched(opening, "find_forgotten", lambda *_: None):
            await restart(third)
        assert not third.replica.applied.comparison.is_done
        epoch = first.replica.engine.node.replica.applied.epoch
        third.replica.applying._on_copied(Floor(positions(first)[9] + 1, epoch, 10))
        stage.cut = set()
        await write(stage, 1, 3)
        await stage.quiet()
        assert third.content() == first.content()

    play(story)


def test_one_that_does_not_answer_is_waited_for_before_anything_is_believed() -> None:
    async def story(stage: Stage) -> None:
        before = await forget(stage)
        first, _, third = stage.sites.values()
        first.harm_log(8)
        lose_row(first, 8)
        stage.cut = {(3, 2), (1, 2)}
        await until(lambda: third.replica.high_watermark == 8)
        await asyncio.sleep(5)
        assert third.replica.high_watermark == 8 < third.replica.log.log_end_offset
        stage.cut = set()
        await stage.quiet()
        assert third.content() == before

    play(story)


@pytest.mark.parametrize("is_power_lost", [True, False])
def test_a_restart_between_the_jump_and_the_comparison_forgets_no_doubt(is_power_lost: bool) -> None:
    async def story(stage: Stage) -> None:
        before = await forget(stage)
        first, second, third = stage.sites.values()
        for site in (first, second):
            site.harm_log(8)
            assert not site.is_sound()
        stage.cut, stage.asks_answered = set(), False
        await until(lambda: jumped(third))
        await asyncio.sleep(2)
        for _ in range(2):
            await third.crash(is_power_lost=is_power_lost)
            await third.boot()
            assert third.replica.high_watermark == HIDDEN_FROM, "the floor remembers"
            assert third.replica.log.log_end_offset == 10
        stage.asks_answered = True
        await stage.quiet()
        await until(lambda: all(site.is_sound() for site in stage.sites.values()))
        assert third.content() == before
        await asyncio.sleep(1)
        await restart(third)
        assert third.replica.high_watermark >= 10, "and knows that there is none any more"

    play(story)


def test_where_another_log_differs_the_log_is_truncated_and_copied() -> None:
    async def story(stage: Stage) -> None:
        before = await forget(stage)
        third = stage.sites[3]
        forge(third, b"never agreed on")
        shown: list[bytes] = []

        def look() -> bool:
            replica = third.replica
            if replica.is_readable and replica.high_watermark > 8:
                shown.append(bytes(replica.log.read(8, 1, replica.high_watermark).data))
            return bool(shown)

        stage.cut = set()
        await until(look)
        await stage.quiet()
        assert third.content() == before and shown[0] in before

    play(story)


def test_the_row_of_a_damaged_batch_tells_what_it_was() -> None:
    async def story(stage: Stage) -> None:
        before = await forget(stage)
        first, second, third = stage.sites.values()
        forge(third, b"never agreed on")
        for site in (first, second):
            site.harm_log(8)
            assert not site.is_sound()
        stage.cut = set()
        await stage.quiet()
        with pytest.raises(DamagedBatch):
            third.replica.log.read(8, 1, third.replica.high_watermark)
        assert third.replica.log.read(9, 1, third.replica.high_watermark).data == batch_at(before, 9)

    play(story)


def test_nothing_that_is_hidden_is_read_before_it_is_compared() -> None:
    async def story(stage: Stage) -> None:
        before = await forget(stage)
        third = stage.sites[3]
        stage.cut, stage.asks_answered = set(), False
        await until(lambda: jumped(third))
        await asyncio.sleep(5)
        assert third.replica.high_watermark == HIDDEN_FROM < third.replica.log.log_end_offset == 10
        assert third.replica.applied.durable_offset == HIDDEN_FROM
        asked = ReadApplied(third.replica.partition_id.topic_id, 0, HIDDEN_FROM, 1 << 20, takes_rows=True)
        answer = await third.service.read(1, asked)
        assert not b"".join(answer.payload), "nor does another replica get it"
        assert floor_of(third).hidden_from == HIDDEN_FROM
        stage.asks_answered = True
        await stage.quiet()
        assert third.content() == before

    play(story)


def test_a_bad_answer_settles_nothing() -> None:
    async def story(stage: Stage) -> None:
        before = await forget(stage)
        first, second, third = stage.sites.values()

        def turned(read: Read) -> Read:
            async def answer(node_id: int, asked: ReadApplied) -> Answer:
                answer = await read(node_id, asked)
                body = bytearray(b"".join(answer.payload))
                for at in range(100, len(body), 100):
                    body[at] ^= 1
                return Answer(answer.message, (bytes(body),))

            return answer

        reads = {site: site.service.read for site in (first, second)}
        for site, read in reads.items():
            site.service.read = turned(read)  # type: ignore[method-assign, assignment]  # for this story
        stage.cut = set()
        await until(lambda: jumped(third))
        await asyncio.sleep(5)
        assert third.replica.high_watermark == HIDDEN_FROM and third.replica.log.log_end_offset == 10
        for site, read in reads.items():
            site.service.read = read  # type: ignore[method-assign]  # as above
        await stage.quiet()
        assert third.content() == before

    play(story)


def test_what_was_deleted_since_goes_unseen_and_nothing_with_it() -> None:
    async def story(stage: Stage) -> None:
        before = await forget(stage)
        first, second, third = stage.sites.values()
        assert await stage.delete(1, 8) is None
        for site in (first, second):
            site.harm_log(9)
            assert not site.is_sound()
        stage.cut = set()
        await stage.quiet()
        await until(first.is_sound)
        assert third.content() == first.content() == before[before.index(batch_at(before, 8)) :]
        assert third.replica.log.log_start_offset == 8

    play(story)


def test_if_all_that_is_hidden_was_deleted_the_log_starts_over() -> None:
    async def story(stage: Stage) -> None:
        await forget(stage)
        first, _, third = stage.sites.values()
        assert await stage.delete(1, 12) is None
        stage.cut = set()
        await stage.quiet()
        assert third.content() == first.content()
        assert third.replica.log.log_start_offset == 12 and not third.replica.log.damaged_ranges()

    play(story)


def test_a_log_that_reaches_its_floor_is_compared_all_the_same() -> None:
    """It was copied to the end, and the floor on the disk does not tell yet that nothing is hidden."""

    async def story(stage: Stage) -> None:
        before = await forget(stage)
        third = stage.sites[3]
        third.replica._disk.rewrite_floor = lambda floor: None  # type: ignore[method-assign]  # for this story
        stage.cut = set()
        await stage.quiet()
        end = third.replica.high_watermark
        await until(lambda: third.replica.log.durable_offset == end)
        stage.cut = {(3, 1), (3, 2)}
        await restart(third)
        assert third.replica.log.log_end_offset == end and third.replica.high_watermark == HIDDEN_FROM
        stage.cut = set()
        await until(lambda: third.replica.high_watermark == end)
        assert third.content() == before

    play(story)


def test_an_older_floor_hides_nothing() -> None:
    assert decode_floor(msgspec.msgpack.encode(Prefix(3, 5, 7))).hidden_from == -1
