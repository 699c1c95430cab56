"""A client's work as a command: an event loop for it, and a broker that answers soon or a clear word that none does."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final, TypedDict, TypeVar

from tidelog.admin import AdminClient
from tidelog.consumer import Consumer
from tidelog.producer import Producer
from tidelog.transport.errors import ConnectFailed

CONNECT_S = 3.0
"""Long enough for a broker that was started with the command before; short enough for somebody who forgot to."""

LOGIN_VARIABLE: Final = "TIDELOG_TOKEN_FILE"

T = TypeVar("T")
Client = TypeVar("Client", AdminClient, Consumer, Producer)


class Login(TypedDict, total=False):
    """Parameters of clients that say who is calling."""

    token_file: str
    sasl_username: str
    sasl_password_file: str


def login() -> Login:
    """Returns what the environment says of who is calling: `TIDELOG_TOKEN_FILE`, or `TIDELOG_USERNAME` with
    `TIDELOG_PASSWORD_FILE`."""
    found: Login = {}
    if token_file := os.environ.get(LOGIN_VARIABLE):
        found["token_file"] = token_file
    if username := os.environ.get("TIDELOG_USERNAME"):
        found["sasl_username"] = username
    if password_file := os.environ.get("TIDELOG_PASSWORD_FILE"):
        found["sasl_password_file"] = password_file
    return found


def run(main: Coroutine[Any, Any, T]) -> T:
    """The coroutine's result, from an event loop of its own; Ctrl-C cancels it.

    The standard library's loop: uvloop makes every descriptor it watches non-blocking, and commands watch standard
    input and output, which belong to the shell and to other processes as well.
    """
    return asyncio.run(main)


def ask(bootstrap: str, work: Callable[[AdminClient], Coroutine[Any, Any, T]]) -> T:
    """What `work` makes of an admin client of the cluster. Raises as `connected`."""

    async def connect_and_work() -> T:
        async with connected(AdminClient(bootstrap, **login()), bootstrap) as admin:
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
