"""The crash model: the states that must be reachable are, and those that must not be are not.

`outcomes` goes through every crash there is, so "never" below means never. The seeded crashes of the long runs are
then shown to reach the same states.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tests.every_crash import enumerate_crashes
from tests.unit.sim.kit.crashes import (
    OLD,
    ZERO,
    A,
    B,
    C,
    State,
    contents,
    outcomes,
    safe_file,
    state,
)
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.faults import Crashed, FaultRates

# -- bytes -------------------------------------------------------------------------------------------------------------


def test_synced_bytes_are_never_lost() -> None:
    def build(disk: SimDisk) -> None:
        safe_file(disk, OLD).pwritev([A], 512)
        disk.open("f").sync()

    assert contents(build) == {OLD + A}


def test_an_unsynced_append_vanishes_or_stays_or_leaves_zeros() -> None:
    assert contents(lambda disk: safe_file(disk, OLD).pwritev([A], 512)) == {OLD, OLD + A, OLD + ZERO}


def test_a_write_tears_at_sectors_in_every_way() -> None:
    def build(disk: SimDisk) -> None:
        safe_file(disk, OLD * 3).pwritev([A, B, C], 0)

    assert contents(build) == {a + b + c for a in (OLD, A) for b in (OLD, B) for c in (OLD, C)}


def test_a_write_never_tears_within_a_sector() -> None:
    def build(disk: SimDisk) -> None:
        safe_file(disk, OLD).pwritev([b"x" * 100, b"y" * 300], 50)

    new = b"o" * 50 + b"x" * 100 + b"y" * 300 + b"o" * 62
    assert contents(build) == {OLD, new}


def test_a_torn_append_leaves_any_part_with_zeros_in_the_hole() -> None:
    found = contents(lambda disk: safe_file(disk).pwritev([A, B], 0))
    assert found == {b"", ZERO * 2, A, A + ZERO, A + B, ZERO + B}


def test_a_lost_middle_write_leaves_a_hole() -> None:
    def build(disk: SimDisk) -> None:
        file = safe_file(disk)
        for position, piece in enumerate((A, B, C)):
            file.pwritev([piece], position * 512)

    kept = {a + b + c for a in (A, ZERO) for b in (B, ZERO) for c in (C, ZERO)}
    assert contents(build) == kept | {b"", A, ZERO + B, A + B}


def test_wide_writes_tear_at_any_prefix_and_suffix() -> None:
    pieces = [b"%d" % n * 512 for n in range(6)]
    found = {dict(files)["f"] for files in outcomes(lambda disk: safe_file(disk, OLD * 6).pwritev(pieces, 0))}
    new = b"".join(pieces)
    old = OLD * 6
    assert found == {new[: n * 512] + old[n * 512 :] for n in range(7)} | {
        old[: n * 512] + new[n * 512 :] for n in range(7)
    }


def test_a_lost_overwrite_brings_an_earlier_one_back() -> None:
    def build(disk: SimDisk) -> None:
        file = safe_file(disk, OLD)
        file.pwritev([A], 0)
        file.pwritev([B], 0)

    assert contents(build) == {OLD, A, B}


def test_an_unsynced_cut_may_come_back() -> None:
    assert contents(lambda disk: safe_file(disk, OLD + A).truncate(512)) == {OLD + A, OLD}


def test_an_append_after_a_lost_cut_keeps_the_old_tail() -> None:
    def build(disk: SimDisk) -> None:
        file = safe_file(disk, OLD + A)
        file.truncate(512)
        file.pwritev([B[:100]], 512)

    found = contents(build)
    assert found == {OLD + A, OLD, OLD + B[:100], OLD + bytes(100), OLD + B[:100] + A[100:]}


def test_holes_show_old_blocks_if_the_file_system_is_that_careless() -> None:
    def build(disk: SimDisk) -> None:
        disk.medium.exposes_old_blocks = True
        removed = disk.open("old", create=True)
        removed.pwritev([OLD], 0)
        removed.sync()
        file = safe_file(disk, b"x" * 100)
        disk.remove("old")
        disk.sync_dir("")
        file.pwritev([A * 2], 100)

    found = contents(build)
    assert b"x" * 100 + bytes(412) + OLD + OLD[:100] in found
    assert b"x" * 100 + bytes(412 + 612) in found


# -- the end of a machine ----------------------------------------------------------------------------------------------


def test_nothing_on_a_crashed_disk_can_be_touched() -> None:
    disk = SimDisk(1)
    file = safe_file(disk, OLD)
    lock = disk.lock("lock")
    after = disk.crash()
    calls: list[Callable[[], object]] = [
        lambda: file.pread(1, 0),
        lambda: file.pwritev([A], 0),
        lambda: file.truncate(0),
        file.sync,
        file.size,
        file.close,
        lock.release,
        lambda: disk.open("f"),
        lambda: disk.exists("f"),
        lambda: disk.list(""),
        lambda: disk.make_dirs("d"),
        lambda: disk.remove("f"),
        lambda: disk.remove_tree("d"),
        lambda: disk.rename("f", "g"),
        lambda: disk.sync_dir(""),
        lambda: disk.lock("lock"),
        disk.free_bytes,
    ]
    for call in calls:
        with pytest.raises(Crashed):
            call()
    assert not issubclass(Crashed, Exception)
    assert after.open("f").pread(512, 0) == OLD
    after.lock("lock")


def test_a_crash_strikes_before_within_or_after_its_operation() -> None:
    seen = set()
    for seed in range(60):
        disk = SimDisk(seed)
        file = safe_file(disk, OLD)
        told: list[bool] = []
        disk.on_crash = partial(told.append, True)
        disk.crash_at(2)
        file.pwritev([A], 0)
        with pytest.raises(Crashed):
            file.pwritev([B[:10], b"yyyy"], 512)
        assert told == [True]
        assert disk.is_dead
        seen.add(len(disk.medium.walk()["f"].data) - 512)
    assert 0 in seen
    assert 14 in seen
    assert seen & set(range(1, 14))


@pytest.mark.parametrize("seed", range(10))
def test_a_crash_can_strike_any_operation(seed: int) -> None:
    def run(disk: SimDisk) -> None:
        disk.make_dirs("a/b")
        file = disk.open("a/b/f", create=True)
        file.pwritev([A], 0)
        file.truncate(10)
        file.sync()
        disk.rename("a/b/f", "a/b/g")
        disk.sync_dir("a/b")
        disk.remove("a/b/g")
        disk.remove_tree("a")

    disk = SimDisk(seed)
    run(disk)
    for operation in range(1, disk.operations + 1):
        doomed = SimDisk(seed)
        doomed.crash_at(operation)
        with pytest.raises(Crashed):
            run(doomed)
        run(doomed.crash())


def test_a_killed_process_leaves_pages_that_are_seen_but_not_safe() -> None:
    def build(disk: SimDisk) -> SimDisk:
        safe_file(disk, OLD).pwritev([A], 512)
        return disk.kill()

    disk = build(SimDisk(0))
    assert disk.open("f").pread(1024, 0) == OLD + A
    found = set()
    for choices in enumerate_crashes():
        after = build(SimDisk(0)).crash(choices)
        found.add(bytes(after.open("f").pread(2000, 0)))
    assert found == {OLD, OLD + A, OLD + ZERO}
    disk.open("f").sync()
    assert disk.crash().open("f").pread(1024, 0) == OLD + A


def test_the_same_seed_gives_the_same_disk() -> None:
    def run(seed: int) -> tuple[str, State]:
        disk = SimDisk(seed)
        disk.medium.faults = FaultRates(write_error=0.2, sync_error=0.2, lost_write=0.1, misdirected_write=0.1)
        for round_number in range(5):
            for n in range(20):
                try:
                    file = disk.open(f"f{n % 3}", create=True)
                    file.pwritev([b"%d" % n * 300], file.size())
                    file.sync()
                except OSError:
                    disk.make_dirs(f"d{n}")
            disk = disk.kill() if round_number % 2 else disk.crash()
        return disk.medium.trace(), state(disk)

    assert run(5) == run(5)
    assert run(5) != run(6)
