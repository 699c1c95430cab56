"""Lines from a file, a pipe or a terminal, without stopping the event loop.

A record is what stands between two newlines, byte for byte; nothing else is stripped, so what was read can be written
again. A plain file cannot be waited for, since it always counts as readable, so aiofiles reads it in a thread.
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
"""A line longer than any record can be; input without newlines must not fill the memory."""


class LineReader:
    """The lines of a file descriptor, many at a time, as they come."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._woken = asyncio.Event()
        self._is_stopped = False
        self._file: Any = None
        """The descriptor once more, if it is a plain file's."""

    def stop(self) -> None:
        """Ends the reading as if the input ended here, at once even if it waits."""
        self._is_stopped = True
        self._woken.set()

    async def __aiter__(self) -> AsyncIterator[list[bytes]]:
        """Whole lines, never none. A last line without a newline counts; raises `TooLarge` for one without an end."""
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
        """Some bytes; none at the end."""
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
