"""Lines from a file, a pipe or a terminal, without blocking the event loop.

A record is the bytes between two newlines, unchanged, so that what was read can be written again. A plain file always
counts as readable and cannot be awaited, so aiofiles reads it in a thread.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import aiofiles

from tidelog.model.errors import TooLarge

CHUNK_BYTES = 256 << 10
LINE_BYTES_MAX = 16 << 20
"""Maximum bytes of a line, more than any record has; input without newlines must not fill the memory."""


class LineReader:
    """Reads the lines of a file descriptor, many at a time, as they arrive."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._woken = asyncio.Event()
        self._is_stopped = False
        self._file: Any = None
        """A second file object on the descriptor, if it is a plain file's."""

    def stop(self) -> None:
        """Ends the reading, at once even if it waits, as if the input ended here."""
        self._is_stopped = True
        self._woken.set()

    async def __aiter__(self) -> AsyncIterator[list[bytes]]:
        """Yields non-empty lists of whole lines. A last line without a newline counts; raises `TooLarge` for a line
        that is too long."""
        rest = b""
        while chunk := await self._chunk():
            lines = chunk.split(b"\n")
            lines[0] = rest + lines[0]
            rest = lines.pop()
            if len(rest) > LINE_BYTES_MAX:
                raise TooLarge(f"a line is longer than {LINE_BYTES_MAX} bytes; records are separated by newlines")
            if lines:
                yield lines
        if rest and not self._is_stopped:
            yield [rest]

    async def _chunk(self) -> bytes:
        """Returns the next bytes; none at the end of the input."""
        loop = asyncio.get_running_loop()
        try:
            loop.add_reader(self._fd, self._woken.set)
        except PermissionError:  # epoll refuses what never makes anybody wait
            return b"" if self._is_stopped else await self._chunk_of_file()
        try:
            await self._woken.wait()
        finally:
            loop.remove_reader(self._fd)
        if self._is_stopped:
            return b""
        self._woken.clear()
        return os.read(self._fd, CHUNK_BYTES)

    async def _chunk_of_file(self) -> bytes:
        if self._file is None:
            self._file = await aiofiles.open(self._fd, "rb", buffering=0, closefd=False)
        chunk: bytes = await self._file.read(CHUNK_BYTES)
        return b"" if self._is_stopped else chunk
