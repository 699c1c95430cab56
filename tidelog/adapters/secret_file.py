"""Files with one secret, which only their owner may read. Errors never contain the secret."""

from __future__ import annotations

import os
import stat
from typing import Final

from tidelog.config.errors import ConfigError
from tidelog.model.errors import InvalidRequest

SHARED_BYTES_MIN: Final = 16
SHARED_BYTES_MAX: Final = 4_096
SECRET_BYTES_MAX: Final = 8_192
"""Maximum bytes of a secret; tokens of other issuers are long."""


class SecretFileRefused(InvalidRequest):
    """A file with a secret cannot be read, is invalid, or can be read by others than its owner."""


def read_secret(path: str) -> str:
    """Returns the password or token in a file, without the line end. Raises `SecretFileRefused`."""
    try:
        # Only the line end: a password may begin or end with a space.
        secret = _content(path).decode().rstrip("\r\n")
    except FileNotFoundError:
        raise SecretFileRefused(f"there is no file {path}") from None
    except UnicodeDecodeError:
        raise SecretFileRefused(f"{path} holds no text") from None
    if not 0 < len(secret) <= SECRET_BYTES_MAX:
        raise SecretFileRefused(f"{path} must hold one secret, of up to {SECRET_BYTES_MAX:,} bytes")
    return secret


def read_shared_secret(path: str, setting: str) -> bytes:
    """Returns the secret in a file that several programs share, without leading and trailing whitespace.

    Raises `ConfigError`, naming the `setting` and what to do.
    """
    makes = f"make one with (umask 077; openssl rand -hex 32 > {path}), and copy it to all that share it"
    try:
        content = _content(path)
    except FileNotFoundError:
        raise ConfigError(f"{setting}: there is no file {path}; {makes}") from None
    except SecretFileRefused as error:
        raise ConfigError(f"{setting}: {error}") from None
    # Editors and `echo` add a line end; two programs with the same file must come to the same bytes.
    secret = content.strip()
    if len(content) > SHARED_BYTES_MAX or len(secret) < SHARED_BYTES_MIN:
        raise ConfigError(f"{setting}: {path} must have {SHARED_BYTES_MIN} to {SHARED_BYTES_MAX:,} bytes; {makes}")
    return secret


def _content(path: str) -> bytes:
    """Returns the bytes of a file, cut off above the maximum size of a secret. Raises `SecretFileRefused`, or
    `FileNotFoundError`."""
    try:
        # O_NONBLOCK, or a FIFO would hang the program. Mode and content are of one descriptor: what is judged is what
        # is read.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(SECRET_BYTES_MAX + 1) if stat.S_ISREG(mode) else b""
    except FileNotFoundError:
        raise
    except OSError as error:
        raise SecretFileRefused(
            f"{path} cannot be read ({error.strerror}); it must be a file of the user that runs this program"
        ) from None
    if not stat.S_ISREG(mode):
        raise SecretFileRefused(f"{path} is no file")
    if mode & 0o077:
        raise SecretFileRefused(f"others than its owner may use {path}, so it is no secret; chmod 600 {path}")
    return content
