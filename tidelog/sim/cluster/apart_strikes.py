"""Faults that damage either the logs or the journals of a Paxos partition, but not both.

A batch is damaged in all logs and intact in the journals, or the other way round. Either is enough to restore it:
a journal gives it to the logs, a log to the journals.

Or one journal loses its last entries and their catalog rows, so that it looks like a shorter journal, or is lost as a
whole. The log beside it stays and shows that this replica has forgotten what it accepted: it must not vote under the
same engine id again. That is done to one journal of a run, and only if a majority of the others remembers.
"""

from __future__ import annotations

import random
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from tidelog.broker.paxos.comparison import ACCOUNTED
from tidelog.model.ids import PartitionId
from tidelog.sim.cluster.blackout import blackout
from tidelog.sim.cluster.copy_strikes import CopyStrikes, damage
from tidelog.sim.cluster.data_rot import durable_files
from tidelog.sim.cluster.good_copies import Copy, catalog_of
from tidelog.sim.cluster.scenario import Effects, Strike
from tidelog.sim.kit import rot
from tidelog.storage.log_manager import JOURNAL, log_directory
from tidelog.storage.rows import ROW_BYTES, Kind, RowCodec

LAST_SHARE = 0.3
"""Share of the damaged batches that are the last of their log, which no later write has marked as durable yet."""


class JournalEnd(NamedTuple):
    """Position where a value of a journal begins, in its segment file and in that segment's catalog (the index of
    entries)."""

    partition_id: PartitionId
    path: str
    position: int
    row_position: int


class ApartStrikes(CopyStrikes):
    """Carries out the faults that damage the logs or the journals of a Paxos partition."""

    def effects(self) -> Effects:
        """Returns the functions that carry out the faults of this class, by the fault's name."""
        return {
            "all logs and no journal": partial(self._hit, is_journal=False),
            "all journals and no log": partial(self._hit, is_journal=True),
            "journal without its end": partial(self._forget, is_all=False),
            "journal missing": partial(self._forget, is_all=True),
        }

    async def _hit(self, strike: Strike, rng: random.Random, *, is_journal: bool) -> None:
        async with blackout(self._world, strike, rng, strike.nodes, written_back=self._world.swarm.nodes):
            drawn = {
                partition_id: self._draw(partition_id, rng, is_journal=is_journal)
                for partition_id in sorted(self._ledger.majorities.logs)
            }
            picked = self._copies.pick(drawn, rng)
            if picked is None:
                return
            partition_id, copies = picked
            for copy in copies:
                damage(self._world, copy.extent, rng)
                self._ledger.rots(copy.node, partition_id)
            self._ledger.guards(partition_id)
            self._world.truth.saw("logs and journals hit apart")

    def _draw(self, partition_id: PartitionId, rng: random.Random, *, is_journal: bool) -> list[Copy]:
        """Returns all copies of one drawn batch, in the logs or in the journals of all replicas."""
        copies = [
            copy
            for node in self._ledger.replicas(partition_id)
            for copy in self._copies.committed(partition_id, node, is_journal=is_journal)
        ]
        batches = sorted({batch for copy in copies for batch in copy.batches})
        if not batches:
            return []
        hit = batches[-1] if rng.random() < LAST_SHARE else rng.choice(batches)
        return [copy for copy in copies if hit in copy.batches]

    # -- one journal -------------------------------------------------------------------------------------------------

    async def _forget(self, strike: Strike, rng: random.Random, *, is_all: bool) -> None:
        node = self._data_rot.holder(strike, rng)
        async with blackout(self._world, strike, rng, (node,), written_back=(node,)):
            medium = self._world.medium(node)
            forgettable = [
                partition_id
                for partition_id in sorted(self._ledger.majorities.logs)
                if self._may_forget(node, partition_id)
            ]
            ends = [end for partition_id in forgettable if (end := self._end(node, partition_id)) is not None]
            if (end := self._world.draw(ends, rng)) is None:
                return
            if is_all:
                rot.lose_directory(medium, f"{log_directory(end.partition_id)}/{JOURNAL}")
            else:
                rot.truncate(medium, end.path, end.position)
                rot.truncate(medium, catalog_of(end.path), end.row_position)
            self._ledger.forgets(end.partition_id, node)
            self._world.truth.note(strike.kind, node, *end)
            self._world.truth.saw("logs and journals hit apart")

    def _may_forget(self, node: int, partition_id: PartitionId) -> bool:
        """Returns True if a node's journal of the partition may be lost: a majority remembers its votes, and its
        batches are intact elsewhere."""
        copies = self._copies.committed(partition_id, node, is_journal=True)
        is_remembered = self._ledger.may_forget(partition_id, node)
        return bool(copies) and is_remembered and self._copies.may_go(partition_id, copies)

    def _end(self, node: int, partition_id: PartitionId) -> JournalEnd | None:
        """Returns the last value of the journal's last segment whose batch has a durable catalog row (index entry) in
        the log, which shows that the journal held the value. Returns None if there is none: a power cut may have taken
        such rows."""
        medium, directory, codec = self._world.medium(node), log_directory(partition_id), RowCodec(partition_id)
        log, journal = durable_files(medium, directory), durable_files(medium, f"{directory}/{JOURNAL}")
        rows = [row for path in log if path.endswith(".catalog") for row in codec.bodies(log[path]) if row is not None]
        positions = {row.position for row in rows if row.kind == Kind.BATCH and row.number >= ACCOUNTED}
        path = max(path for path in journal if path.endswith(".log"))
        end = None
        for slot, (name, row) in enumerate(pairwise(codec.bodies(journal[catalog_of(path)]))):
            if name is None or row is None or name.kind != Kind.NAME:
                continue
            if row.position in positions:
                end = JournalEnd(partition_id, path, row.file_position, slot * ROW_BYTES)
        return end
