"""The client of a command: an event loop, and a clear error if no broker responds soon."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from tidelog.admin import AdminClient
from tidelog.cli.security import client_arguments
from tidelog.cli.terminal import EXIT_TERMINATED
from tidelog.consumer import Consumer
from tidelog.producer import Producer
from tidelog.transport.errors import ConnectFailed

CONNECT_S = 3.0
"""Seconds to wait for a connection: long enough for a broker started by the preceding command, short enough if none was
started."""

ENDING: Final = (signal.SIGINT, signal.SIGTERM)
"""The signals that end a command in an orderly way: its client is closed, and a group member leaves the group."""

T = TypeVar("T")
Client = TypeVar("Client", AdminClient, Consumer, Producer)


class Terminated(SystemExit):
    """Raised after a command was ended by SIGTERM in an orderly way."""

    def __init__(self) -> None:
        super().__init__(EXIT_TERMINATED)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine in a new event loop and returns its result. Ctrl-C or SIGTERM cancels it, and raises
    `KeyboardInterrupt` or `Terminated` after its cleanup; a second signal skips the cleanup.

    It uses asyncio's loop: uvloop makes every watched descriptor non-blocking, and commands watch standard input and
    output, which the shell and other processes share.
    """
    return asyncio.run(interruptible(main))


async def interruptible(main: Coroutine[Any, Any, T]) -> T:
    """Awaits a coroutine, and cancels it on a signal within a turn of the event loop: the body of `run`, for callers
    with another loop. `asyncio.run` cancels between any two instructions, also where a future is being resolved, which
    gives the user a traceback."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    came: list[signal.Signals] = []
    assert task is not None

    def interrupt(number: signal.Signals) -> None:
        came.append(number)
        default()
        task.cancel()

    def default() -> None:
        for number in ENDING:
            loop.remove_signal_handler(number)

    for number in ENDING:
        loop.add_signal_handler(number, interrupt, number)
    try:
        return await main
    except asyncio.CancelledError:
        if came:
            raise KeyboardInterrupt if came == [signal.SIGINT] else Terminated from None
        raise
    finally:
        default()


def ask(bootstrap: str, work: Callable[[AdminClient], Coroutine[Any, Any, T]]) -> T:
    """Connects an admin client, and returns the result of `work`. Raises `ConnectFailed` if no broker responds within
    `CONNECT_S`, and the errors of `work`."""

    async def connect_and_work() -> T:
        async with connected(AdminClient(bootstrap, **client_arguments()), bootstrap) as admin:
            return await work(admin)

    return run(connect_and_work())


@asynccontextmanager
async def connected(client: Client, bootstrap: str) -> AsyncIterator[Client]:
    """A context with the started client; stops it at the end. Raises `ConnectFailed` if no broker responds within
    `CONNECT_S`."""
    try:
        async with asyncio.timeout(CONNECT_S):
            await client.start()
    except TimeoutError:
        raise ConnectFailed(f"no broker answers at {bootstrap}") from None
    try:
        yield client
    finally:
        await client.stop()
