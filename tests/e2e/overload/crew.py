"""The processes that the load comes from: clients must not wait for each other, nor for who judges the brokers."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ProcessPoolExecutor
from inspect import isawaitable
from multiprocessing import get_context
from types import TracebackType
from typing import Final, ParamSpec, Self, TypeVar

import uvloop

P = ParamSpec("P")
R = TypeVar("R")
SIZE: Final = 8
"""Jobs of a case that run at one time."""
WARM_S: Final = 0.2
CROWD_NICE: Final = 19
"""A crowd's own work is not the brokers': where both share processors, the brokers go first."""


class Crew:
    """Processes that carry out jobs, functions of modules, each on an event loop of its own if it is a coroutine.

    `nice` is theirs: with `CROWD_NICE` they take the processor time that nobody else wants, as if they were on the
    clients' own machines.
    """

    def __init__(self, nice: int = 0) -> None:
        self._pool = ProcessPoolExecutor(SIZE, get_context("spawn"), initializer=_prepare, initargs=(nice,))

    def __enter__(self) -> Self:
        for warmed in [self._pool.submit(time.sleep, WARM_S) for _ in range(SIZE)]:
            warmed.result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)

    def start(self, job: Callable[P, Awaitable[R]], *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Begins a job. Its result says what came of it; a case waits for all that it has begun."""
        return self._pool.submit(_run, job, args, kwargs)


def _run(job: Callable[..., Awaitable[R]], args: tuple[object, ...], kwargs: dict[str, object]) -> R:
    async def awaited() -> R:
        found = job(*args, **kwargs)
        assert isawaitable(found)
        return await found

    return uvloop.run(awaited())


def _prepare(nice: int) -> None:
    os.nice(nice)
    may_open_all()


def may_open_all() -> None:
    """Lets this process, and those that it starts, open as many files as it may."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
