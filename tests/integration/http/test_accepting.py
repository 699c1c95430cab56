"""A crowd of new connections is taken in by a few turns of the event loop."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack
from typing import cast

import uvloop

from tidelog.broker.http.connection import Connection
from tidelog.broker.http.server import ACCEPTED_AT_ONCE, _bind
from tidelog.model.cluster import Endpoint

CROWD = 8 * ACCEPTED_AT_ONCE


class Counting(asyncio.Protocol):
    """A connection that is made, and no more."""

    made = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        type(self).made += 1


async def turns_to_take_in(crowd: int) -> int:
    bound = await _bind(lambda: cast("Connection", Counting()), Endpoint("127.0.0.1", 0))
    address = bound[0].sockets[0].getsockname()
    for one in bound:
        await one.start_serving()
    with ExitStack() as stack:
        for _ in range(crowd):  # the system completes them, as the loop does not run
            stack.enter_context(socket.create_connection(address))
        turns = 0
        while Counting.made < crowd:
            await asyncio.sleep(0)
            turns += 1
    for one in bound:
        one.close()
        await one.wait_closed()
    return turns


def test_a_crowd_waits_for_a_few_turns_and_not_for_one_each() -> None:
    assert uvloop.run(turns_to_take_in(CROWD)) <= 2 * CROWD // ACCEPTED_AT_ONCE
