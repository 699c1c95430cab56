"""A program that is node 2 until it is killed: prints its peer port, and answers nobody."""

from __future__ import annotations

import asyncio

import msgspec

from tidelog.adapters.system import SystemClock, SystemEntropy
from tidelog.adapters.tcp_network import TcpNetwork
from tidelog.transport.peer import Answer, Hello, PeerNode


class Hold(msgspec.Struct, tag=True):
    """What it is asked."""


class Holding:
    async def handle(self, caller: Hello, message: msgspec.Struct, payload: memoryview) -> Answer:
        await asyncio.sleep(3600)
        return Answer()

    def notified(self, caller: Hello, message: msgspec.Struct, payload: memoryview) -> None:
        """Nobody notifies it."""


async def main() -> None:
    hello = Hello(2, "child", "c")
    node = PeerNode(TcpNetwork(), lambda: hello, [Hold], Holding(), SystemClock(), SystemEntropy())
    print((await node.listen("127.0.0.1", 0))[1], flush=True)  # noqa: T201 - a program
    await asyncio.sleep(3600)


if __name__ == "__main__":
    asyncio.run(main())
