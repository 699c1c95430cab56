"""The crash model, names: what a crash can leave of files that were made, renamed and removed."""

from __future__ import annotations

from collections.abc import Callable

from tests.unit.sim.kit.crashes import (
    OLD,
    ZERO,
    A,
    contents,
    make,
    outcomes,
    seeded_outcomes,
)
from tidelog.sim.kit.disk import SimDisk


def names(build: Callable[[SimDisk], object]) -> set[tuple[str, ...]]:
    found = outcomes(build)
    assert seeded_outcomes(build) == found
    return {tuple(path for path, _ in files) for files in found}


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
