"""Secrets that a program is given as files, which nobody but its user may read."""

from __future__ import annotations

import os
import stat

from tidelog.config.errors import ConfigError

SECRET_BYTES_MIN = 16
SECRET_BYTES_MAX = 4096


def read_secret(path: str, setting: str) -> bytes:
    """Reads a secret, without the spaces and line ends around it. No error says anything of it.

    Raises `ConfigError`, naming the `setting` and what to do, for a file that is missing, that is none, that others may
    read, or whose secret is too short or too long.
    """
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(SECRET_BYTES_MAX + 1) if stat.S_ISREG(mode) else b""
    except FileNotFoundError:
        raise ConfigError(f"{setting}: there is no file {path}; {_make(path)}") from None
    except OSError as error:
        raise ConfigError(
            f"{setting}: {path} cannot be read ({error.strerror}); it must be a file of the user that runs this program"
        ) from None
    if not stat.S_ISREG(mode):
        raise ConfigError(f"{setting}: {path} is no file; {_make(path)}")
    if mode & 0o077:
        raise ConfigError(f"{setting}: others than its owner may use {path}, so it is no secret; chmod 600 {path}")
    secret = content.strip()
    if len(content) > SECRET_BYTES_MAX or len(secret) < SECRET_BYTES_MIN:
        raise ConfigError(
            f"{setting}: {path} must have {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX:,} bytes; {_make(path)}"
        )
    return secret


def _make(path: str) -> str:
    return f"make one with (umask 077; openssl rand -hex 32 > {path}), and copy it to all that share it"
