"""HTTP as bytes: what a client really sends, also when no well-behaved client would."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

Address = tuple[str, int]
TIMEOUT_S = 20


@dataclass(frozen=True)
class Reply:
    """An answer; header names are lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> int | None:
        """The five-digit error code, None for a success."""
        return self.json()["error_code"] if self.status >= 400 else None

    @property
    def message(self) -> str:
        return str(self.json()["message"])


def head(method: str, target: str, headers: Mapping[str, str]) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", "Host: test", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape")


class Wire:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, address: Address) -> Wire:
        return cls(*await asyncio.open_connection(*address))

    async def __aenter__(self) -> Wire:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    def write_chunk(self, data: bytes) -> None:
        """One chunk of a chunked body; an empty one ends it."""
        self.writer.write(b"%x\r\n%b\r\n" % (len(data), data))

    async def request(
        self, method: str, target: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        sent = dict(headers or {})
        if body is not None:
            sent.setdefault("Content-Length", str(len(body)))
        self.write(head(method, target, sent) + (body or b""))
        return await self.read(method)

    async def read_head(self) -> tuple[int, dict[str, str]]:
        async with asyncio.timeout(TIMEOUT_S):
            text = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        status_line, *lines = text.split("\r\n")[:-2]
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        return int(status_line.split()[1]), headers

    async def read_chunk(self) -> bytes:
        """The next chunk of a chunked answer; empty at its end."""
        async with asyncio.timeout(TIMEOUT_S):
            size = int(await self.reader.readuntil(b"\r\n"), 16)
            data = await self.reader.readexactly(size)
            await self.reader.readexactly(2)
        return data

    async def read(self, method: str = "GET") -> Reply:
        status, headers = await self.read_head()
        body = b""
        if method != "HEAD" and status not in (204, 304):
            if headers.get("transfer-encoding") == "chunked":
                while chunk := await self.read_chunk():
                    body += chunk
            else:
                async with asyncio.timeout(TIMEOUT_S):
                    body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        return Reply(status, headers, body)

    async def is_closed(self) -> bool:
        """True once the broker has closed the connection; nothing more may come before it does."""
        async with asyncio.timeout(TIMEOUT_S):
            try:
                return await self.reader.read(1) == b""
            except ConnectionError:
                return True


async def ask(
    address: Address, method: str, target: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
) -> Reply:
    """One request on a connection of its own."""
    async with await Wire.open(address) as wire:
        return await wire.request(method, target, body, headers)
