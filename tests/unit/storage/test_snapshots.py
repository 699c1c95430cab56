"""Snapshots: old or new after a crash, never garbage; damage is found, told by chunk, and mended from a peer."""

from __future__ import annotations

import contextlib
import errno
from dataclasses import replace
from functools import cache

import pytest

from tests.every_crash import enumerate_crashes
from tests.unit.storage.conftest import WatchedFiles
from tidelog.model.errors import Overloaded
from tidelog.model.ports import Files
from tidelog.sim.kit import rot
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.faults import Crashed
from tidelog.storage.snapshot_format import (
    BLOCK_BYTES,
    CHUNK_BYTES,
    DamagedSnapshot,
    SnapshotHeader,
    decode_header,
    encode_header,
    split,
)
from tidelog.storage.snapshots import BODY, HEADERS, Snapshot, SnapshotStore, UnknownSnapshot

DIRECTORY = "metadata/snapshots"
SIZES = (0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES + 7, 70 * CHUNK_BYTES)


@cache
def body(tag: int, size: int = 2 * CHUNK_BYTES + 100) -> bytes:
    return bytes((tag + index * 7 + index // 251) % 256 for index in range(size))


def store(files: Files) -> SnapshotStore:
    return SnapshotStore(files, DIRECTORY)


def loaded(files: Files) -> Snapshot | None:
    return store(files).load_newest().snapshot


def blocks(files: Files, position: int) -> list[bytes]:
    """Returns its chunks, as a peer gets them."""
    header = store(files).header(position)
    return list(store(files).sound_chunks(header, range(header.chunk_count)).values())


def path(position: int, suffix: str, version: int = 1) -> str:
    return f"{DIRECTORY}/{position:020d}-{version:04d}{suffix}"


def harm(files: Files, name: str, position: int, mask: int = 0x40) -> None:
    file = files.open(name)
    (byte,) = file.pread(1, position)
    file.pwritev([bytes([byte ^ mask])], position)
    file.close()


def size_of(files: Files, name: str) -> int:
    file = files.open(name)
    try:
        return file.size()
    finally:
        file.close()


# -- writing and reading ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_what_was_written_is_loaded(files: Files, size: int) -> None:
    written = store(files).write(12, b"voters", body(1, size))
    assert loaded(files) == Snapshot(written, body(1, size))
    assert (written.position, written.size, written.header) == (12, size, b"voters")
    assert store(files).headers()[0] == store(files).header(12) == written


def test_an_empty_store_has_none(files: Files) -> None:
    assert loaded(files) is None and store(files).headers() == []
    with pytest.raises(UnknownSnapshot):
        store(files).header(1)
    store(files).remove_old()


def test_the_same_image_at_the_same_position_has_the_same_root_everywhere() -> None:
    assert store(SimDisk(1)).write(5, b"", body(1)) == store(SimDisk(2)).write(5, b"", body(1))
    roots = {store(SimDisk(1)).write(at, b"", image).root for at in (5, 6) for image in (body(1), body(2))}
    assert len(roots) == 4


def test_a_peer_installs_what_another_holds(files: Files) -> None:
    disk = SimDisk(3)
    store(disk).write(9, b"voters", body(1))
    header = decode_header(encode_header(store(disk).header(9)))
    assert header is not None
    store(files).install(header, blocks(disk, 9))
    assert loaded(files) == loaded(disk)


def test_another_version_of_a_position_takes_the_place_of_the_first(files: Files) -> None:
    """As when a replica's image turned out to differ from all others'."""
    found = store(files)
    found.write(9, b"", body(1))
    found.write(9, b"", body(2))
    assert loaded(files) == Snapshot(found.header(9), body(2))


def test_what_does_not_fit_is_not_installed(files: Files) -> None:
    header = store(SimDisk(1)).write(9, b"", body(1))
    good, other, elsewhere = split(9, body(1)), split(9, body(2)), split(10, body(1))
    for bad, chunks in (
        ([good[0], other[1], good[2]], (0, 1, 2)),  # each is sound, but not of this snapshot
        ([good[0], elsewhere[1], good[2]], (1,)),
        ([good[1], good[0], good[2]], (0, 1)),
        ([*good[:2], good[2][:-1]], (2,)),
        ([*good[:2], b""], (2,)),
    ):
        with pytest.raises(DamagedSnapshot) as raised:
            store(files).install(header, bad)
        assert raised.value.chunks == chunks
    assert files.list(DIRECTORY) == []


def test_an_empty_snapshot_must_have_its_root_too(files: Files) -> None:
    with pytest.raises(DamagedSnapshot):
        store(files).install(SnapshotHeader(9, 0, b"?" * 16, b""), [])


# -- removing ---------------------------------------------------------------------------------------------------------


def test_the_newest_two_are_kept_and_only_when_told(files: Files) -> None:
    found = store(files)
    for position in (5, 9, 20):
        found.write(position, b"", body(position))
    found.write(20, b"", body(21))
    assert found.header(5).position == 5
    found.remove_old()
    with pytest.raises(UnknownSnapshot):
        found.header(5)
    assert blocks(files, 9) == split(9, body(9)) and blocks(files, 20) == split(20, body(21))
    assert len(files.list(DIRECTORY)) == 6


def test_a_damaged_one_is_no_reason_to_remove_an_older_one_that_is_whole(files: Files) -> None:
    found = store(files)
    for position in (5, 9, 20):
        found.write(position, b"", body(position))
    harm(files, path(20, BODY), 5000)
    found.remove_old()
    assert [header.position for header in map(found.header, (5, 9, 20))] == [5, 9, 20]


# -- damage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [BODY, *HEADERS])
def test_any_byte_may_rot(suffix: str) -> None:
    """In the body: it is told which chunk, the older one is loaded meanwhile, and that chunk alone mends it. In a
    header: the other copy serves, and a repair without chunks restores it."""
    disk = SimDisk(1)
    older = store(disk).write(4, b"older", body(4, 10))
    header = store(disk).write(9, b"voters", body(1))
    peers = split(9, body(1))
    name = path(9, suffix)
    step = 1 if suffix != BODY else 61
    for position in range(0, size_of(disk, name), step):
        harm(disk, name, position)
        found = store(disk).load_newest()
        if suffix == BODY:
            assert found.snapshot == Snapshot(older, body(4, 10))
            ((chunk,),) = [damage.chunks for damage in found.damaged]
            assert chunk == position // BLOCK_BYTES
            assert store(disk).sound_chunks(header, range(header.chunk_count)).keys() == {0, 1, 2} - {chunk}
            store(disk).repair(9, {chunk: peers[chunk]})
        else:
            assert found.snapshot == Snapshot(header, body(1)) and found.damaged == []
            store(disk).repair(9, {})
            assert decode_header(disk.open(name).pread(9999, 0)) == header
        assert loaded(disk) == Snapshot(header, body(1))


def test_both_headers_lost_leaves_the_older_one(files: Files) -> None:
    older = store(files).write(4, b"", body(4))
    lost = store(files).write(9, b"", body(1))
    for suffix in HEADERS:
        harm(files, path(9, suffix), 20)
    assert loaded(files) == Snapshot(older, body(4))
    with pytest.raises(UnknownSnapshot):
        store(files).repair(9, {})
    assert list(store(files).sound_chunks(lost, range(3)).values()) == split(9, body(1)), "for who has the header"
    assert store(files).sound_chunks(replace(lost, position=8), range(3)) == {}


@pytest.mark.parametrize("suffix", [BODY, *HEADERS])
@pytest.mark.parametrize("size", [0, 10, 5000, None])
def test_a_file_may_be_cut_or_missing(files: Files, suffix: str, size: int | None) -> None:
    header = store(files).write(9, b"", body(1))
    name = path(9, suffix)
    if size is None:
        files.remove(name)
    else:
        files.open(name).truncate(size)
    found = store(files).load_newest()
    lost = {None: (0, 1, 2), 0: (0, 1, 2), 10: (0, 1, 2), 5000: (1, 2)}[size] if suffix == BODY else ()
    assert [damage.chunks for damage in found.damaged] == ([lost] if lost else [])
    store(files).repair(9, {index: split(9, body(1))[index] for index in lost})
    assert loaded(files) == Snapshot(header, body(1))


def test_chunks_of_other_snapshots_mend_nothing(files: Files) -> None:
    """T11: each replica has a snapshot of its own position; parts of one are worthless for another."""
    store(files).write(9, b"", body(1))
    harm(files, path(9, BODY), 4200)
    for stranger in (split(10, body(1))[1], split(9, body(2))[1], split(9, body(1))[0]):
        before = files.open(path(9, BODY)).pread(99999, 0)
        with pytest.raises(DamagedSnapshot):
            store(files).repair(9, {1: stranger})
        assert files.open(path(9, BODY)).pread(99999, 0) == before


def test_a_body_of_another_snapshot_is_told_as_damage_of_all(files: Files) -> None:
    """A misdirected or stale file: sound chunk by chunk, and wrong as a whole."""
    store(files).write(9, b"", body(1))
    store(files).write(9, b"", body(2))
    files.rename(path(9, BODY), path(9, BODY, version=2))
    (damage,) = store(files).load_newest().damaged
    assert damage.chunks == (0, 1, 2)
    store(files).repair(9, dict(enumerate(split(9, body(2)))))
    assert loaded(files) == Snapshot(store(files).header(9), body(2))


def test_a_body_that_was_missing_outlasts_a_power_cut() -> None:
    for seed in range(20):
        disk = SimDisk(seed)
        store(disk).write(9, b"", body(1))
        disk.remove(path(9, BODY))
        disk.sync_dir(DIRECTORY)
        store(disk).repair(9, dict(enumerate(split(9, body(1)))))
        disk = disk.crash()
        assert loaded(disk) == Snapshot(store(disk).header(9), body(1))


def test_each_replica_has_a_bad_chunk_and_together_they_have_none() -> None:
    """T10, with the log below gone: any chunk that is whole somewhere is whole everywhere in the end."""
    disks = [SimDisk(seed) for seed in range(3)]
    for index, disk in enumerate(disks):
        store(disk).write(9, b"", body(1))
        harm(disk, path(9, BODY), index * BLOCK_BYTES + 100)
        assert loaded(disk) is None
    for disk in disks:
        (damage,) = store(disk).load_newest().damaged
        for chunk in damage.chunks:
            for peer in disks:
                if peer is not disk and store(peer).header(9).root == store(disk).header(9).root:
                    sound = store(peer).sound_chunks(store(disk).header(9), range(chunk, chunk + 1))
                    if sound:
                        store(disk).repair(9, sound)
                        break
        assert loaded(disk) == Snapshot(store(disk).header(9), body(1))


def test_sectors_that_cannot_be_read_are_damage_and_a_shortage_is_not(files: Files) -> None:
    store(files).write(9, b"", body(1))
    watched = WatchedFiles(files)
    watched.bad_sectors = [(path(9, BODY), 4096, 4608)]
    assert [damage.chunks for damage in store(watched).load_newest().damaged] == [(1,)]
    watched.bad_sectors = []
    for number, expected in ((errno.EMFILE, Overloaded), (errno.EACCES, PermissionError)):
        watched.fails = lambda kind, path, number=number: number if kind == "open" else 0  # type: ignore[misc] # early bound
        with pytest.raises(expected):
            store(watched).load_newest()


def test_a_disk_that_became_read_only_is_still_read() -> None:
    disk = SimDisk(1)
    header = store(disk).write(9, b"", body(1))
    disk.medium.read_only = True
    assert loaded(disk) == Snapshot(header, body(1))


# -- crashes ----------------------------------------------------------------------------------------------------------


def crash_everywhere(act: str) -> set[tuple[bool, int]]:
    """Crashes at every operation of an act, in many ways; what is loaded then is checked, and told: whether the act
    was over, and which snapshot it was."""
    outcomes = set()
    for operation in range(1, 40):
        is_over = False
        for seed in range(12):
            disk = SimDisk(f"{act}/{operation}/{seed}")
            store(disk).write(4, b"older", body(4))
            if act != "write":
                store(disk).write(9, b"newer", body(9))
            disk.crash_at(operation)
            try:
                perform(act, disk)
                is_over = True
            except Crashed:
                is_over = False
            disk = disk.kill() if seed % 4 == 0 else disk
            disk = disk.crash()
            outcomes.add((is_over, check(act, disk, is_over)))
        if is_over:
            return outcomes
    raise AssertionError("the act never came to its end")


def perform(act: str, disk: SimDisk) -> None:
    match act:
        case "write":
            store(disk).write(9, b"newer", body(9))
        case "rewrite":
            store(disk).write(9, b"newer", body(19))
        case "remove":
            store(disk).write(20, b"newest", body(20))
            store(disk).remove_old()
        case "repair":
            rot.flip_bit(disk.medium, path(9, BODY), 4200)
            store(disk).repair(9, {1: split(9, body(9))[1]})


def check(act: str, disk: SimDisk, is_over: bool) -> int:
    found = store(disk).load_newest()
    assert found.snapshot is not None, "one was complete"
    position, image = found.snapshot.header.position, found.snapshot.body
    (tag,) = [tag for tag in (position, position + 10) if image == body(tag)]
    assert tag == position or act == "rewrite"
    if is_over:
        assert tag == {"write": 9, "rewrite": 19, "remove": 20, "repair": 9}[act]
    if act != "repair":
        assert found.damaged == [], "half of a snapshot had a header"
    after = store(disk)
    after.write(30, b"", body(30))
    after.write(31, b"", body(31))
    after.remove_old()
    assert len(disk.list(DIRECTORY)) == 6, "what the crash left is gone"
    return tag


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        ("write", {(False, 4), (False, 9), (True, 9)}),
        ("rewrite", {(False, 9), (False, 19), (True, 19)}),
        ("remove", {(False, 9), (False, 20), (True, 20)}),
        ("repair", {(False, 4), (False, 9), (True, 9)}),
    ],
)
def test_every_crash_leaves_the_old_or_the_new(act: str, expected: set[tuple[bool, int]]) -> None:
    assert crash_everywhere(act) == expected


def test_every_state_that_a_crash_can_leave_of_a_small_write() -> None:
    tags = set()
    for operation in range(1, 30):
        for choices in enumerate_crashes():
            disk = SimDisk(operation)
            store(disk).write(4, b"", body(4, 8))
            disk.crash_at(operation)
            try:
                store(disk).write(9, b"", body(9, 8))
                is_over = True
            except Crashed:
                is_over = False
            tags.add((is_over, small_tag(disk.crash(choices), is_over)))
    assert tags == {(False, 4), (False, 9), (True, 9)}


def small_tag(disk: SimDisk, is_over: bool) -> int:
    found = store(disk).load_newest()
    assert found.snapshot is not None and found.damaged == []
    position = found.snapshot.header.position
    assert found.snapshot.body == body(position, 8)
    assert position == 9 or not is_over
    return position


def test_what_a_killed_process_renamed_is_made_durable_before_it_is_believed() -> None:
    """Else the log below it might be let go, and then a power cut takes the name."""
    for operation in range(1, 30):
        disk = SimDisk(operation)
        store(disk).write(4, b"", body(4))
        disk.crash_at(operation)
        with contextlib.suppress(Crashed):
            store(disk).write(9, b"", body(9))
        disk = disk.kill()
        before = loaded(disk)
        assert loaded(disk.crash()) == before


def test_a_failed_sync_leaves_no_new_snapshot(files: Files) -> None:
    older = store(files).write(4, b"", body(4))
    watched = WatchedFiles(files)
    watched.fails = lambda kind, name: errno.EIO if kind == "sync" else 0
    with pytest.raises(OSError, match="EIO"):
        store(watched).write(9, b"", body(9))
    assert loaded(files) == Snapshot(older, body(4))
