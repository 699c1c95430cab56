"""The tasks of the replicas on one broker, by name. Each has an owner, and every failure is reported."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

logger = structlog.get_logger("tidelog.broker")


class RoleTasks:
    """The tasks of one broker's replicas, by name. `failed` is called if a task ended with an unexpected error."""

    def __init__(self, failed: Callable[[], None]) -> None:
        self._failed = failed
        self._tasks: dict[object, asyncio.Task[None]] = {}

    def spawn(self, name: object, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Starts a named task, which runs until it ends or `cancel` ends it."""
        task = asyncio.get_running_loop().create_task(work, name=f"replica-{name}")
        task.add_done_callback(self._ended)
        self._tasks[name] = task
        task.add_done_callback(lambda done: self._tasks.pop(name, None) if self._tasks.get(name) is done else None)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            logger.critical("a replica's task failed", task=task.get_name(), exc_info=task.exception())
            self._failed()

    async def cancel(self, name: object) -> None:
        """Cancels the task of this name, if there is one, and waits for its end."""
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
