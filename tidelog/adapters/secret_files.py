"""Files that hold one secret, and that nobody but their owner may read."""

from __future__ import annotations

import os
import stat
from typing import Final

from tidelog.model.errors import InvalidRequest

SECRET_BYTES_MAX: Final = 8_192


class SecretFileRefused(InvalidRequest):
    """The file cannot be read, or others may read it. The message names the file, never what it holds."""


def read_secret(path: str) -> str:
    """Returns what the file holds, without the end of the line. Raises `SecretFileRefused`."""
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(SECRET_BYTES_MAX + 1)
    except OSError as error:
        raise SecretFileRefused(f"cannot read {path}: {error.strerror or error}") from None
    if stat.S_ISREG(mode) and mode & 0o077:
        raise SecretFileRefused(f"others may read {path}, which holds a secret: chmod 600 {path}")
    try:
        secret = data.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise SecretFileRefused(f"{path} holds no text") from None
    if not 0 < len(secret) <= SECRET_BYTES_MAX:
        raise SecretFileRefused(f"{path} is to hold one secret, of up to {SECRET_BYTES_MAX} characters")
    return secret
