"""The faults of one machine: it is started a few times, and each time ends in some way; sometimes with a bad disk.

An end comes at a drawn operation of the disk (within a write, between an fsync and its answer, in the midst of
recovery) or at a drawn instant; it is a power cut or a killed process; or the broker stops cleanly. While it is down
after a clean stop, bytes may rot: then everything was durable, so the effect of each damage is known.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

from tidelog.broker.broker import Broker
from tidelog.model.batch_header import iter_batches
from tidelog.model.ids import TopicPartition
from tidelog.sim.kit import rot
from tidelog.sim.kit.faults import NO_FAULTS, FaultRates
from tidelog.sim.kit.history import History
from tidelog.sim.kit.machine import ConnectionLost, Machine, Unreachable
from tidelog.sim.kit.medium import CAPACITY_BYTES, Medium

START_S_MAX = 60.0
BOOTS_MAX = 4
LIFE_S_MAX = 4.0
STRANGER = "topics/" + "5" * 32 + "/0/00000000000000000000.log"
"""Path of a file that belongs to no known topic; the broker must not remove it."""
STRANGE_CONTENT = b"somebody's data"


class Nemesis:
    """Starts and ends one machine several times, with faults."""

    def __init__(self, machine: Machine, history: History, rng: random.Random) -> None:
        self._machine = machine
        self._history = history
        self._rng = rng
        self._rotten: set[TopicPartition] = set()
        self._sync_errors = 0
        self._has_stranger = False

    async def run(self) -> None:
        """Runs all starts and ends; leaves the machine down, on a healthy disk."""
        for _ in range(self._rng.randint(1, 4)):
            await self.boot(is_risky=self._rng.random() < 0.4)
            await self._live()
            if self._rng.random() < 0.5:
                self._plant_stranger()
            await asyncio.sleep(self._rng.random() * 0.3)

    async def boot(self, *, is_risky: bool = False) -> None:
        """Starts the machine; with crashes during recovery if `is_risky`. On a healthy disk all logs must be online."""
        for remaining in reversed(range(BOOTS_MAX)):
            if is_risky and remaining:
                self._machine.disk.crash_at(self._rng.randint(1, 40))
            try:
                async with asyncio.timeout(START_S_MAX):  # a broker that misses its metadata log waits for ever
                    await self._machine.boot()
                await self._machine.call(self._check_online)
            except (ConnectionLost, Unreachable):
                self._history.counters["crash in recovery"] += 1
                await self._end()
            else:
                return

    async def _check_online(self, broker: Broker) -> None:
        for partition in broker.partitions.values():
            if partition.log.offline_reason is not None:
                self._history.violate(f"{partition.topic}-{partition.partition}: {partition.log.offline_reason}")

    # -- lives -------------------------------------------------------------------------------------------------------

    async def _live(self) -> None:
        plans = (self._struck, self._struck, self._struck, self._timed, self._bad_disk, self._full_disk, self._stopped)
        plan = self._rng.choice(plans)
        self._history.note("life", plan.__name__)
        await plan()

    async def _struck(self) -> None:
        self._machine.disk.crash_at(int(10 ** (self._rng.random() * 2.8)))
        await self._pass(LIFE_S_MAX)
        await self._end()

    async def _timed(self) -> None:
        await self._pass(self._rng.random() * LIFE_S_MAX)
        await self._end()

    async def _bad_disk(self) -> None:
        medium = self._machine.disk.medium
        await self._pass(self._rng.random())
        kind = self._rng.choice(("sync_error", "sync_error", "write_error", "read_error"))
        medium.faults = FaultRates(**{kind: self._rng.choice((0.02, 0.1, 0.5))})
        await self._pass(self._rng.random() * 2)
        medium.faults = NO_FAULTS
        await self._pass(self._rng.random() * 0.2)
        await self._end()

    async def _full_disk(self) -> None:
        medium = self._machine.disk.medium
        await self._pass(self._rng.random())
        for _ in range(self._rng.randint(1, 4)):
            medium.capacity_bytes = medium.used_bytes + self._rng.randrange(self._rng.choice((300, 5_000)))
            await self._pass(self._rng.random() * 0.5)
            if self._rng.random() < 0.5:
                break
            medium.capacity_bytes = CAPACITY_BYTES
            await self._pass(self._rng.random() * 0.5)
        await self._end()

    async def _stopped(self) -> None:
        await self._pass(self._rng.random() * 2)
        try:
            names = await self._machine.call(self._topic_names)
        except (ConnectionLost, Unreachable):
            await self._end()
            return
        if self._rng.random() < 0.3:
            self._machine.disk.crash_at(self._rng.randint(1, 30))
        try:
            await self._machine.stop()
        except ConnectionLost:
            self._history.counters["crash in a clean stop"] += 1
            await self._end()
            return
        self._history.counters["clean stop"] += 1
        if self._rng.random() < 0.7:
            self._rot(names)

    async def _topic_names(self, broker: Broker) -> dict[str, str]:
        return {topic.topic_id: name for name, topic in broker.image.topics.items()}

    async def _pass(self, seconds: float) -> None:
        """Returns after so many seconds, or when the machine dies."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._machine.wait_died()

    async def _end(self) -> None:
        medium = self._machine.disk.medium
        medium.faults, medium.capacity_bytes = NO_FAULTS, CAPACITY_BYTES
        self._history.counters["duplicate recognised"] += self._machine.duplicates
        if self._rng.random() < 0.6:
            self._history.lose()
            await self._machine.cut_power()
        else:
            await self._machine.kill()
        if medium.statistics.faults["sync_error"] > self._sync_errors:
            self._sync_errors = medium.statistics.faults["sync_error"]
            self._history.lose()

    # -- damage while it is down -------------------------------------------------------------------------------------

    def _rot(self, names: dict[str, str]) -> None:
        """Damages one file of one partition, each partition once at most: with one damage, each promise still holds.
        `names` are the topics' names by id."""
        medium = self._machine.disk.medium
        paths = [path for path, node in medium.walk().items() if node.data and self._owner(path, names) is not None]
        if not paths:
            return
        path = self._rng.choice(paths)
        owner = self._owner(path, names)
        assert owner is not None
        self._rotten.add(owner)
        position = self._rng.randrange(len(medium.walk()[path].data))
        kind = path.rpartition(".")[2]
        if kind == "log":
            self._history.damage(owner, _offsets_at(medium, path, position))
        if self._rng.random() < 0.7 or kind not in ("log", "catalog"):
            rot.flip_bit(medium, path, position, self._rng.randrange(8))
        else:
            rot.make_unreadable(medium, path, position, 1)
        self._history.counters[f"rot in a {kind if kind in ('log', 'catalog') else 'metainfo copy'}"] += 1
        self._history.note("rot", path, position)

    def _owner(self, path: str, names: dict[str, str]) -> TopicPartition | None:
        """Returns the partition that the file belongs to; None if it is damaged already or is not checked."""
        parts = path.split("/")
        if len(parts) != 4 or parts[1] not in names:
            return None
        owner = TopicPartition(names[parts[1]], int(parts[2]))
        return owner if owner in self._history.watched and owner not in self._rotten else None

    def _plant_stranger(self) -> None:
        rot.plant(self._machine.disk.medium, STRANGER, STRANGE_CONTENT)
        self._has_stranger = True

    def check_stranger(self) -> None:
        """Checks that the broker has not touched the file that belongs to no known topic."""
        node = self._machine.disk.medium.walk().get(STRANGER)
        if self._has_stranger and (node is None or bytes(node.data) != STRANGE_CONTENT):
            self._history.violate("a file of no known topic was touched")


def _offsets_at(medium: Medium, path: str, position: int) -> range:
    """Returns the offsets of the batch at this byte position of a log file."""
    at = 0
    for batch in iter_batches(bytes(medium.walk()[path].data)):
        at += len(batch.data)
        if position < at:
            return range(batch.header.base_offset, batch.header.next_offset)
    return range(0)
