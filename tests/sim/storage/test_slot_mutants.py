"""Planted bugs in the slot store: each breaks one rule, and the simulator or the sweep has to notice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress

import pytest

from tests.sim.storage import test_slot_crashes, test_slot_sweep
from tests.sim.storage.slot_sweep import End, SlotSweep
from tidelog.model.batch_header import BatchHeader
from tidelog.model.errors import TidelogError
from tidelog.model.ports import Buffer
from tidelog.sim.kit.patching import patched
from tidelog.sim.storage import slot_scenario
from tidelog.storage import slot_journal, slot_loader
from tidelog.storage.flush import Flush
from tidelog.storage.metainfo import Metainfo, MetainfoStore
from tidelog.storage.rows import RowCodec, Tail
from tidelog.storage.scan import BadEnd
from tidelog.storage.slot_entries import Head, decode_entry
from tidelog.storage.slot_index import SlotIndex
from tidelog.storage.slot_journal import SlotJournal
from tidelog.storage.slot_store import SlotStore

Mutant = Callable[[], AbstractContextManager[None]]
SEEDS = 400
FIRST_SEED_OF_A_RARE_BUG = 340


def name_nothing() -> AbstractContextManager[None]:
    """Writes no rows with names: a slot whose entry is torn is not known any more."""
    return patched(slot_journal, "name_for", lambda head: b"")


def skip_fsync() -> AbstractContextManager[None]:
    """Reports as durable what is only written."""
    return patched(Flush, "run", lambda flush: None)


def forget_what_is_live() -> AbstractContextManager[None]:
    """Gives old segments up with the slots that live in them."""
    return patched(SlotIndex, "live", lambda index: iter(()))


def forget_the_floor() -> AbstractContextManager[None]:
    """Takes slots for all that lives."""
    live = SlotIndex.live
    return patched(SlotIndex, "live", lambda index: (item for item in live(index) if item[1] is not None))


def forget_payloads_in_older_entries() -> AbstractContextManager[None]:
    """Takes the newest entry of a slot for all that it needs."""

    def live(index: SlotIndex) -> Iterator[tuple[int, int | None]]:
        for position, slot in index.slots.items():
            yield slot.offset, position
        if index.floor is not None:
            yield index.floor.offset, None

    return patched(SlotIndex, "live", live)


def refer_to_what_is_deleted() -> AbstractContextManager[None]:
    """Goes on remembering payloads in segments that are gone."""
    return patched(SlotIndex, "drop_entries_below", lambda index, offset: None)


def refer_by_position_alone() -> AbstractContextManager[None]:
    """Takes the payload of another value for this one's."""

    def find(index: SlotIndex, position: int, digest: bytes) -> object:
        return next((stored for (at, _), stored in index._payloads.items() if at == position), None)

    return patched(SlotIndex, "find", find)


def bring_back_old_metainfo() -> AbstractContextManager[None]:
    """Notes how far the journal came, with the replica's metainfo of some time before."""

    def store(store: SlotStore, info: Metainfo) -> None:
        store.journal.store_metainfo(info)

    return patched(SlotStore, "_write_metainfo", store)


def store_metainfo_once() -> AbstractContextManager[None]:
    """Writes one copy, and always the same."""

    def store(metainfo: MetainfoStore, info: Metainfo) -> None:
        metainfo._sequence += 1
        metainfo._write(metainfo._paths[0], metainfo._encode(metainfo._sequence, info))

    return patched(MetainfoStore, "store", store)


@pytest.mark.parametrize(
    "mutant",
    [
        skip_fsync,
        forget_what_is_live,
        forget_the_floor,
        forget_payloads_in_older_entries,
        refer_to_what_is_deleted,
        refer_by_position_alone,
        bring_back_old_metainfo,
        store_metainfo_once,
        name_nothing,
    ],
)
def test_the_simulator_notices(mutant: Mutant) -> None:
    first = FIRST_SEED_OF_A_RARE_BUG if mutant is refer_to_what_is_deleted else 0
    with mutant(), pytest.raises(AssertionError):
        for seed in range(first, first + SEEDS):
            slot_scenario.run_seed(seed)


def test_a_deletion_that_does_not_wait_for_what_it_moved_is_noticed() -> None:
    def hurry(store: SlotStore) -> None:
        if store._deletion is not None:
            with suppress(TidelogError):
                store.journal.delete_records(min(store._deletion[0], store.durable_end))

    with patched(SlotStore, "_delete_records", hurry), pytest.raises(AssertionError):
        test_slot_crashes.test_no_crash_breaks_a_promise(
            test_slot_crashes.a_deletion_that_moves_slots, vouches=False, bad_end=BadEnd.TRUNCATE
        )


# -- damage ------------------------------------------------------------------------------------------------------------


@contextmanager
def ignore_amnesia() -> Iterator[None]:
    """Serves what is left, whatever is lost."""
    run = slot_loader._Replay.run

    def replay(replayed: slot_loader._Replay) -> None:
        run(replayed)

    with patched(slot_loader._Replay, "run", replay):
        yield


def take_heads_unchecked() -> AbstractContextManager[None]:
    """Believes a head whose batch is damaged."""

    def salvage(data: bytes, checksum: int) -> Head | None:
        with suppress(TidelogError, IndexError):
            entry = decode_entry(data)
            return None if entry is None else entry[0]
        return None

    return patched(slot_loader, "salvage_head", salvage)


def leave_places_out_of_rows() -> AbstractContextManager[None]:
    """Writes rows that do not say which slot they stand for."""
    batch = RowCodec.batch

    def without(codec: RowCodec, tail: Tail, header: BatchHeader, buffers: Sequence[Buffer], place: object) -> bytes:
        return batch(codec, tail, header, buffers, (0, 0))

    return patched(RowCodec, "batch", without)


def lose_both_metainfo_copies(sweep: SlotSweep) -> None:
    test_slot_sweep.test_both_metainfo_copies_lost(sweep, test_slot_sweep.spoil, test_slot_sweep.spoil)


def damage_some_rows_and_their_entries(sweep: SlotSweep) -> None:
    test_slot_sweep.test_a_row_and_its_entry_damaged(sweep, every=3)


def open_whatever_is_there() -> AbstractContextManager[None]:
    """Lets the loader make new metainfo where the old is lost."""
    return patched(slot_loader, "_find_amnesia", lambda *place: None)


@pytest.mark.parametrize(
    ("mutant", "check"),
    [
        (ignore_amnesia, damage_some_rows_and_their_entries),
        (take_heads_unchecked, test_slot_sweep.test_damage_to_a_sample_of_byte_ranges),
        (leave_places_out_of_rows, test_slot_sweep.test_all_logs_emptied),
        (open_whatever_is_there, lose_both_metainfo_copies),
    ],
)
def test_the_sweep_notices(mutant: Mutant, check: Callable[[SlotSweep], None]) -> None:
    with mutant(), pytest.raises(AssertionError):
        check(SlotSweep(1 << 23, End.CLOSED))


def test_a_put_that_is_reported_before_a_mark_vouches_for_it_is_noticed() -> None:
    """Marks are left to an idle moment, but the process is killed as soon as all is reported; then one thing rots."""
    durable = property(lambda store: store.journal.durable_offset)
    with patched(SlotStore, "durable_end", durable), patched(SlotStore, "vouch", lambda store: False):
        sweep = SlotSweep(1 << 23, End.REPORTED)
    at_the_end = [case for case in sweep.cases() if case.path.endswith(".log")][-20:]
    with pytest.raises(AssertionError, match="of 20 cases"):
        test_slot_sweep.check_each(sweep, at_the_end)


def test_a_payload_that_is_not_moved_is_noticed() -> None:
    def move(journal: SlotJournal, position: int | None) -> None:
        return

    with patched(SlotJournal, "_move", move), pytest.raises(AssertionError):
        test_slot_crashes.test_no_crash_breaks_a_promise(
            test_slot_crashes.a_deletion_that_moves_slots, vouches=False, bad_end=BadEnd.TRUNCATE
        )
