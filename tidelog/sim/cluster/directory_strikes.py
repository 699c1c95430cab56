"""Faults that replace directories: one is missing, two are swapped, or an old backup of a data directory is restored.

They happen while all brokers are down, to one of them, and only if the others still have everything: another intact
member of ISR or ELR, or a majority that remembers. Nobody may read the replaced content as that of a valid replica.

A whole data directory is replaced only by a copy that the cluster can recognise as old: it was made before the broker's
last start, or more than half a minute before its end; and in every majority that may form first, one voter knows of a
later start (`witnesses.py`).
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Mapping
from functools import partial

from tidelog.model.ids import PartitionId
from tidelog.sim.cluster.blackout import blackout
from tidelog.sim.cluster.data_rot import DataRot
from tidelog.sim.cluster.ledger import Ledger
from tidelog.sim.cluster.process_strikes import ProcessStrikes
from tidelog.sim.cluster.scenario import Effects, Strike
from tidelog.sim.cluster.witnesses import Witnesses
from tidelog.sim.cluster.world import World
from tidelog.sim.kit import rot
from tidelog.sim.kit.machine import Machine
from tidelog.storage.directory_identity import IDENTITY_NAMES
from tidelog.storage.log_manager import log_directory

COPIED_WHEN_STOPPED = 0.45
COPIED_BEFORE_A_RESTART = 0.9
"""Bound on a fault's `amount`: below it the copy was made before the broker's last start, above it after."""
OLD_S = 31.0
UP_S_MAX = 5.0
LOOK_S = 0.02
RECOGNISED_S_MAX = 10.0
"""Seconds that the simulator waits for a broker to recognise that its directory is old."""
_RENEWALS = re.compile(rb'"renewals":(\d+)')


class DirectoryStrikes:
    """Carries out the faults of directories; a fault's first node is the one whose disk is hit."""

    def __init__(self, world: World, ledger: Ledger, data_rot: DataRot, processes: ProcessStrikes) -> None:
        self._world = world
        self._ledger = ledger
        self._data_rot = data_rot
        self._stop = processes.stop_in_order
        self._witnesses = Witnesses(world)

    def effects(self) -> Effects:
        """Returns the functions that carry out the faults of this class, by the fault's name."""
        return {
            "directory missing": partial(self._rob, count=1),
            "directories swapped": partial(self._rob, count=2),
            "old data directory": self._old,
        }

    # -- partitions --------------------------------------------------------------------------------------------------

    async def _rob(self, strike: Strike, rng: random.Random, *, count: int) -> None:
        """Removes the directory of one partition, or swaps those of two, as `count` says."""
        node = self._data_rot.holder(strike, rng)
        async with blackout(self._world, strike, rng, (node,)):
            robbable = self._robbable(node)
            if len(robbable) < count:
                self._world.truth.saw("fault withheld")
                return
            medium, robbed = self._world.medium(node), rng.sample(robbable, count)
            directories = [log_directory(partition_id) for partition_id in robbed]
            if count == 1:
                rot.lose_directory(medium, *directories)
            else:
                rot.swap_directories(medium, *directories)
            for partition_id in robbed:
                self._ledger.robs(node, partition_id)
            self._world.truth.note(strike.kind, node, *directories)
            self._world.truth.saw("directory robbed")

    def _robbable(self, node: int) -> list[PartitionId]:
        """Returns the partitions whose directory on this node may be taken away, since other replicas hold the
        data."""
        medium = self._world.medium(node)
        return [
            partition_id
            for partition_id in sorted(self._ledger.books)
            if self._ledger.may_rob(node, partition_id) and rot.has_directory(medium, log_directory(partition_id))
        ]

    # -- the whole of it ---------------------------------------------------------------------------------------------

    async def _old(self, strike: Strike, rng: random.Random) -> None:
        node = self._data_rot.holder(strike, rng)
        backup = await self._copy(strike, node)
        await asyncio.sleep(strike.lasts_s)
        async with blackout(self._world, strike, rng, (node,)):
            if not backup or not self._world.may_destroy(node) or not self._witnesses.recognise(node, backup):
                self._world.truth.saw("fault withheld")
                return
            self._world.destroy(node)
            self._ledger.begins_anew(node)
            self._world.machine(node).restore(backup)
            self._world.truth.note("old data directory", node)
            self._world.truth.saw("old directory put back")
        await self._see_recognised(node, _renewals(backup))

    async def _see_recognised(self, node: int, renewals: int) -> None:
        """Waits until the broker recognises its directory as old and starts empty, as it does when other voters know a
        later start: then the count in its identity file exceeds `renewals`, the count before. Counts the event, if it
        happens within `RECOGNISED_S_MAX` seconds."""
        machine = self._world.machine(node)
        medium = machine.disk.medium
        deadline_s = self._world.true_time + RECOGNISED_S_MAX
        while machine.disk.medium is medium and self._world.true_time < deadline_s:
            if _renewals(machine.back_up()) > renewals:
                self._world.truth.saw("old directory recognised")
                return
            await asyncio.sleep(LOOK_S)

    async def _copy(self, strike: Strike, node: int) -> dict[str, bytes]:
        """Returns a copy of a node's files, by path, made before the broker's last start or long ago, so that the
        cluster can recognise it as old. Returns an empty mapping if the broker does not start again in time."""
        keeper = self._world.keepers[node]
        if strike.amount < COPIED_WHEN_STOPPED:
            async with keeper.down(self._stop):
                backup = keeper.machine.back_up(is_live=True)
        elif strike.amount < COPIED_BEFORE_A_RESTART:
            backup = keeper.machine.back_up(is_live=True)
            async with keeper.down(Machine.kill):
                await asyncio.sleep(LOOK_S)
        else:
            backup = keeper.machine.back_up(is_live=True)
            with self._world.silence():  # what is written afterwards is enough, and half a minute of it costs as much
                await asyncio.sleep(OLD_S)
        deadline_s = self._world.true_time + UP_S_MAX
        while not keeper.machine.is_up and self._world.true_time < deadline_s:  # noqa: ASYNC110 - no event says so
            await asyncio.sleep(LOOK_S)
        return backup if keeper.machine.is_up else {}


def _renewals(files: Mapping[str, bytes]) -> int:
    """Returns the largest `renewals` count in the identity files: how often a broker has started empty on this
    directory."""
    matches = (_RENEWALS.search(files.get(name, b"")) for name in IDENTITY_NAMES)
    return max((int(match[1]) for match in matches if match is not None), default=0)
