"""Groups of asyncio tasks that belong to one owner."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any


async def cancel_all(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancels these tasks, and returns when they have ended, with whatever outcome."""
    cancelled = [*tasks]
    for task in cancelled:
        task.cancel()
    await asyncio.gather(*cancelled, return_exceptions=True)


def raise_failures(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Raises the error of the first of these tasks that has failed, if any has."""
    for task in tasks:
        if task.done() and not task.cancelled():
            task.result()
