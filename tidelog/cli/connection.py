"""A client's work as a command: an event loop for it, and a broker that answers soon or a clear word that none does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from tidelog.admin import AdminClient
from tidelog.cli.security import client_arguments
from tidelog.consumer import Consumer
from tidelog.producer import Producer
from tidelog.transport.errors import ConnectFailed

CONNECT_S = 3.0
"""Long enough for a broker that was started with the command before; short enough for somebody who forgot to."""

T = TypeVar("T")
Client = TypeVar("Client", AdminClient, Consumer, Producer)


def run(main: Coroutine[Any, Any, T]) -> T:
    """The coroutine's result, from an event loop of its own; Ctrl-C cancels it.

    The standard library's loop: uvloop makes every descriptor it watches non-blocking, and commands watch standard
    input and output, which belong to the shell and to other processes as well.
    """
    return asyncio.run(main)


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
