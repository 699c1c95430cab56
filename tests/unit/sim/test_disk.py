"""The crash model: the states that must be reachable are, and those that must not be are not.

`outcomes` goes through every crash there is, so "never" below means never. The seeded crashes of the long runs are
then shown to reach the same states.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial

import pytest

from tidelog.sim.choices import enumerate_crashes
from tidelog.sim.disk import SimDisk
from tidelog.sim.faults import Crashed, FaultRates
from tidelog.sim.sim_file import SimFile

OLD = b"o" * 512
A, B, C = b"a" * 512, b"b" * 512, b"c" * 512
ZERO = bytes(512)

State = tuple[tuple[str, bytes], ...]


def state(disk: SimDisk) -> State:
    """All files with their bytes."""
    return tuple((path, bytes(node.data)) for path, node in disk.medium.walk().items())


def outcomes(build: Callable[[SimDisk], object]) -> set[State]:
    """Every state that a crash after `build` can leave."""
    found = set()
    for choices in enumerate_crashes():
        disk = SimDisk(0)
        build(disk)
        found.add(state(disk.crash(choices)))
    return found


def seeded_outcomes(build: Callable[[SimDisk], object], seeds: int = 2000) -> set[State]:
    found = set()
    for seed in range(seeds):
        disk = SimDisk(seed)
        build(disk)
        found.add(state(disk.crash()))
    return found


def contents(build: Callable[[SimDisk], object]) -> set[bytes]:
    """What file `f` can hold after a crash; it always exists."""
    found = outcomes(build)
    assert seeded_outcomes(build) == found, "random crashes reach exactly what exhaustive ones do"
    return {dict(files)["f"] for files in found}


def safe_file(disk: SimDisk, content: bytes = b"") -> SimFile:
    """File `f` with these bytes, durable in bytes and name."""
    file = disk.open("f", create=True)
    file.pwritev([content], 0)
    file.sync()
    disk.sync_dir("")
    return file


# -- bytes -----------------------------------------------------------------------------------------------------------


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


# -- names -----------------------------------------------------------------------------------------------------------


def names(build: Callable[[SimDisk], object]) -> set[tuple[str, ...]]:
    found = outcomes(build)
    assert seeded_outcomes(build) == found
    return {tuple(path for path, _ in files) for files in found}


def make(disk: SimDisk, path: str, content: bytes = b"", *, named: bool = True) -> None:
    file = disk.open(path, create=True)
    file.pwritev([content], 0)
    file.sync()
    if named:
        disk.sync_dir(path.rpartition("/")[0])


def test_a_name_without_a_directory_sync_may_be_lost_though_the_bytes_are_synced() -> None:
    assert outcomes(lambda disk: make(disk, "f", A, named=False)) == {(), (("f", A),)}


def test_a_synced_name_is_never_lost() -> None:
    assert outcomes(lambda disk: make(disk, "f", A)) == {(("f", A),)}


def test_a_named_file_may_be_empty() -> None:
    def build(disk: SimDisk) -> None:
        disk.open("f", create=True).pwritev([A], 0)
        disk.sync_dir("")

    assert contents(build) == {b"", ZERO, A}


def test_names_are_kept_or_lost_each_on_its_own() -> None:
    def build(disk: SimDisk) -> None:
        for name in "ab":
            make(disk, name, named=False)

    assert names(build) == {(), ("a",), ("b",), ("a", "b")}


def test_syncing_one_directory_does_nothing_for_another() -> None:
    def build(disk: SimDisk) -> None:
        disk.make_dirs("d")
        disk.make_dirs("e")
        make(disk, "d/f", named=False)
        make(disk, "e/f", named=False)
        disk.sync_dir("d")

    assert names(build) == {("d/f",), ("d/f", "e/f")}


def test_an_unsynced_removal_may_come_back() -> None:
    def build(disk: SimDisk) -> None:
        make(disk, "f", A)
        disk.remove("f")

    assert outcomes(build) == {(), (("f", A),)}


def test_a_replacing_rename_is_old_or_new_and_nothing_else() -> None:
    def build(disk: SimDisk) -> None:
        make(disk, "f", OLD)
        make(disk, "f.new", A)
        disk.rename("f.new", "f")

    assert outcomes(build) == {(("f", OLD), ("f.new", A)), (("f", A),)}


def test_a_rename_of_an_unsynced_file_can_put_an_empty_one_in_place() -> None:
    def build(disk: SimDisk) -> None:
        make(disk, "f", OLD)
        disk.open("f.new", create=True).pwritev([A], 0)
        disk.rename("f.new", "f")
        disk.sync_dir("")

    assert outcomes(build) == {(("f", b""),), (("f", ZERO),), (("f", A),)}


def test_a_synced_rename_never_goes_back() -> None:
    def build(disk: SimDisk) -> None:
        make(disk, "f", OLD)
        make(disk, "f.new", A)
        disk.rename("f.new", "f")
        disk.sync_dir("")

    assert outcomes(build) == {(("f", A),)}


def test_a_rename_between_directories_is_atomic_and_settled_by_either() -> None:
    def build(disk: SimDisk, synced: str | None = None) -> None:
        disk.make_dirs("d")
        disk.make_dirs("e")
        make(disk, "d/f", A)
        disk.rename("d/f", "e/g")
        if synced:
            disk.sync_dir(synced)

    assert outcomes(build) == {(("d/f", A),), (("e/g", A),)}
    assert outcomes(lambda disk: build(disk, "d")) == {(("e/g", A),)}
    assert outcomes(lambda disk: build(disk, "e")) == {(("e/g", A),)}


def test_a_name_settled_by_a_later_change_is_not_undone_by_an_earlier_one() -> None:
    def build(disk: SimDisk) -> None:
        disk.make_dirs("d")
        disk.make_dirs("e")
        make(disk, "d/f", A, named=False)
        disk.rename("d/f", "e/g")
        disk.sync_dir("e")

    assert outcomes(build) == {(("e/g", A),)}


def test_directories_are_durable_when_made() -> None:
    def build(disk: SimDisk) -> None:
        disk.make_dirs("a/b")
        make(disk, "a/b/f", named=True)

    assert outcomes(build) == {(("a/b/f", b""),)}


def test_remove_tree_may_stop_anywhere() -> None:
    def build(disk: SimDisk) -> None:
        disk.make_dirs("d")
        make(disk, "d/a")
        make(disk, "d/b")
        disk.remove_tree("d")

    assert names(build) == {(), ("d/a",), ("d/b",), ("d/a", "d/b")}


# -- the end of a machine --------------------------------------------------------------------------------------------


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


# -- faults while running --------------------------------------------------------------------------------------------


def test_a_failed_sync_drops_the_writes_and_the_next_one_says_yes() -> None:
    lost, seen_after, noticed = 0, 0, 0
    for seed in range(100):
        disk = SimDisk(seed)
        file = safe_file(disk, OLD)
        file.pwritev([A], 512)
        disk.medium.faults = FaultRates(sync_error=1.0)
        with pytest.raises(OSError, match="EIO"):
            file.sync()
        disk.medium.faults = FaultRates()
        file.sync()
        seen_after += file.pread(2000, 0) == OLD + A
        noticed += file.pread(2000, 0) != OLD + A
        lost += disk.crash().open("f").pread(2000, 0) != OLD + A
    assert lost > 20
    assert seen_after > 20
    assert noticed > 5


def test_a_failed_directory_sync_leaves_the_names_unsettled() -> None:
    disk = SimDisk(1)
    make(disk, "f", named=False)
    disk.medium.faults = FaultRates(sync_error=1.0)
    with pytest.raises(OSError, match="EIO"):
        disk.sync_dir("")
    assert len(disk.medium.space.pending) == 1


def test_a_lying_sync_can_lose_what_it_promised() -> None:
    def build(disk: SimDisk) -> None:
        file = safe_file(disk, OLD)
        disk.medium.faults = FaultRates(lying_sync=1.0)
        file.pwritev([A], 512)
        file.sync()

    assert contents(build) == {OLD, OLD + A, OLD + ZERO}


def test_read_and_write_errors() -> None:
    prefixes = set()
    for seed in range(50):
        disk = SimDisk(seed)
        file = safe_file(disk, OLD)
        disk.medium.faults = FaultRates(write_error=1.0, read_error=1.0)
        with pytest.raises(OSError, match="EIO"):
            file.pread(1, 0)
        with pytest.raises(OSError, match="EIO"):
            file.pwritev([b"1234"], 512)
        disk.medium.faults = FaultRates()
        prefixes.add(file.pread(10, 512))
    assert prefixes == {b"", b"1", b"12", b"123", b"1234"}


def test_a_lost_write_is_seen_until_the_cache_is_dropped() -> None:
    disk = SimDisk(1)
    file = safe_file(disk, OLD)
    disk.medium.faults = FaultRates(lost_write=1.0)
    file.pwritev([A], 0)
    file.sync()
    assert file.pread(512, 0) == A
    disk.medium.drop_caches()
    assert file.pread(512, 0) == OLD


def test_a_misdirected_write_lands_elsewhere() -> None:
    elsewhere = set()
    for seed in range(80):
        disk = SimDisk(seed)
        make(disk, "g", OLD * 2)
        file = safe_file(disk, OLD * 2)
        disk.medium.faults = FaultRates(misdirected_write=1.0)
        file.pwritev([A], 512)
        assert file.pread(2000, 0) == OLD + A
        for name in "fg":
            disk.open(name).sync()
        elsewhere.add(state(disk.crash()))
    assert (("f", OLD * 2), ("g", A + OLD)) in elsewhere
    assert (("f", A + OLD), ("g", OLD * 2)) in elsewhere


def test_a_full_disk_takes_what_fits_and_recovers_when_there_is_room() -> None:
    disk = SimDisk(1)
    disk.medium.capacity_bytes = 1000
    file = safe_file(disk, OLD)
    assert disk.free_bytes() == 488
    with pytest.raises(OSError, match="ENOSPC"):
        file.pwritev([A[:300], B[:300]], 512)
    assert file.pread(1000, 512) == A[:300] + B[:188]
    assert disk.free_bytes() == 0
    file.pwritev([B], 0)  # in place: needs no room
    file.sync()
    file.truncate(512)
    assert disk.free_bytes() == 488
    file.pwritev([C[:488]], 512)
    disk.medium.capacity_bytes = 2000
    file.pwritev([C], 1000)
    assert disk.free_bytes() == 488


def test_space_comes_back_with_removal_replacement_and_crash() -> None:
    disk = SimDisk(1)
    disk.medium.capacity_bytes = 4096
    for name in "abc":
        make(disk, name, OLD)
    disk.remove("a")
    assert disk.free_bytes() == 4096 - 1024
    disk.rename("b", "c")
    assert disk.free_bytes() == 4096 - 512
    disk.sync_dir("")
    disk.open("c").pwritev([A], 512)
    after = disk.crash()
    assert after.free_bytes() == 4096 - len(after.medium.walk()["c"].data)


def test_a_full_disk_may_refuse_new_names() -> None:
    refused = 0
    for seed in range(40):
        disk = SimDisk(seed)
        make(disk, "f", OLD)
        disk.medium.capacity_bytes = 512
        try:
            disk.open("g", create=True)
        except OSError as error:
            refused += error.errno == errno.ENOSPC
            assert not disk.exists("g")
    assert 0 < refused < 40


def test_a_read_only_disk_reads() -> None:
    disk = SimDisk(1)
    file = safe_file(disk, OLD)
    disk.medium.read_only = True
    calls: list[Callable[[], object]] = [
        lambda: file.pwritev([A], 0),
        file.sync,
        lambda: disk.open("g", create=True),
        lambda: disk.remove("f"),
        lambda: disk.rename("f", "g"),
        lambda: disk.make_dirs("d"),
        lambda: disk.sync_dir(""),
    ]
    for call in calls:
        with pytest.raises(OSError, match="EROFS"):
            call()
    assert file.pread(512, 0) == OLD
    assert disk.open("f").pread(512, 0) == OLD
    assert disk.list("") == ["f"]


def test_statistics_count_operations_and_faults() -> None:
    disk = SimDisk(1)
    safe_file(disk, OLD)
    disk.crash()
    assert disk.medium.statistics.operations == {"create": 1, "write": 1, "sync": 1, "sync_dir": 1}
    assert disk.medium.statistics.faults == {"crash": 1}
