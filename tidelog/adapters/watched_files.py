"""Detection of changed files: by a look every few seconds, or at once on request (SIGHUP)."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterable
from typing import Final

LOOK_S: Final = 2.0


class WatchedFiles:
    """Watches some files for changes. Created before the files are read."""

    def __init__(self, paths: Iterable[str | None]) -> None:
        """Records the state of the files; None stands for no file."""
        self._paths = tuple(path for path in paths if path is not None)
        self._seen = self._signature()
        self._is_requested = asyncio.Event()

    def look(self) -> None:
        """Requests that the files are read again, changed or not."""
        self._is_requested.set()

    async def are_to_be_read(self) -> bool:
        """Waits for the next look at the files, of which there is one every few seconds. Returns True if they have
        changed since the last look, or `look` was called."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S):
                await self._is_requested.wait()
        is_requested = self._is_requested.is_set()
        # Cleared before the look: who asks during it is served by the next one.
        self._is_requested.clear()
        # Noted before the files are read by the caller, so a change during the reading shows at the next look.
        before, self._seen = self._seen, await asyncio.to_thread(self._signature)
        return is_requested or before != self._seen

    def _signature(self) -> list[tuple[int, int, int] | None]:
        return [signature_of(path) for path in self._paths]


def signature_of(path: str) -> tuple[int, int, int] | None:
    """Returns values that change when a file is written or replaced; None if there is no such file."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    # The inode tells another file that was renamed into this place, perhaps with an older time.
    return status.st_mtime_ns, status.st_size, status.st_ino
