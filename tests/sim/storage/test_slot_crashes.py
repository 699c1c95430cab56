"""Every crash of short histories of one slot store: whatever was reported durable is there, the rest old or new."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests import series
from tests.every_crash import enumerate_crashes
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.faults import NO_FAULTS, Crashed, FaultRates
from tidelog.sim.storage import slot_scenario
from tidelog.sim.storage.slot_driver import SlotDriver
from tidelog.storage.scan import BadEnd

History = Callable[[SlotDriver], object]
SEGMENT_BYTES = 400


def two_puts(driver: SlotDriver) -> None:
    driver.put(0, payload_bytes=10)
    driver.put(1, payload_bytes=None)


def a_slot_replaced(driver: SlotDriver) -> None:
    driver.put(0, payload_bytes=10)
    driver.flush()
    driver.put(0, payload_bytes=20)


def a_slot_learned(driver: SlotDriver) -> None:
    driver.put(0, payload_bytes=30)
    driver.flush()
    driver.learn(0)


def a_payload_that_comes_late(driver: SlotDriver) -> None:
    driver.put_faulty(0)
    driver.flush()
    driver.repair(0)


def puts_during_a_flush(driver: SlotDriver) -> None:
    driver.put(0)
    flush = driver.store.begin_flush()
    driver.put(1)
    driver.finish(flush)
    driver.learn(0)


def a_floor(driver: SlotDriver) -> None:
    driver.put(0)
    driver.put(1)
    driver.flush()
    driver.set_floor(1)


def metainfo_between_puts(driver: SlotDriver) -> None:
    driver.put(0)
    driver.store_metainfo()
    driver.put(1)


def metainfo_twice(driver: SlotDriver) -> None:
    driver.store_metainfo()
    driver.store_metainfo()


def a_roll(driver: SlotDriver) -> None:
    driver.put(0, payload_bytes=400)
    driver.flush()
    driver.put(1)


def a_committed_roll(driver: SlotDriver) -> None:
    a_roll(driver)
    driver.flush()


def several_segments(driver: SlotDriver) -> None:
    """Slots 0 to 5, and of each segment only one slot is above the floor to come."""
    for position in (0, 4, 1, 5, 2):
        driver.put(position, payload_bytes=60)
        driver.put(0, payload_bytes=2500)
        driver.flush()


def a_deletion_that_moves_slots(driver: SlotDriver) -> None:
    several_segments(driver)
    driver.set_floor(4)
    driver.flush()
    driver.delete_below()


def a_deletion_and_its_flush(driver: SlotDriver) -> None:
    a_deletion_that_moves_slots(driver)
    driver.flush()


def a_whole_deletion(driver: SlotDriver) -> None:
    """Ten files that are removed leave too many states to try them all."""
    a_deletion_and_its_flush(driver)
    driver.flush()
    driver.put(6)


def a_deletion_after_a_slot_was_replaced(driver: SlotDriver) -> None:
    """What is dead in the old segment is dead only once the new entry is durable."""
    several_segments(driver)
    driver.set_floor(4)
    driver.flush()
    driver.put(4, payload_bytes=80)
    driver.delete_below()


def a_clean_stop_and_a_put(driver: SlotDriver) -> None:
    two_puts(driver)
    driver.close()
    driver.open()
    driver.put(2)


def a_kill_and_nothing_more(driver: SlotDriver) -> None:
    two_puts(driver)
    driver.kill()
    driver.open()
    driver.check_reopened()


HISTORIES: list[History] = [
    two_puts,
    a_slot_replaced,
    a_slot_learned,
    a_payload_that_comes_late,
    puts_during_a_flush,
    a_floor,
    metainfo_between_puts,
    metainfo_twice,
    a_roll,
    a_committed_roll,
    a_deletion_that_moves_slots,
    a_deletion_and_its_flush,
    a_deletion_after_a_slot_was_replaced,
    a_clean_stop_and_a_put,
    a_kill_and_nothing_more,
]
SETTLED = [a_kill_and_nothing_more, a_committed_roll, metainfo_twice]
"""After these, nothing is pending."""


def check_and_go_on(driver: SlotDriver) -> None:
    driver.open()
    driver.check_reopened()
    driver.put(driver.floor)
    assert driver.flush()
    driver.kill()
    driver.open()
    driver.check_reopened()


@pytest.mark.parametrize(
    ("vouches", "bad_end"),
    [
        pytest.param(False, BadEnd.KEEP, id="marked-later-keep"),
        pytest.param(True, BadEnd.TRUNCATE, id="vouches-truncate"),
        pytest.param(False, BadEnd.TRUNCATE, id="marked-later-truncate", marks=pytest.mark.slow),
        pytest.param(True, BadEnd.KEEP, id="vouches-keep", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("history", HISTORIES)
def test_no_crash_breaks_a_promise(history: History, *, vouches: bool, bad_end: BadEnd) -> None:
    seen = set()
    for choices in enumerate_crashes():
        driver = SlotDriver(SimDisk(0), segment_bytes=SEGMENT_BYTES, vouches=vouches, bad_end=bad_end)
        history(driver)
        driver.crash(choices)
        state = tuple((path, bytes(node.data)) for path, node in driver.disk.medium.walk().items())
        if state not in seen:
            seen.add(state)
            check_and_go_on(driver)
    assert len(seen) > 1 or history in SETTLED


@pytest.mark.parametrize("history", [*HISTORIES, a_whole_deletion])
@series.seeds(1, 6)
def test_no_crash_at_any_operation_breaks_a_promise(history: History, seeds: range) -> None:
    """The machine stops at each operation in turn, several ways each; and once more while it recovers."""
    counting = SlotDriver(SimDisk(0), segment_bytes=SEGMENT_BYTES)
    before = counting.disk.operations
    history(counting)
    for operation in series.steps(counting.disk.operations - before, seeds):
        for seed in seeds:
            driver = SlotDriver(SimDisk(seed), segment_bytes=SEGMENT_BYTES)
            driver.disk.crash_at(operation)
            try:
                history(driver)
            except Crashed:
                driver.crash()
            recover(driver)
            driver.kill()
            check_and_go_on(driver)


def test_no_crash_while_a_store_is_made_looks_like_amnesia() -> None:
    outcomes = set()
    for operation in range(1, 32):
        for choices in enumerate_crashes():
            disk = SimDisk(operation)
            disk.crash_at(operation)
            try:
                SlotDriver(disk)
            except Crashed:
                outcomes.add("crashed")
            else:
                outcomes.add("made")
            driver = SlotDriver(disk.crash(choices))
            driver.check_reopened()
    assert outcomes == {"crashed", "made"}


def recover(driver: SlotDriver) -> None:
    """Dies one operation later each time it recovers, until it gets through."""
    for again in range(1, 60):
        driver.disk.crash_at(again)
        try:
            driver.open()
        except Crashed:
            driver.crash()
        else:
            return
    pytest.fail("recovery never ends")


def test_what_a_failed_fsync_left_in_the_page_cache_is_not_trusted() -> None:
    kept = 0
    for seed in range(40):
        driver = SlotDriver(SimDisk(seed))
        driver.put(0, payload_bytes=20)
        driver.disk.medium.faults = FaultRates(sync_error=1.0)
        assert not driver.flush()
        assert driver.store.offline_reason is not None
        driver.disk.medium.faults = NO_FAULTS
        driver.kill()
        driver.open()
        driver.check_reopened()
        kept += len(driver.now.slots)
        driver.crash()
        driver.open()
        driver.check_reopened()
    assert kept > 10


@series.seeds(30, 400)
def test_drawn_histories_with_crashes_kills_and_disk_faults_break_no_promise(seeds: range) -> None:
    for seed in seeds:
        try:
            slot_scenario.run_seed(seed)
        except BaseException:
            print(f"replay: tidelog.sim.storage.slot_scenario.run_seed({seed})")  # noqa: T201 - shown with the failure
            raise


def test_a_history_is_a_function_of_its_seed() -> None:
    assert slot_scenario.run_seed(11) == slot_scenario.run_seed(11)
    assert slot_scenario.run_seed(11) != slot_scenario.run_seed(12)
