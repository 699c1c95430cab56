"""A client of REST consumers, as curl is one: it knows paths and bodies, and nothing else."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import pytest

from tests.integration.http.conftest import Site, simulated
from tests.integration.http.wire import Reply

CONTROL = {"Content-Type": "application/vnd.kafka.v2+json"}
AS_JSON = {"Accept": "application/vnd.kafka.json.v2+json"}
Ask = Callable[[str, str, bytes | None, Mapping[str, str] | None], Awaitable[Reply]]


class Client:
    """Of one instance. What goes wrong is returned by `send`, and fails in everything else."""

    def __init__(self, ask: Ask, name: str = "i", group: str = "g") -> None:
        self._ask = ask
        self.group = f"/consumers/{group}"
        self.name = name
        self.path = f"{self.group}/instances/{name}"

    async def send(self, method: str, path: str, document: object = None, **headers: str) -> Reply:
        """To a path of the instance; a path that begins with / is one of the broker."""
        body = None if document is None else json.dumps(document).encode()
        given = {**({} if body is None else CONTROL), **headers}
        return await self._ask(method, path if path.startswith("/") else f"{self.path}/{path}", body, given)

    async def done(self, method: str, path: str, document: object = None) -> Any:
        """The answer's document; None if it has none."""
        reply = await self.send(method, path, document)
        assert reply.status < 300, reply.body
        return reply.json() if reply.status == 200 else None

    async def create(self, **settings: object) -> Client:
        wanted = {"format": "json", "auto.offset.reset": "earliest"} | {
            key.replace("_", "."): value for key, value in settings.items()
        }
        created = await self.done("POST", self.group, {"name": self.name, **wanted})
        assert created["instance_id"] == self.name
        return self

    async def subscribe(self, *topics: str) -> None:
        await self.done("POST", "subscription", {"topics": topics or ["t"]})

    async def assign(self, *partitions: int) -> None:
        await self.done("POST", "assignments", {"partitions": named(*partitions)})

    async def assigned(self) -> list[int]:
        return [one["partition"] for one in (await self.done("GET", "assignments"))["partitions"]]

    async def read(self, query: str = "") -> list[Any]:
        """Records."""
        found = await self.done("GET", f"records{query}")
        assert isinstance(found, list)
        return found

    async def values(self, query: str = "") -> list[Any]:
        return [record["value"] for record in await self.read(query)]

    async def commit(self, *offsets: Mapping[str, object], query: str = "") -> None:
        document = {"offsets": offsets} if offsets else None
        assert await self.done("POST", f"offsets{query}", document) == []

    async def committed(self, *partitions: int) -> dict[int, int]:
        found = await self.done("GET", "offsets", {"partitions": named(*partitions or (0,))})
        return {one["partition"]: one["offset"] for one in found["offsets"]}

    async def delete(self) -> None:
        await self.done("DELETE", self.path)


def named(*partitions: int, **more: object) -> list[dict[str, object]]:
    return [{"topic": "t", "partition": partition, **more} for partition in partitions]


@pytest.fixture
async def site(request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    """A broker with topic `t` of one partition."""
    async with simulated(settings=getattr(request, "param", {})) as made:
        yield made


@pytest.fixture
def client(site: Site) -> Client:
    return Client(site.ask)
