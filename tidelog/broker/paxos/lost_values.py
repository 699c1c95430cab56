"""Decides when a replica goes on without the payload of a chosen value, because no replica can read it.

Every replica knows the name of a chosen value, and so its offsets. Its batches may be damaged in all journals and logs
at once: after a power cut that tore the same entry on every disk, or after several faults. If every log waited for
them, no later record could be read, and no replica could lead. So the log marks the offsets as damaged and goes on
(`PartitionLog.append_lost`): reads of them are answered with an error, all other reads as usual.

That needs no agreement: the value itself defines the offsets. If one replica has the batches and another has not, their
logs differ by damage only, which any copy repairs later. So giving up too early costs a repair, and nothing else. Still
a replica that is merely disconnected should not give up. So the value has to be missing for a while, as reported by
every live voter and by a majority (`_is_lacking`).

Only records can be given up this way. A VOTERS value has to be read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Set

import structlog

from tidelog.broker.consensus.engine import Engine
from tidelog.broker.paxos.links import Links
from tidelog.model.ids import PartitionId
from tidelog.replication.paxos.events import Applied
from tidelog.replication.paxos.state import Kind

LACKING_S = 0.5
ABSENT_S = 10.0
LOOK_S = 0.1

logger = structlog.get_logger("tidelog.paxos")


class LostValues:
    """Decides for one replica which chosen values have lost their payload for good; calls `go_on` when `is_lost` should
    be asked again about the same value."""

    def __init__(self, partition_id: PartitionId, engine: Engine, links: Links, go_on: Callable[[], None]) -> None:
        self._partition_id = partition_id
        self._engine = engine
        self._links = links
        self._go_on = go_on
        self._position = -1
        """Position of the value that `is_lost` was last asked about."""
        self._since_s = 0.0
        self._look: asyncio.TimerHandle | None = None

    def is_lost(self, applied: Applied) -> bool:
        """Returns True if the log is to go on without this value, which is next to be delivered and whose payload
        cannot be read here."""
        slot = self._engine.node.replica.slots.get(applied.position)
        # VOTERS have to be read; a payload that is only late is not lost.
        if applied.value.kind is not Kind.APPEND or slot is None or not slot.faulty:
            return False
        now_s = asyncio.get_running_loop().time()
        # The time counts from when it was this value's turn.
        if self._position != applied.position:
            self._position, self._since_s = applied.position, now_s
        if not self._is_lacking(applied.position, now_s - self._since_s):
            self._look_again()
            return False
        value = applied.value
        logger.error(
            "a batch is lost: nobody who can be asked has a copy",
            partition=str(self._partition_id),
            offset=value.base_offset,
            records=value.count,
        )
        return True

    def _is_lacking(self, position: int, waited_s: float) -> bool:
        quorum, live = self._engine.node.quorum, self._links.live()
        lacking = {self._engine.node.node, *self._engine.former_ids} | self._engine.node.lacking(position)
        unsaid = [voter for voter in quorum.members if not self._has_said(voter, lacking)]
        # Every voter whose broker is live, by its own word: it has learned the value, and neither its journal nor its
        # log can give the payload (`Catchup.lacking`). And a majority, this one included: fewer may be cut off from the
        # rest.
        if any(voter in live for voter in unsaid) or not quorum.is_met(lacking):
            return False
        # A broker that is down may be on its way up with the copy. Once the value is given up, and until the copy
        # comes, readers get errors, and the producer is told of a gap in its sequences.
        return waited_s >= (ABSENT_S if unsaid else LACKING_S)

    def _has_said(self, voter: int, lacking: Set[int]) -> bool:
        """Returns True if a voter has reported that it lacks the value's payload, or cannot report it under this id:
        its disk casts no vote under it, or its broker has reported the lack under another id."""
        # A disk that casts no vote under this id answers nothing under it. It says so to the leader alone, so elsewhere
        # the word of its broker under another id will do.
        nodes = self._links.nodes_of(tuple(sorted(lacking)))
        return voter in lacking or self._links.is_silent(voter) or self._links.routes.node_of(voter) in nodes

    def _look_again(self) -> None:
        # Nothing tells when a voter falls silent or the wait is long enough, so it is looked at again.
        if self._look is None:
            self._look = asyncio.get_running_loop().call_later(LOOK_S, self._again)

    def _again(self) -> None:
        self._look = None
        self._go_on()

    def close(self) -> None:
        """Cancels the timer after which a missing value is checked again."""
        if self._look is not None:
            self._look.cancel()
