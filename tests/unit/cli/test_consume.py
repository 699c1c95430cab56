"""What `tidelog consume` prints waits for its reader, and nothing else waits with it."""

from __future__ import annotations

import asyncio
import os
import sys
import threading

import pytest

from tidelog.cli.consume import _write

BYTES = 1 << 20
"""More than a pipe holds."""
PATIENCE_S = 20.0


async def test_a_reader_that_is_slow_does_not_stop_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    is_alive = threading.Event()
    seen: list[bool] = []

    def read() -> None:
        seen.append(is_alive.wait(PATIENCE_S))  # begins to read when the loop has turned, or when it seems stuck
        left = BYTES
        while left:
            left -= len(os.read(reading, left))

    reader = threading.Thread(target=read)
    reader.start()
    with os.fdopen(writing, "w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        asyncio.get_running_loop().call_soon(is_alive.set)
        await _write(b"x" * BYTES)
        reader.join()
        monkeypatch.undo()
    os.close(reading)
    assert seen == [True]
