"""The file of an audit log: private, rotated, whole lines, and no more than its bound."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tidelog.adapters.audit_file import AuditFile

LINE = b'{"n":1}\n'


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_lines_are_appended_to_a_file_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    umask = os.umask(0)
    try:
        file = AuditFile(str(path), 1_000, 3)
    finally:
        os.umask(umask)
    assert file.written_ms == 0
    file.write([LINE])
    file.close()
    again = AuditFile(str(path), 1_000, 3)
    again.write([LINE, LINE])
    again.close()
    assert again.written_ms > 0
    assert path.read_bytes() == 3 * LINE
    assert mode(path) == 0o600


def test_a_file_that_others_may_read_is_taken_from_them(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_bytes(LINE)
    path.chmod(0o644)
    AuditFile(str(path), 1_000, 3).close()
    assert mode(path) == 0o600


def test_it_is_rotated_by_size_and_so_many_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    file = AuditFile(str(path), 3 * len(LINE), 3)
    for _ in range(20):
        file.write([LINE])
    file.close()
    kept = sorted(found.name for found in tmp_path.iterdir())
    assert kept == ["audit.log", "audit.log.1", "audit.log.2"]
    assert [(tmp_path / name).read_bytes() for name in kept] == [2 * LINE, 3 * LINE, 3 * LINE]
    assert {mode(tmp_path / name) for name in kept} == {0o600}


def test_one_file_alone_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    file = AuditFile(str(path), 3 * len(LINE), 1)
    for _ in range(20):
        file.write([LINE])
    file.close()
    assert [found.name for found in tmp_path.iterdir()] == ["audit.log"]
    assert path.read_bytes() == 2 * LINE


def test_a_file_that_somebody_moved_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    file = AuditFile(str(path), 1_000, 3)
    file.write([LINE])
    path.rename(tmp_path / "moved")
    file.write([LINE])
    file.close()
    assert path.read_bytes() == (tmp_path / "moved").read_bytes() == LINE


def test_a_new_file_does_not_begin_with_the_end_of_another(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_bytes(LINE[:3])
    file = AuditFile(str(path), 1_000, 3)
    path.rename(tmp_path / "moved")
    file.write([LINE])
    (tmp_path / "other").write_bytes(LINE[:3])
    (tmp_path / "other").rename(path)
    file.write([LINE])
    file.close()
    assert path.read_bytes() == LINE[:3] + b"\n" + LINE


def test_a_line_that_was_cut_off_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_bytes(LINE + LINE[:3])
    file = AuditFile(str(path), 1_000, 3)
    file.write([LINE])
    file.close()
    assert path.read_bytes().splitlines() == [LINE[:-1], LINE[:3], LINE[:-1]]


def test_a_full_disk_is_an_error_and_what_comes_after_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "audit.log"
    file = AuditFile(str(path), 1_000, 3)
    written = os.write

    def full(descriptor: int, data: bytes) -> int:
        if len(data) <= 3:
            raise OSError(28, "No space left on device")
        return written(descriptor, data[:5])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space"):
            file.write([LINE])
    file.write([LINE])
    file.close()
    assert path.read_bytes().splitlines() == [LINE[:5], LINE[:-1]]


def test_a_link_or_a_directory_is_no_audit_log(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe", ".", "nowhere/audit.log"):
        with pytest.raises(OSError, match=r"audit|link|pipe|directory|symbolic|device"):
            AuditFile(str(tmp_path / name), 1_000, 3)
    assert not (tmp_path / "elsewhere").exists()
