"""The tasks of a broker as a whole, by name. If one ends with an error, the broker has to stop.

Tasks of single replicas, which come and go with their roles, are `RoleTasks`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

import structlog

from tidelog.model.errors import BrokerRemoved, TidelogError

logger = structlog.get_logger("tidelog.broker")


class BrokerTasks:
    """The tasks of one broker as a whole, each from `spawn` to `cancel`."""

    def __init__(self) -> None:
        self.failed = asyncio.Event()
        """Set when this broker has to stop: a task has failed, or the broker was removed from its cluster."""
        self.is_removed = False
        """True if `failed` is set because the broker was removed from its cluster, which is no error."""
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Starts a named task, which runs until `cancel`; if it fails, `failed` is set."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        task.add_done_callback(self._ended)
        self._tasks[name] = task

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, BrokerRemoved):
            logger.warning("stopping", reason=str(error))
            self.is_removed = True
            self.failed.set()
        elif isinstance(error, TidelogError):
            logger.critical("stopping", task=task.get_name(), reason=str(error))
            self.failed.set()
        elif error is not None:
            logger.critical("a task of the broker failed; stopping", task=task.get_name(), exc_info=error)
            self.failed.set()

    async def cancel(self, names: Iterable[str]) -> None:
        """Cancels these tasks one after another, as far as they run."""
        for name in names:
            task = self._tasks.pop(name, None)
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def cancel_all(self) -> None:
        """Cancels all tasks that still run."""
        await self.cancel(list(self._tasks))
