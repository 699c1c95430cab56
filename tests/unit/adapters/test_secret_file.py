"""Secrets come from files that nobody else can read, and no error tells them. F122."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tidelog.adapters.secret_file import SHARED_BYTES_MAX, read_shared_secret
from tidelog.config.errors import ConfigError

SECRET = b"3f7c9a5be1d24806"


def written(tmp_path: Path, content: bytes, mode: int = 0o600) -> str:
    file = tmp_path / "secret"
    file.write_bytes(content)
    file.chmod(mode)
    return str(file)


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o700])
def test_a_secret_is_read_without_the_space_around_it(tmp_path: Path, mode: int) -> None:
    assert read_shared_secret(written(tmp_path, b" \n" + SECRET + b"\r\n\n", mode), "s") == SECRET


def test_any_bytes_are_a_secret(tmp_path: Path) -> None:
    content = b"\xff\x00" * (SHARED_BYTES_MAX // 2)
    assert read_shared_secret(written(tmp_path, content), "s") == content


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o610, 0o644, 0o666])
def test_a_file_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    path = written(tmp_path, SECRET, mode)
    with pytest.raises(ConfigError, match=f"cluster.secret.file: others .*; chmod 600 {path}$"):
        read_shared_secret(path, "cluster.secret.file")


@pytest.mark.parametrize("content", [b"", b"\n" * 100, SECRET[1:], b" " + SECRET[1:] + b"\n", b"x" * 4097, b" " * 4097])
def test_a_secret_of_another_length_is_refused_and_not_told(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(ConfigError, match=r"must have 16 to 4,096 bytes; make one with .*openssl rand -hex 32") as why:
        read_shared_secret(written(tmp_path, content), "s")
    assert SECRET[1:].decode() not in str(why.value)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no file .*nowhere; make one with .*openssl rand -hex 32"):
        read_shared_secret(str(tmp_path / "nowhere"), "s")
    with pytest.raises(ConfigError, match=r"is no file|cannot be read"):
        read_shared_secret(str(tmp_path), "s")
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(ConfigError, match="is no file"):
        read_shared_secret(str(tmp_path / "pipe"), "s")
