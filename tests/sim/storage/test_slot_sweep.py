"""Damage to a slot store, everywhere: nothing wrong is shown, nothing is forgotten in silence, the store goes on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product

import pytest

from tests.sim.storage.sampling import SAMPLED_IF_SLOW
from tests.sim.storage.slot_sweep import End, Loss, SlotSweep
from tests.sim.storage.sweep import FAULTS, Case
from tidelog.sim.kit import rot
from tidelog.sim.kit.medium import Medium
from tidelog.sim.storage.slot_driver import DIRECTORY
from tidelog.storage.rows import ROW_BYTES, Row

SHAPES = {
    "one segment": (1 << 23, End.CLOSED),
    "several segments": (900, End.CLOSED),
    "left idle": (900, End.IDLE),
    "killed": (900, End.REPORTED),
    "killed in one segment": (1 << 23, End.REPORTED),
}
SAMPLED = 149
"""Every so many cases in the default run: coprime to the number of faults, so that all of them come by."""

EVERY = pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.slow)])
"""The step between the entries that are damaged, one by one."""


@pytest.fixture(scope="module", params=SHAPES, ids=lambda name: name.replace(" ", "-"))
def sweep(request: pytest.FixtureRequest) -> SlotSweep:
    return SlotSweep(*SHAPES[request.param])


def check_each(sweep: SlotSweep, cases: list[Case]) -> None:
    failures = []
    for case in cases:
        try:
            sweep.check_case(case)
        except Exception as error:  # noqa: BLE001 - all failures are shown together
            failures.append(f"{case}: {type(error).__name__}: {error}")
    assert not failures, f"{len(failures)} of {len(cases)} cases, such as:\n" + "\n".join(failures[:20])


def test_damage_to_a_sample_of_byte_ranges(sweep: SlotSweep) -> None:
    sweep.faulty = 0
    check_each(sweep, list(sweep.cases())[::SAMPLED])
    assert sweep.faulty


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_damage_to_a_fifth_of_all_byte_ranges(sweep: SlotSweep) -> None:
    check_each(sweep, list(sweep.cases())[::SAMPLED_IF_SLOW])


def test_a_sound_store_passes(sweep: SlotSweep) -> None:
    sweep.check(lambda medium: None, Loss.NOTHING)


# -- files -------------------------------------------------------------------------------------------------------------


def apply(how: Callable[[Medium, str], None], path: str, medium: Medium) -> None:
    how(medium, path)


def empty(medium: Medium, path: str) -> None:
    rot.truncate(medium, path, 0)


def spoil(medium: Medium, path: str) -> None:
    rot.flip_bit(medium, path, 20)


def files_of(sweep: SlotSweep, suffix: str) -> list[str]:
    return [path for path in sweep.content if path.endswith(suffix)]


@pytest.mark.parametrize("how", [rot.lose, empty])
@pytest.mark.parametrize(
    ("suffix", "loss"), [(".log", Loss.CONTENT), (".catalog", Loss.NOTHING), ("metainfo.0", Loss.NOTHING)]
)
def test_any_one_file_lost_or_emptied(
    sweep: SlotSweep, suffix: str, loss: Loss, how: Callable[[Medium, str], None]
) -> None:
    for path in files_of(sweep, suffix):
        sweep.check(partial(apply, how, path), loss)


@pytest.mark.parametrize(("first", "second"), list(product([rot.lose, empty, spoil], repeat=2)))
def test_both_metainfo_copies_lost(
    sweep: SlotSweep, first: Callable[[Medium, str], None], second: Callable[[Medium, str], None]
) -> None:
    def damage(medium: Medium) -> None:
        first(medium, f"{DIRECTORY}/metainfo.0")
        second(medium, f"{DIRECTORY}/metainfo.1")

    sweep.check(damage, Loss.IDENTITY)


def test_both_files_of_any_one_segment_lost(sweep: SlotSweep) -> None:
    for path in files_of(sweep, ".log"):

        def damage(medium: Medium, path: str = path) -> None:
            rot.lose(medium, path)
            rot.lose(medium, path.replace(".log", ".catalog"))

        sweep.check(damage, Loss.IDENTITY)


def test_the_whole_journal_lost(sweep: SlotSweep) -> None:
    def damage(medium: Medium) -> None:
        for path in files_of(sweep, ".log") + files_of(sweep, ".catalog"):
            rot.lose(medium, path)

    sweep.check(damage, Loss.IDENTITY)


def test_all_logs_emptied(sweep: SlotSweep) -> None:
    def damage(medium: Medium) -> None:
        for path in files_of(sweep, ".log"):
            empty(medium, path)

    sweep.check(damage, Loss.CONTENT)


# -- an entry and its row ----------------------------------------------------------------------------------------------


@EVERY
def test_a_row_and_its_entry_damaged(sweep: SlotSweep, every: int) -> None:
    """Nobody knows any more which slot it was."""
    entries = list(sweep.entries())
    assert len(entries) > 20
    for catalog, at, row in entries[::every]:

        def damage(medium: Medium, catalog: str = catalog, at: int = at, row: Row = row) -> None:
            FAULTS[0].does(medium, catalog, at, at + ROW_BYTES)
            FAULTS[1].does(medium, catalog.replace(".catalog", ".log"), row.file_position, row.end_position)

        sweep.check(damage, Loss.IDENTITY)


@EVERY
def test_both_files_cut_at_the_same_entry(sweep: SlotSweep, every: int) -> None:
    """The rest of the segment is gone, and what is left looks like a log that ends there."""
    entries = sorted(sweep.entries(), key=lambda entry: entry[2].sequence)
    if sweep.end is End.REPORTED:
        entries.pop()  # its mark lies behind it: both files cut there are two faults, which hide each other
    for catalog, at, row in entries[::every]:

        def damage(medium: Medium, catalog: str = catalog, at: int = at, row: Row = row) -> None:
            rot.truncate(medium, catalog, at)
            rot.truncate(medium, catalog.replace(".catalog", ".log"), row.file_position)

        sweep.check(damage, Loss.IDENTITY)
