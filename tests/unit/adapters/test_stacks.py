"""A process can be asked what it does."""

from __future__ import annotations

import asyncio
import threading

from tidelog.adapters.stacks import stacks


async def test_tasks_and_threads_are_shown_where_they_are() -> None:
    over = threading.Event()

    async def waits_for_ever() -> None:
        await asyncio.Event().wait()

    thread = threading.Thread(target=over.wait, name="a-thread")
    thread.start()
    task = asyncio.create_task(waits_for_ever())
    await asyncio.sleep(0)
    shown = stacks()
    over.set()
    thread.join()
    task.cancel()
    assert "waits_for_ever" in shown
    assert "thread a-thread" in shown
