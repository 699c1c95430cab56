"""A log ends at its first hole when it is opened, so a strike may not leave a copy behind a hole as the last one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.storage.conftest import DIRECTORY, IDENTITY, Store, WatchedFiles
from tidelog.sim.cluster.good_copies import GoodCopies, end_of
from tidelog.sim.kit import rot
from tidelog.sim.kit.disk import SimDisk
from tidelog.storage.log_manager import log_directory
from tidelog.storage.scan import BadEnd

BATCHES = 6
BASES = (0, 2, 4)
"""The base offsets of the segments, of two batches each."""


def two_a_segment() -> Store:
    """Returns a log that was never flushed."""
    disk = SimDisk(7)
    disk.make_dirs("")
    store = Store(WatchedFiles(disk))
    store.bad_end = BadEnd.KEEP
    store.settings = replace(store.settings, segment_bytes=2 * len(store.batch(b"0").data))
    store.kill_and_open()
    store.append(*(b"%d" % number for number in range(BATCHES)))
    assert tuple(segment.base_offset for segment in store.log.segments) == BASES
    return store


def harmed(rows: Sequence[int] = (), batches: Sequence[int] = ()) -> Store:
    """Returns such a log, where these rows and batches, by their offsets, are damaged."""
    store = two_a_segment()
    for offset in batches:
        store.harm_batch(offset, offset // 2 * 2)
    for offset in rows:
        base = offset // 2 * 2
        store.harm_row(store.segment(base).body_slot + offset - base, base)
    return store


def files_of(store: Store, directory: str) -> dict[str, bytes]:
    names = store.files.inner.list(DIRECTORY)
    return {f"{directory}/{name}": store.content(f"{DIRECTORY}/{name}") for name in names}


@pytest.mark.parametrize(
    ("rows", "batches", "end"),
    [
        pytest.param((), (), BATCHES, id="whole"),
        pytest.param((1, 2, 3), (), BATCHES, id="rows are made again from batches"),
        pytest.param((), (1, 2, 3), BATCHES, id="batches are known by their rows"),
        pytest.param((3,), (1,), BATCHES, id="each has one of them"),
        pytest.param((3,), (3,), 3, id="a hole"),
        pytest.param((0, 3), (0, 3), 0, id="a hole at the beginning"),
        pytest.param((5,), (5,), 5, id="a hole at the end"),
    ],
)
def test_a_log_ends_at_its_first_hole(rows: tuple[int, ...], batches: tuple[int, ...], end: int) -> None:
    store = harmed(rows, batches)
    assert end_of(IDENTITY, files_of(store, DIRECTORY)) == end
    store.kill_and_open()
    assert store.log.log_end_offset == end, "and so does the log that ships"


def test_a_hole_in_what_is_deleted_ends_nothing() -> None:
    """A power cut has left the files that a deletion let go of."""
    store = harmed((1,), (1,))
    left = files_of(store, DIRECTORY)
    assert end_of(IDENTITY, left) == 1
    store.flush()
    store.log.delete_records(2)
    assert end_of(IDENTITY, left | files_of(store, DIRECTORY)) == BATCHES


def test_no_log_ends_where_it_begins() -> None:
    assert end_of(IDENTITY, {}) == 0


def good_copies(*stores: Store) -> GoodCopies:
    """Returns those of replicas on nodes 1, 2 and so on, whose logs these are."""
    disks = {node: SimDisk(node) for node, _ in enumerate(stores, 1)}
    for disk, store in zip(disks.values(), stores, strict=True):
        for path, content in files_of(store, log_directory(IDENTITY)).items():
            rot.plant(disk.medium, path, content)
    world: Any = SimpleNamespace(medium=lambda node: disks[node].medium)
    ledger: Any = SimpleNamespace(replicas=lambda partition_id: list(disks))
    return GoodCopies(world, ledger)


@pytest.mark.parametrize(("hole", "may_go"), [((), True), ((1,), False), ((2,), False), ((5,), True)])
def test_a_copy_behind_a_hole_of_its_log_is_none(hole: tuple[int, ...], *, may_go: bool) -> None:
    """The copy of batch 4 on node 1 may go if node 2 keeps one."""
    copies = good_copies(two_a_segment(), harmed(hole, hole))
    (copy,) = (one for one in copies.read(IDENTITY, 1, is_journal=False) if one.batches[0].base == 4)
    assert copies.may_go(IDENTITY, [copy]) is may_go
