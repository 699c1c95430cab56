"""Addresses that do not answer, each in its own way."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing

import pytest


def url(listening: socket.socket) -> str:
    return f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address whose port is taken, and where nobody listens."""
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        yield url(taken)


@pytest.fixture
def swallowing() -> Iterator[str]:
    """An address whose connections nobody accepts: the kernel takes what is sent, and nothing ever comes back."""
    with closing(socket.socket()) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(64)
        yield url(listening)


@pytest.fixture
def dropping() -> Iterator[str]:
    """An address whose backlog is full: not even the connection comes about."""
    with closing(socket.socket()) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        address = listening.getsockname()
        waiting = []
        for _ in range(4):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(address)
            waiting.append(one)
        yield url(listening)
        for one in waiting:
            one.close()


@pytest.fixture(params=["nobody", "swallowing", "dropping"])
def silent(request: pytest.FixtureRequest) -> str:
    address: str = request.getfixturevalue(request.param)
    return address
