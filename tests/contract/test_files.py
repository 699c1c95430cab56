"""The `Files` port: one suite, both implementations. A sentence of the port's docstrings is a test here."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.process_files import process_files
from tidelog.model.ports import Files
from tidelog.sim.kit.disk import SimDisk
from tidelog.storage.disk_files import IOV_MAX, DiskFiles


@pytest.fixture(params=["disk", "sim"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Files]:
    if request.param == "disk":
        with process_files(tmp_path / "data") as files:
            yield files
    else:
        simulated = SimDisk(7)
        simulated.make_dirs("")
        yield simulated


def put(files: Files, path: str, content: bytes) -> None:
    file = files.open(path, create=True)
    file.truncate(0)
    file.pwritev([content], 0)
    file.sync()
    file.close()


def content(files: Files, path: str) -> bytes:
    file = files.open(path)
    data = file.pread(file.size(), 0)
    file.close()
    return data


@contextmanager
def fails_with(*numbers: int) -> Iterator[None]:
    """An `OSError` with one of these errnos: where kernels differ, so may implementations."""
    with pytest.raises(OSError, check=lambda error: error.errno in numbers):
        yield


# -- File ------------------------------------------------------------------------------------------------------------


def test_pread_gives_fewer_bytes_only_where_the_file_ends(files: Files) -> None:
    put(files, "f", b"0123456789")
    file = files.open("f")
    assert file.pread(4, 3) == b"3456"
    assert file.pread(4, 8) == b"89"
    assert file.pread(4, 10) == b""
    assert file.pread(4, 1000) == b""
    assert file.pread(0, 0) == b""


def test_pwritev_joins_buffers_of_every_kind(files: Files) -> None:
    file = files.open("f", create=True)
    file.pwritev([b"ab", bytearray(b"cd"), memoryview(b"xefx")[1:3], b""], 0)
    assert file.pread(100, 0) == b"abcdef"


def test_pwritev_takes_more_buffers_than_the_kernel_does(files: Files) -> None:
    file = files.open("f", create=True)
    buffers = [b"%06d" % n for n in range(2 * IOV_MAX + 17)]
    file.pwritev(buffers, 3)
    assert file.pread(file.size(), 0) == b"\0\0\0" + b"".join(buffers)


def test_pwritev_of_nothing_changes_nothing(files: Files) -> None:
    file = files.open("f", create=True)
    file.pwritev([], 10)
    file.pwritev([b""], 10)
    assert file.size() == 0


def test_pwritev_keeps_no_hold_on_the_buffers(files: Files) -> None:
    file = files.open("f", create=True)
    buffer = bytearray(b"before")
    file.pwritev([buffer], 0)
    buffer[:] = b"after, and longer"
    file.sync()
    assert file.pread(100, 0) == b"before"


def test_pwritev_overwrites_in_place(files: Files) -> None:
    put(files, "f", b"0123456789")
    file = files.open("f")
    file.pwritev([b"AB"], 4)
    assert file.pread(100, 0) == b"0123AB6789"


def test_pwritev_beyond_the_end_leaves_zeros_between(files: Files) -> None:
    file = files.open("f", create=True)
    file.pwritev([b"x"], 5)
    assert file.pread(100, 0) == b"\0\0\0\0\0x"


def test_what_is_written_is_seen_at_once_through_every_handle(files: Files) -> None:
    writer = files.open("f", create=True)
    reader = files.open("f")
    writer.pwritev([b"seen"], 0)
    assert reader.pread(10, 0) == b"seen"
    assert reader.size() == 4


def test_truncate_cuts_or_extends_with_zeros(files: Files) -> None:
    put(files, "f", b"0123456789")
    file = files.open("f")
    file.truncate(4)
    assert file.size() == 4
    file.truncate(6)
    assert file.pread(100, 0) == b"0123\0\0"


def test_bytes_cut_off_do_not_come_back_when_the_file_grows(files: Files) -> None:
    put(files, "f", b"secret")
    file = files.open("f")
    file.truncate(0)
    file.pwritev([b"x"], 5)
    assert file.pread(100, 0) == b"\0\0\0\0\0x"


def test_sync_changes_nothing_that_is_seen(files: Files) -> None:
    file = files.open("f", create=True)
    file.pwritev([b"abc"], 0)
    file.sync()
    file.sync()
    assert file.pread(10, 0) == b"abc"


def test_close_is_idempotent_and_ends_the_handle(files: Files) -> None:
    file = files.open("f", create=True)
    file.close()
    file.close()
    calls: list[Callable[[], object]] = [
        lambda: file.pread(1, 0),
        lambda: file.pwritev([b"x"], 0),
        lambda: file.truncate(0),
        file.sync,
        file.size,
    ]
    for call in calls:
        with fails_with(errno.EBADF):
            call()


def test_positions_below_zero_are_refused(files: Files) -> None:
    file = files.open("f", create=True)
    calls: list[Callable[[], object]] = [
        lambda: file.pread(1, -1),
        lambda: file.pwritev([b"x"], -1),
        lambda: file.truncate(-1),
    ]
    for call in calls:
        with fails_with(errno.EINVAL):
            call()


# -- Files: opening, listing -----------------------------------------------------------------------------------------


def test_open_finds_or_creates(files: Files) -> None:
    with pytest.raises(FileNotFoundError):
        files.open("f")
    files.open("f", create=True).pwritev([b"kept"], 0)
    assert files.open("f", create=True).pread(10, 0) == b"kept"
    assert content(files, "f") == b"kept"


def test_open_needs_the_directory(files: Files) -> None:
    with pytest.raises(FileNotFoundError):
        files.open("no/f", create=True)
    files.make_dirs("d")
    with pytest.raises(IsADirectoryError):
        files.open("d")
    put(files, "f", b"")
    with pytest.raises(NotADirectoryError):
        files.open("f/g", create=True)


def test_exists_speaks_of_files_and_directories(files: Files) -> None:
    files.make_dirs("d/e")
    put(files, "d/f", b"")
    assert files.exists("d")
    assert files.exists("d/e")
    assert files.exists("d/f")
    assert not files.exists("x")
    assert not files.exists("x/y")
    assert not files.exists("d/f/g")


def test_list_is_sorted_and_empty_where_nothing_is(files: Files) -> None:
    files.make_dirs("d/sub")
    for name in ("b", "a", "10", "9", "B"):
        put(files, f"d/{name}", b"")
    assert files.list("d") == ["10", "9", "B", "a", "b", "sub"]
    assert files.list("d/sub") == []
    assert files.list("nowhere") == []
    assert files.list("") == ["d"]
    with pytest.raises(NotADirectoryError):
        files.list("d/a")


def test_make_dirs_makes_parents_and_does_not_mind_what_exists(files: Files) -> None:
    files.make_dirs("a/b/c")
    put(files, "a/b/c/f", b"kept")
    files.make_dirs("a/b/c")
    files.make_dirs("a")
    assert content(files, "a/b/c/f") == b"kept"
    with fails_with(errno.EEXIST, errno.ENOTDIR):
        files.make_dirs("a/b/c/f")


# -- Files: names ----------------------------------------------------------------------------------------------------


def test_remove(files: Files) -> None:
    put(files, "f", b"x")
    handle = files.open("f")
    files.remove("f")
    assert not files.exists("f")
    assert handle.pread(10, 0) == b"x"
    with pytest.raises(FileNotFoundError):
        files.remove("f")
    files.make_dirs("d")
    with fails_with(errno.EISDIR, errno.EPERM):
        files.remove("d")


def test_a_file_made_anew_under_a_removed_name_is_empty(files: Files) -> None:
    put(files, "f", b"old")
    files.remove("f")
    assert files.open("f", create=True).size() == 0


def test_remove_tree(files: Files) -> None:
    files.make_dirs("a/b/c")
    put(files, "a/f", b"")
    put(files, "a/b/g", b"")
    put(files, "kept", b"")
    files.remove_tree("a")
    files.remove_tree("a")
    files.remove_tree("never/was")
    assert files.list("") == ["kept"]
    with pytest.raises(NotADirectoryError):
        files.remove_tree("kept")


def test_remove_tree_spares_the_data_directory(files: Files) -> None:
    with pytest.raises(AssertionError):
        files.remove_tree("")


def test_rename_replaces_the_target(files: Files) -> None:
    put(files, "new", b"new")
    put(files, "target", b"old")
    handle = files.open("target")
    files.rename("new", "target")
    assert content(files, "target") == b"new"
    assert handle.pread(10, 0) == b"old"
    assert files.list("") == ["target"]


def test_rename_moves_between_directories_and_moves_directories(files: Files) -> None:
    files.make_dirs("a/inner")
    files.make_dirs("b")
    put(files, "a/inner/f", b"x")
    files.rename("a/inner", "b/moved")
    assert content(files, "b/moved/f") == b"x"
    files.rename("b/moved/f", "a/g")
    assert files.list("a") == ["g"]
    assert files.list("b/moved") == []


def test_rename_onto_itself_keeps_the_file(files: Files) -> None:
    put(files, "f", b"x")
    files.rename("f", "f")
    assert content(files, "f") == b"x"


def test_rename_refuses_what_posix_refuses(files: Files) -> None:
    files.make_dirs("full/x")
    files.make_dirs("d")
    put(files, "f", b"")
    with pytest.raises(FileNotFoundError):
        files.rename("missing", "f")
    with pytest.raises(FileNotFoundError):
        files.rename("f", "missing/f")
    with pytest.raises(IsADirectoryError):
        files.rename("f", "d")
    with pytest.raises(NotADirectoryError):
        files.rename("d", "f")
    with fails_with(errno.ENOTEMPTY, errno.EEXIST):
        files.rename("d", "full")


def test_sync_dir_wants_a_directory(files: Files) -> None:
    files.sync_dir("")
    files.make_dirs("d")
    files.sync_dir("d")
    put(files, "f", b"")
    with pytest.raises(FileNotFoundError):
        files.sync_dir("missing")
    with pytest.raises(NotADirectoryError):
        files.sync_dir("f")


@pytest.mark.parametrize("path", ["/etc/passwd", "../up", "a/../../up", "a/..", "nul\0byte"])
def test_paths_stay_inside(files: Files, path: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: files.open(path, create=True),
        lambda: files.exists(path),
        lambda: files.list(path),
        lambda: files.make_dirs(path),
        lambda: files.remove(path),
        lambda: files.remove_tree(path),
        lambda: files.rename("f", path),
        lambda: files.rename(path, "f"),
        lambda: files.sync_dir(path),
        lambda: files.lock(path),
    ]
    put(files, "f", b"")
    for call in calls:
        with pytest.raises(AssertionError):
            call()
    assert files.list("") == ["f"]


# -- Files: lock, space ----------------------------------------------------------------------------------------------


def test_a_lock_is_exclusive_until_released(files: Files) -> None:
    lock = files.lock("lock")
    with pytest.raises(BlockingIOError, match="locked by"):
        files.lock("lock")
    other = files.lock("other")
    lock.release()
    again = files.lock("lock")
    lock.release()  # a lock released long ago takes nothing from its next holder
    with pytest.raises(BlockingIOError):
        files.lock("lock")
    again.release()
    other.release()


def test_free_bytes_shrink_as_files_grow(files: Files) -> None:
    before = files.free_bytes()
    assert before > 0
    size = 8 << 20
    put(files, "f", b"x" * size)
    assert before - files.free_bytes() > size // 2 or isinstance(files, DiskFiles)  # others use the real disk too
