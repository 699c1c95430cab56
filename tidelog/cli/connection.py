"""A client's work as a command: an event loop for it, and a broker that answers soon or a clear word that none does."""

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
"""Long enough for a broker that was started with the command before; short enough for somebody who forgot to."""

ENDING: Final = (signal.SIGINT, signal.SIGTERM)
"""The signals that end a command in order: a client is stopped, and the member of a group leaves it."""

T = TypeVar("T")
Client = TypeVar("Client", AdminClient, Consumer, Producer)


class Terminated(SystemExit):
    """A command was ended by SIGTERM, and has ended in order."""

    def __init__(self) -> None:
        super().__init__(EXIT_TERMINATED)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Returns the coroutine's result, from an event loop of its own. Ctrl-C or SIGTERM cancels it, and raises
    `KeyboardInterrupt` or `Terminated` when it has ended; a second one does not wait for that.

    The standard library's loop: uvloop makes every descriptor it watches non-blocking, and commands watch standard
    input and output, which belong to the shell and to other processes as well.
    """
    return asyncio.run(_interruptible(main))


async def _interruptible(main: Coroutine[Any, Any, T]) -> T:
    """Awaits a coroutine that a signal cancels in a turn of the loop. `asyncio.run` does so between any two
    instructions, also where a future that was open a moment ago is given its result, which is a traceback for users.
    """
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
    """What `work` makes of an admin client of the cluster. Raises as `connected`."""

    async def connect_and_work() -> T:
        async with connected(AdminClient(bootstrap, **client_arguments()), bootstrap) as admin:
            return await work(admin)

    return run(connect_and_work())


@asynccontextmanager
async def connected(client: Client, bootstrap: str) -> AsyncIterator[Client]:
    """The client, started, and stopped at the end. Raises `ConnectFailed` if no broker answers within `CONNECT_S`."""
    try:
        async with asyncio.timeout(CONNECT_S):
            await client.start()
    except TimeoutError:
        raise ConnectFailed(f"no broker answers at {bootstrap}") from None
    try:
        yield client
    finally:
        await client.stop()
