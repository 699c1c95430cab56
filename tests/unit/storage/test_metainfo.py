"""Two copies: whatever happens to one, the metainfo is there."""

from __future__ import annotations

import errno
from contextlib import suppress
from itertools import product

import pytest

from tests.every_crash import enumerate_crashes
from tests.unit.storage.conftest import WatchedFiles
from tidelog.model.errors import Overloaded
from tidelog.model.ids import OFFSET_MAX, PartitionId, TopicId
from tidelog.model.ports import Files
from tidelog.sim.kit import rot
from tidelog.sim.kit.disk import SimDisk
from tidelog.sim.kit.faults import Crashed
from tidelog.storage.metainfo import NAMES, Metainfo, MetainfoStore
from tidelog.storage.two_copies import COPY_BYTES

IDENTITY = PartitionId(TopicId("cd" * 16), 1)
FIRST = Metainfo(incarnation="one", durable_sequence=7, end_offset=5, epoch=2, high_watermark=4, log_start_offset=1)
SECOND = Metainfo(incarnation="one", durable_sequence=9, end_offset=8, epoch=3, high_watermark=8, log_start_offset=2)


def stored(files: Files, identity: PartitionId = IDENTITY) -> MetainfoStore:
    files.make_dirs("log")
    return MetainfoStore(files, "log", identity)


def harm(files: Files, name: str, position: int) -> None:
    file = files.open(f"log/{name}")
    (byte,) = file.pread(1, position)
    file.pwritev([bytes([byte ^ 1])], position)
    file.close()


def test_what_was_stored_is_loaded(files: Files) -> None:
    stored(files).store(FIRST)
    loaded = stored(files).load()
    assert loaded is not None
    assert (loaded.info, loaded.sequence, loaded.bad_copies) == (FIRST, 1, 0)


def test_a_new_log_has_none(files: Files) -> None:
    assert stored(files).load() is None


def test_the_sequence_goes_on_where_it_was(files: Files) -> None:
    stored(files).store(FIRST)
    again = stored(files)
    again.load()
    again.store(SECOND)
    loaded = stored(files).load()
    assert loaded is not None
    assert (loaded.info, loaded.sequence, loaded.bad_copies) == (SECOND, 2, 0)


@pytest.mark.parametrize("name", NAMES)
def test_one_copy_may_rot_at_any_byte_that_means_something(files: Files, name: str) -> None:
    stored(files).store(FIRST)
    block = files.open(f"log/{name}").pread(COPY_BYTES, 0)
    for position in range(len(block.rstrip(b"\0"))):
        harm(files, name, position)
        loaded = stored(files).load()
        assert loaded is not None
        assert (loaded.info, loaded.bad_copies) == (FIRST, 1), position
        harm(files, name, position)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [0, 10, 100])
def test_one_copy_may_be_cut_or_missing(files: Files, name: str, size: int) -> None:
    stored(files).store(FIRST)
    if size:
        files.open(f"log/{name}").truncate(size)
    else:
        files.remove(f"log/{name}")
    loaded = stored(files).load()
    assert loaded is not None
    assert (loaded.info, loaded.bad_copies) == (FIRST, 1)


@pytest.mark.parametrize("kind", ["open", "pread"])
def test_one_copy_may_be_unreadable(files: Files, kind: str) -> None:
    stored(files).store(FIRST)
    watched = WatchedFiles(files)
    watched.fails = lambda what, path: errno.EIO if what == kind and path.endswith("0") else 0
    loaded = stored(watched).load()
    assert loaded is not None
    assert (loaded.info, loaded.bad_copies) == (FIRST, 1)


def test_both_copies_lost_is_none_and_never_a_guess(files: Files) -> None:
    stored(files).store(FIRST)
    for name in NAMES:
        harm(files, name, 30)
    assert stored(files).load() is None


def test_a_copy_out_of_reach_is_not_a_lost_one(files: Files) -> None:
    stored(files).store(FIRST)
    watched = WatchedFiles(files)
    watched.fails = lambda kind, path: errno.EMFILE if kind == "open" else 0
    with pytest.raises(Overloaded):
        stored(watched).load()
    watched.fails = lambda kind, path: errno.EACCES if kind == "open" else 0
    with pytest.raises(PermissionError):
        stored(watched).load()


def test_an_older_copy_does_not_win(files: Files) -> None:
    stored(files).store(FIRST)
    old = files.open(f"log/{NAMES[0]}").pread(COPY_BYTES, 0)
    again = stored(files)
    again.load()
    again.store(SECOND)
    for name in NAMES:
        files.open(f"log/{name}").pwritev([old], 0)
        loaded = stored(files).load()
        assert loaded is not None
        if name == NAMES[0]:
            assert (loaded.info, loaded.bad_copies) == (SECOND, 1)
        else:
            assert (loaded.info, loaded.bad_copies) == (FIRST, 0)  # both rolled back: the whole disk was


def test_another_logs_metainfo_is_not_taken(files: Files) -> None:
    stored(files).store(FIRST)
    assert stored(files, IDENTITY._replace(partition=2)).load() is None
    assert stored(files, IDENTITY._replace(topic_id=TopicId("ce" * 16))).load() is None


def test_metainfo_of_another_log_is_known_for_that(files: Files) -> None:
    assert not stored(files).is_of_another()
    stored(files).store(FIRST)
    assert not stored(files).is_of_another()
    stranger = stored(files, IDENTITY._replace(partition=2))
    assert stranger.is_of_another()
    harm(files, NAMES[0], 30)
    assert stranger.is_of_another()
    harm(files, NAMES[1], 30)
    assert not stranger.is_of_another()


class LaterMetainfo(Metainfo, frozen=True, kw_only=True):
    promised: int = 12


def test_facts_that_a_later_version_adds_are_passed_over(files: Files) -> None:
    stored(files).store(LaterMetainfo(incarnation="one", end_offset=5))
    loaded = stored(files).load()
    assert loaded is not None
    assert loaded.info == Metainfo(incarnation="one", end_offset=5)


def test_the_largest_metainfo_fits_a_copy(files: Files) -> None:
    largest = Metainfo(
        incarnation="f" * 64,
        durable_sequence=2**64 - 1,
        end_offset=OFFSET_MAX,
        epoch=2**31 - 1,
        high_watermark=OFFSET_MAX,
        log_start_offset=OFFSET_MAX,
    )
    stored(files).store(largest)
    loaded = stored(files).load()
    assert loaded is not None
    assert loaded.info == largest


# -- crashes -----------------------------------------------------------------------------------------------------------


def test_every_crash_while_storing_leaves_the_old_metainfo_or_the_new() -> None:
    """Also with one copy lost before: the other may not be touched until the first is whole again."""
    outcomes = set()
    for lost, operation in product([None, *NAMES], range(1, 7)):
        for choices in enumerate_crashes():
            disk = SimDisk(operation)
            stored(disk).store(FIRST)
            if lost is not None:
                rot.flip_bit(disk.medium, f"log/{lost}", 30)
            metainfo = stored(disk)
            metainfo.load()
            disk.crash_at(operation)
            try:
                metainfo.store(SECOND)
                is_stored = True
            except Crashed:
                is_stored = False
            loaded = stored(disk.crash(choices)).load()
            assert loaded is not None, (lost, operation)
            assert loaded.info == SECOND or (loaded.info == FIRST and not is_stored)
            outcomes.add((is_stored, loaded.info == SECOND, loaded.bad_copies))
    assert {(False, False, 0), (False, False, 1), (False, True, 1), (True, True, 0)} <= outcomes


def test_what_a_killed_process_left_in_the_page_cache_is_safe_once_it_is_written_again() -> None:
    """Else the next store may overwrite the only copy that is on the disk, and a power cut takes the other."""
    third = Metainfo(incarnation="one", end_offset=99)
    for operation, later in product(range(1, 7), range(1, 3)):
        for choices in enumerate_crashes():
            disk = SimDisk(operation)
            stored(disk).store(FIRST)
            disk.crash_at(operation)
            with suppress(Crashed):
                stored(disk).store(SECOND)
            disk = disk.kill()
            metainfo = stored(disk)
            shown = metainfo.load()
            assert shown is not None
            metainfo.write_again()
            disk.crash_at(later)
            with suppress(Crashed):
                metainfo.store(third)
            loaded = stored(disk.crash(choices)).load()
            assert loaded is not None
            assert loaded.info in (shown.info, third), (operation, later)


def test_a_store_that_failed_half_way_does_not_put_the_good_copy_at_risk() -> None:
    disk = SimDisk(1)
    watched = WatchedFiles(disk)
    metainfo = stored(watched)
    metainfo.store(FIRST)
    watched.fails = lambda kind, path: errno.EIO if kind == "sync" and path.endswith(NAMES[1]) else 0
    with pytest.raises(OSError, match="EIO"):
        metainfo.store(SECOND)
    watched.forget()
    with pytest.raises(OSError, match="EIO"):
        metainfo.store(SECOND)
    assert watched.by_path["pwritev", f"log/{NAMES[0]}"] == 0, "the only good copy was overwritten"


@pytest.mark.parametrize("name", NAMES)
def test_the_worse_copy_is_written_first(files: Files, name: str) -> None:
    stored(files).store(FIRST)
    harm(files, name, 30)
    watched = WatchedFiles(files)
    metainfo = stored(watched)
    metainfo.load()
    watched.fails = lambda kind, path: errno.EIO if kind == "pwritev" else 0
    with pytest.raises(OSError, match="EIO"):
        metainfo.store(SECOND)
    assert watched.by_path["pwritev", f"log/{name}"] == 1
