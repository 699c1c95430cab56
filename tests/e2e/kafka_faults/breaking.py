"""Leaders of partitions are killed, paused and cut off, one at a time, and what that did to writers and groups."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from tests.e2e.kafka_faults.books import At, Book, Group
from tidelog.admin import AdminClient
from tidelog.model.errors import TidelogError
from tidelog.testing import LocalCluster, PrivateNetwork
from tidelog.testing.faults import Fault, Faults

KINDS: Final = ("killed", "paused", "cut off")
DOWN_S: Final = (1.0, 6.0)
CALM_S: Final = 1.0
LOOK_S: Final = 0.02
SETTLED_S_MAX: Final = 60.0
IN_SYNC_S_MAX: Final = 60.0
NEVER: Final = float("inf")


@dataclass(slots=True)
class Blow:
    """Holds one fault and what clients noticed of it, in seconds."""

    fault: Fault
    gaps_s: dict[At, float] = field(default_factory=dict)
    """The longest time without an acknowledgement of each partition that the victim led."""
    settled_s: dict[str, float] = field(default_factory=dict)
    """From the end of the fault until the writers, and each group, have gone on in every partition."""


class Breaker:
    """Breaks a cluster whose writers keep `books`, and whose `groups` read them."""

    def __init__(
        self, cluster: LocalCluster, network: PrivateNetwork | None, books: Sequence[Book], groups: Sequence[Group]
    ) -> None:
        self.blows: list[Blow] = []
        self._books, self._groups = books, groups
        self._faults = Faults(cluster, network)
        self._kinds = [kind for kind in KINDS if kind in self._faults.kinds]

    async def run(self, admin: AdminClient, seconds: float, seed: int, told: Callable[[Blow], None]) -> None:
        """Breaks one leader after the other, and waits after each until all have gone on and all replicas are in
        sync. Raises `BrokerFailed`, and `TimeoutError` if they do not even begin."""
        rng, end_s = random.Random(seed), time.monotonic() + seconds
        if NEVER in (await self._settled(SETTLED_S_MAX)).values():
            raise TimeoutError("the clients do not come together where nothing is broken")
        while True:
            for kind in rng.sample(self._kinds, len(self._kinds)):
                book, down_s = rng.choice(self._books), rng.uniform(*DOWN_S)
                await self._in_sync(admin)
                await asyncio.sleep(CALM_S)
                if time.monotonic() >= end_s:
                    return
                told(await self._strike(admin, kind, book.at, down_s))

    async def _strike(self, admin: AdminClient, kind: str, at: At, down_s: float) -> Blow:
        leaders = await self._leaders(admin)
        blow = Blow(Fault(kind, (leaders[at],), down_s))
        begun_s = time.monotonic()
        await self._faults.inflict(blow.fault)
        blow.settled_s = await self._settled(SETTLED_S_MAX)
        now_s = time.monotonic()
        led = [book for book in self._books if leaders[book.at] == leaders[at]]
        blow.gaps_s = {book.at: book.gap_s(begun_s, now_s) for book in led}
        self.blows.append(blow)
        return blow

    async def _settled(self, seconds_max: float) -> dict[str, float]:
        """Returns after how many seconds each has gone on; those that have not in time, `NEVER`."""
        begun_s = time.monotonic()
        before = {book.at: book.highest for book in self._books}
        waited_for: dict[str, Callable[[], bool]] = {
            "the writers": lambda: all(book.highest > before[book.at] for book in self._books)
        }
        for group in self._groups:
            waited_for[group.name] = lambda group=group: group.has_passed(before)  # type: ignore[misc]  # a default binds it
        found: dict[str, float] = {}
        while len(found) < len(waited_for) and time.monotonic() - begun_s < seconds_max:
            for name, has_gone_on in waited_for.items():
                if name not in found and has_gone_on():
                    found[name] = time.monotonic() - begun_s
            await asyncio.sleep(LOOK_S)
        return {name: found.get(name, NEVER) for name in waited_for}

    async def _leaders(self, admin: AdminClient) -> dict[At, int]:
        topics = sorted({book.at.topic for book in self._books})
        described = [(topic, await admin.describe_topic(topic)) for topic in topics]
        return {At(topic, one.partition_id): one.leader for topic, found in described for one in found.partitions}

    async def _in_sync(self, admin: AdminClient) -> None:
        """Waits until all replicas are, or for so long that it does not matter."""
        topics = sorted({book.at.topic for book in self._books})
        with suppress(TimeoutError):
            async with asyncio.timeout(IN_SYNC_S_MAX):
                while True:
                    with suppress(TidelogError):
                        found = [one for topic in topics for one in (await admin.describe_topic(topic)).partitions]
                        if all(len(one.isr) == len(one.replicas) for one in found):
                            return
                    await asyncio.sleep(10 * LOOK_S)
