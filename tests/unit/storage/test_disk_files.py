"""What only a real file system does: short writes, locks between processes, errors of fdatasync."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.process_files import process_files
from tidelog.storage.disk_files import DiskFiles


@pytest.fixture
def files(tmp_path: Path) -> Iterator[DiskFiles]:
    with process_files(tmp_path / "data") as files:
        yield files


@pytest.mark.parametrize("bytes_max", [1, 2, 3, 7, 10, 11])
def test_a_short_write_is_continued_at_the_right_byte(
    files: DiskFiles, monkeypatch: pytest.MonkeyPatch, bytes_max: int
) -> None:
    real = os.pwritev

    def short(fd: int, buffers: Sequence[bytes], position: int) -> int:
        return real(fd, [b"".join(buffers)[:bytes_max]], position)

    file = files.open("f", create=True)
    monkeypatch.setattr(os, "pwritev", short)
    file.pwritev([b"", b"0123", bytearray(b"456"), b"", memoryview(b"789"), b"", b"ab"], 2)
    assert file.pread(100, 0) == b"\0\x000123456789ab"


def test_a_write_past_the_limit_leaves_a_prefix_and_fails(files: DiskFiles) -> None:
    program = (
        "import resource, sys; from tidelog.storage.disk_files import DiskFiles\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "f = DiskFiles(sys.argv[1]).open('f', create=True)\n"
        "try: f.pwritev([b'x' * 700, b'y' * 700], 0)\n"
        "except OSError as error: print(error.errno, f.size())\n"
    )
    output = subprocess.run([sys.executable, "-c", program, files.root], capture_output=True, text=True, check=True)
    assert output.stdout.split() == [str(errno.EFBIG), "1000"]


def test_a_device_that_takes_nothing_is_an_error_and_no_endless_loop(
    files: DiskFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = files.open("f", create=True)
    monkeypatch.setattr(os, "pwritev", lambda *_: 0)
    with pytest.raises(OSError, match="took no bytes"):
        file.pwritev([b"x"], 0)


def test_a_failed_sync_is_tried_once(files: DiskFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def fail(fd: int) -> None:
        calls.append(fd)
        raise OSError(errno.EIO, "Input/output error")

    file = files.open("f", create=True)
    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    assert len(calls) == 1


def test_make_dirs_syncs_every_name_on_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    real = os.fsync

    def watch(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        real(fd)

    files = DiskFiles(str(tmp_path / "data"))
    monkeypatch.setattr(os, "fsync", watch)
    files.make_dirs("")
    assert synced[0] == str(tmp_path)
    synced.clear()
    files.make_dirs("a/b")
    assert synced == [f"{files.root}/a", files.root]


def test_exists_does_not_take_an_error_for_absence(files: DiskFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: str) -> os.stat_result:
        raise OSError(errno.EIO, "Input/output error", path)

    monkeypatch.setattr(os, "stat", fail)
    with pytest.raises(OSError, match="Input/output"):
        files.exists("f")


def test_a_lock_names_its_holder_and_dies_with_it(files: DiskFiles) -> None:
    program = (
        "import sys; from tidelog.storage.disk_files import DiskFiles\n"
        "lock = DiskFiles(sys.argv[1]).lock('lock'); print('held', flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, files.root], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(BlockingIOError, match=f"locked by process {holder.pid}"):
            files.lock("lock")
        holder.kill()
        holder.wait()
        files.lock("lock").release()


def test_the_data_directory_is_for_its_owner_and_group(files: DiskFiles) -> None:
    files.make_dirs("d")
    files.open("d/f", create=True).close()
    assert os.stat(f"{files.root}/d/f").st_mode & 0o007 == 0
    assert os.stat(f"{files.root}/d").st_mode & 0o007 == 0


def test_what_is_on_a_read_only_file_system_can_be_read(files: DiskFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    files.open("f", create=True).pwritev([b"content"], 0)
    real = os.open

    def refuse(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_RDWR:
            raise OSError(errno.EROFS, "Read-only file system", path)
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", refuse)
    for create in (False, True):
        file = files.open("f", create=create)
        assert file.pread(100, 0) == b"content"
        with pytest.raises(OSError, match="Bad file descriptor"):
            file.pwritev([b"x"], 0)
        with pytest.raises(OSError, match="Read-only file system"):
            files.open("g", create=create)
