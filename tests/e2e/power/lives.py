"""A cluster lives on disks of its own, with producers at full tilt, through power cut after power cut.

The producers go on through the cuts and repeat what was not answered. After each cut every partition has to take a new
record, and then everything acknowledged since the last look has to be read from the leader and from each replica; at
the end of the life, everything there ever was. Some cuts come before that, while the brokers recover; some leave one or
two of the brokers alone. The brokers are killed first, all at once, so nothing is answered once the power is gone.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import aiohttp

from tests.e2e.asking import JSON_RECORDS
from tests.e2e.power.books import Book, Finding, Wrong
from tests.e2e.power.disks import Disk
from tests.e2e.power.forked_broker import ForkedBroker
from tests.e2e.power.volume import Fault
from tests.nursery import Nursery
from tidelog.admin import AdminClient
from tidelog.model.errors import TidelogError
from tidelog.producer import Producer
from tidelog.testing.commands import HOST, voters_setting
from tidelog.testing.ports import free_ports

PROTOCOLS: Final = ("isr", "paxos")
SETTINGS: Final = {
    "broker.heartbeat.interval.ms": "1000",
    "broker.session.timeout.ms": "20000",
    "controller.quorum.heartbeat.ms": "200",
    "controller.quorum.election.timeout.ms": "1500",
    "controller.lease.ms": "600",
    "log.scrub.period.ms": "3600000",
}
SEGMENT_BYTES: Final = 65_536
WRITERS: Final = 2
"""Producers of a partition at a time, so that a batch may hold several records."""
REQUEST_MS: Final = 3_000
READY_S_MAX: Final = 90.0
QUIET_S: Final = 60.0
"""A reader that shows nothing new for so long is given up, and so is a partition that takes nothing."""
LIES: Final = Fault("lie", "topics/*")
"""The control: disks that say yes and flush nothing that topics hold."""
LYING_QUIET_S: Final = 8.0
PAUSE_S: Final = 0.05
WRITING_S_MAX: Final = 0.5
RECOVERING_S_MAX: Final = 1.5
EARLY: Final = 0.25
"""How many cuts come while the brokers recover from the last one."""
PARTIAL: Final = 0.15
"""How many cuts leave some of the brokers alone."""


class Life:
    """A cluster in `directory`, on these disks."""

    def __init__(
        self,
        directory: Path,
        disks: Mapping[int, Disk],
        nursery: Nursery,
        rng: random.Random,
        *,
        partitions: int,
        quiet_s: float = QUIET_S,
        told: Callable[[int], None] = lambda cuts: None,
    ) -> None:
        """`told` is called with the number of disks that were cut, at each cut."""
        self.stakes: Counter[str] = Counter()
        self.disk_cuts = 0
        self.ages_s: list[float] = []
        """How long before each cut the last acknowledgement was."""
        self.errors: Counter[str] = Counter()
        self._directory, self._disks, self._rng = directory, disks, rng
        self._quiet_s, self._told = quiet_s, told
        self._books = [Book(protocol, partition) for protocol in PROTOCOLS for partition in range(partitions)]
        self._brokers = _brokers(directory, sorted(disks), nursery)
        self._positions: dict[tuple[Book, str], int] = {}
        self._acknowledged_s = 0.0

    @property
    def findings(self) -> list[Finding]:
        """Returns all that is wrong."""
        return [finding for book in self._books for finding in book.findings]

    @property
    def acknowledged(self) -> int:
        """Returns how many records were acknowledged."""
        return sum(len(book.acknowledged) for book in self._books)

    # -- life --------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Life:
        await self._start(self._brokers)
        self._bootstrap = ",".join(broker.url for broker in self._brokers.values())
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10))
        self._writers: list[asyncio.Task[None]] = []
        self._producer: Producer | None = None
        async with AdminClient(self._bootstrap) as admin:
            for protocol in PROTOCOLS:
                configs = {"commit.protocol": protocol, "segment.bytes": str(SEGMENT_BYTES)}
                await admin.create_topic(
                    protocol,
                    partitions=len(self._books) // len(PROTOCOLS),
                    replication_factor=len(self._disks),
                    configs=configs,
                )
        self._producer = await Producer(self._bootstrap, linger_ms=0, request_timeout_ms=REQUEST_MS).__aenter__()
        self._writers = [asyncio.create_task(self._write(book)) for book in self._books for _ in range(WRITERS)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for writer in self._writers:
            writer.cancel()
        await asyncio.gather(*self._writers, return_exceptions=True)
        self._kill(self._brokers)
        await self._http.close()
        if self._producer is not None:
            with suppress(TimeoutError, TidelogError):
                async with asyncio.timeout(1):
                    await self._producer.__aexit__(asyncio.CancelledError, None, None)

    async def play(self, cuts: int) -> None:
        """Cuts the power so often, until something is wrong."""
        await self.look()
        for number in range(cuts):
            await asyncio.sleep(self._rng.uniform(0.0, WRITING_S_MAX))
            await self.cut()
            while self._rng.random() < EARLY:
                await self.cut(early=True)
            await self.look(whole=number == cuts - 1)
            if self.findings:
                return

    async def cut(self, *, early: bool = False) -> None:
        """Cuts the power of some or of all, and starts the brokers again, without waiting for them."""
        if early:
            await asyncio.sleep(self._rng.uniform(0.0, RECOVERING_S_MAX))
        nodes = self._rng.sample(sorted(self._disks), len(self._disks))
        if self._rng.random() < PARTIAL:
            nodes = nodes[: self._rng.randrange(1, len(nodes))] if len(nodes) > 1 else nodes
        struck = {node: self._brokers[node] for node in nodes}
        self._kill(struck)
        self.ages_s.append(time.monotonic() - self._acknowledged_s)
        for node in nodes:
            self._disks[node].begin_cut()
        for node in nodes:
            self.stakes.update(self._disks[node].end_cut())
        self.disk_cuts += len(nodes)
        self._told(len(nodes))
        for broker in struck.values():
            broker.begin()

    async def look(self, *, whole: bool = False) -> None:
        """Waits until every partition takes records, and reads what was acknowledged before; or all there is."""
        await self._ready(self._brokers)
        lasts = {book: book.last_offset for book in self._books}
        if whole:
            self._positions.clear()
        await asyncio.gather(*(self._take_one(book) for book in self._books))
        await asyncio.gather(*(self._read(book, name, lasts[book]) for book in self._books for name in self._readers()))

    def keep(self, directory: Path) -> None:
        """Copies the disks, as they are and as the last cut has left them."""
        for node, disk in self._disks.items():
            disk.dump(directory / "after-cut" / f"broker-{node}" / "data", after_cut=True)
            disk.dump(directory / "now" / f"broker-{node}" / "data")
            shutil.copy(self._brokers[node].directory / "stderr.log", directory / f"broker-{node}.log")

    # -- brokers -----------------------------------------------------------------------------------------------------

    async def _start(self, brokers: Mapping[int, ForkedBroker]) -> None:
        for broker in brokers.values():
            broker.begin()
        await self._ready(brokers)

    async def _ready(self, brokers: Mapping[int, ForkedBroker]) -> None:
        deadline_s = time.monotonic() + READY_S_MAX
        for broker in brokers.values():
            if not broker.is_ready:
                await asyncio.to_thread(broker.wait_until_ready, deadline_s)

    def _kill(self, brokers: Mapping[int, ForkedBroker]) -> None:
        for broker in brokers.values():
            broker.strike()
        for broker in brokers.values():
            broker.kill()

    # -- writing -----------------------------------------------------------------------------------------------------

    async def _write(self, book: Book) -> None:
        assert self._producer is not None
        while True:
            value = book.next_value()
            try:
                receipt = await self._producer.send_and_wait(
                    book.topic, f'"{value}"'.encode(), partition=book.partition
                )
            except TidelogError as error:
                self.errors[type(error).__name__] += 1
                await asyncio.sleep(PAUSE_S)
                continue
            assert receipt.offset is not None
            book.acknowledge(receipt.offset, value)
            self._acknowledged_s = time.monotonic()

    async def _take_one(self, book: Book) -> None:
        before, deadline_s = len(book.acknowledged), time.monotonic() + self._quiet_s
        while len(book.acknowledged) == before:
            if time.monotonic() > deadline_s:
                book.find(Wrong.UNREAD, book.last_offset + 1, "nobody, as the partition takes no record; it")
                return
            await asyncio.sleep(PAUSE_S)

    # -- reading -----------------------------------------------------------------------------------------------------

    def _readers(self) -> list[str]:
        return ["leader", *map(str, self._brokers)]

    async def _read(self, book: Book, reader: str, last: int) -> None:
        """Reads up to an offset. What can't be read, though all others wait for it, is missing."""
        position = self._positions.get((book, reader), 0)
        new_s = time.monotonic()
        while position <= last:
            found = await self._ask(book, reader, position)
            after = book.look(position, found, f"broker {reader}" if reader.isdigit() else "the leader")
            if after > position:
                position, new_s = after, time.monotonic()
            elif time.monotonic() - new_s > self._quiet_s:
                for offset in range(position, last + 1):
                    if offset in book.acknowledged:
                        book.find(Wrong.UNREAD, offset, reader)
                position = last + 1
            else:
                await asyncio.sleep(PAUSE_S)
        self._positions[book, reader] = position

    async def _ask(self, book: Book, reader: str, position: int) -> Sequence[tuple[int, str]]:
        """Returns some records, or none if they can't be had now."""
        node, local = (int(reader), "&replica=local") if reader.isdigit() else (self._rng.choice([*self._brokers]), "")
        path = f"topics/{book.topic}/partitions/{book.partition}/records?offset={position}{local}"
        with suppress(aiohttp.ClientError, TimeoutError):
            async with self._http.get(
                f"{self._brokers[node].url}/{path}", headers={"Accept": JSON_RECORDS, "Content-Type": JSON_RECORDS}
            ) as answer:
                if answer.status == 200:
                    return [(record["offset"], record["value"]) for record in await answer.json(content_type=None)]
        return []


def _brokers(directory: Path, nodes: Sequence[int], nursery: Nursery) -> dict[int, ForkedBroker]:
    ports = [f"{HOST}:{port}" for port in free_ports(2 * len(nodes))]
    http, peer = ports[: len(nodes)], ports[len(nodes) :]
    settings = {"cluster.voters": voters_setting(peer), **SETTINGS}
    return {
        node: ForkedBroker(
            nursery, node, directory / f"broker-{node}", settings, http=http[node - 1], peer=peer[node - 1]
        )
        for node in nodes
    }
