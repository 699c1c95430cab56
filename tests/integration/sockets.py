"""The sockets that this process has open.

A TLS connection that is closed waits for the other end to say goodbye as well. An event loop that ends before leaves
its socket open, and a later test is blamed for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

PATIENCE_S = 30.0


def open_sockets() -> set[str]:
    """Returns the names of the sockets that this process has open."""
    names = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the one that lists the directory
            names.add(str(descriptor.readlink()))
    return {name for name in names if name.startswith("socket:")}


@asynccontextmanager
async def sockets_closed() -> AsyncIterator[None]:
    """Waits at its end until all sockets that were opened inside are closed."""
    before = open_sockets()
    try:
        yield
    finally:
        async with asyncio.timeout(PATIENCE_S):
            while not open_sockets() <= before:
                await asyncio.sleep(0.001)
