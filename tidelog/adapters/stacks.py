"""Stacks of all tasks and threads of a process, as text."""

from __future__ import annotations

import asyncio
import io
import sys
import threading
import traceback
from itertools import islice

TASKS_MAX = 1_000


def stacks() -> str:
    """Returns the stack of each thread, and of up to 1,000 tasks of the running event loop."""
    out = io.StringIO()
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for number, frame in sys._current_frames().items():
        out.write(f"thread {names.get(number, number)}\n")
        traceback.print_stack(frame, file=out)
    tasks = asyncio.all_tasks()
    # Bounded: this runs on the event loop, and a busy broker may have tens of thousands.
    for task in islice(tasks, TASKS_MAX):
        task.print_stack(file=out)
    if len(tasks) > TASKS_MAX:
        out.write(f"and {len(tasks) - TASKS_MAX} tasks more\n")
    return out.getvalue()
