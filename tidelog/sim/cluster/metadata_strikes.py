"""Faults that remove the metadata log from a broker's disk while its data stays.

They happen while all brokers are down. One broker finds its cluster again, if a majority of the voters still remembers
everything. If a majority has lost the log, no broker may go on, least of all as a new cluster without topics: they
wait, and work again when their directories are back.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from tidelog.sim.cluster.blackout import blackout
from tidelog.sim.cluster.ledger import Ledger
from tidelog.sim.cluster.scenario import Effects, Strike
from tidelog.sim.cluster.traffic import DATA
from tidelog.sim.cluster.world import World
from tidelog.sim.kit import rot
from tidelog.sim.kit.machine import Machine
from tidelog.sim.kit.medium import Medium

METADATA = "metadata"
"""Prefix of the directories of the metadata log and of any successor that was begun beside it."""
WAITS_S = 4.0
"""Seconds for which brokers without a majority are observed."""


class MetadataStrikes:
    """Carries out the faults that remove the metadata log; a fault's nodes are those whose disks are hit."""

    def __init__(self, world: World, ledger: Ledger) -> None:
        self._world = world
        self._ledger = ledger

    def effects(self) -> Effects:
        """Returns the functions that carry out the faults of this class, by the fault's name."""
        return {"metadata missing": self._missing, "metadata without metainfo": self._without_metainfo}

    async def _missing(self, strike: Strike, rng: random.Random) -> None:
        await self._hit(strike, rng, _remove)

    async def _without_metainfo(self, strike: Strike, rng: random.Random) -> None:
        is_zeroed = rng.random() < 0.5
        await self._hit(strike, rng, lambda medium: _spoil(medium, is_zeroed=is_zeroed))

    async def _hit(self, strike: Strike, rng: random.Random, take: Callable[[Medium], None]) -> None:
        backups = dict[int, dict[str, bytes]]()
        async with blackout(self._world, strike, rng, strike.nodes):
            if len(strike.nodes) == 1 and not self._world.may_destroy(strike.nodes[0]):
                self._world.truth.saw("fault withheld")
                return
            for node in strike.nodes:
                machine = self._world.machine(node)
                rot.write_back(machine.disk.medium)
                backups[node] = machine.back_up()
                take(machine.disk.medium)
                self._world.truth.note(strike.kind, node)
            self._world.truth.saw("metadata lost")
            if len(strike.nodes) == 1:
                self._world.destroy(strike.nodes[0])
                self._ledger.begins_anew(strike.nodes[0])
        if len(strike.nodes) > 1:
            await self._watch()
            await self._undo(strike, rng, backups)

    async def _watch(self) -> None:
        """Checks that no broker becomes ready without the topics of the cluster."""
        await asyncio.sleep(WAITS_S)
        truth = self._world.truth
        topics = {name for name in truth.image.topics if name.startswith(DATA)}
        for node, machine in self._world.running():
            if machine.broker is not None and machine.is_up and topics - set(machine.broker.image.topics):
                truth.violate("one cluster", f"node {node} is ready, and knows nothing of {sorted(topics)}")

    async def _undo(self, strike: Strike, rng: random.Random, backups: dict[int, dict[str, bytes]]) -> None:
        """Restores the removed metadata logs, and removes those that were begun in their place."""
        async with blackout(self._world, strike, rng, strike.nodes, Machine.kill):
            for node, backup in backups.items():
                medium = self._world.medium(node)
                _remove(medium)
                for path, content in backup.items():
                    if path.startswith(METADATA):
                        rot.plant(medium, path, content)


def _remove(medium: Medium) -> None:
    """Removes the metadata log, and any successor begun beside it."""
    for directory in {path.partition("/")[0]: None for path in medium.walk() if path.startswith(METADATA)}:
        rot.lose_directory(medium, directory)


def _spoil(medium: Medium, *, is_zeroed: bool) -> None:
    """Removes both copies of the metadata log's metainfo (the file with a log's identity), or overwrites them with
    zeros."""
    for path, file in medium.walk().items():
        if path.startswith(METADATA) and "metainfo" in path:
            if is_zeroed:
                rot.overwrite(medium, path, 0, bytes(len(file.durable)))
            else:
                rot.lose(medium, path)
