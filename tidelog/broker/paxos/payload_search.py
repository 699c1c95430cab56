"""The search of a replica for accepted values whose payload is damaged here, and which are not known to be chosen.

A damaged entry of a journal is a *faulty* slot: its ballot number and its value's name are there, its payload is gone.
If the value is chosen, a copy arrives with what other replicas have learned. If no replica knows that, none sends it,
and an election that has to know the value (`Awaits`) asks the voters only for what their journals accepted. But the
name contains the payload's digest, which proves any copy, chosen or not. So a replica with a faulty slot asks all other
brokers that hold a replica (`ReadValue`) for a copy in memory, journal or log, whether it campaigns itself or has
promised to a candidate. A voter whose journal is lost may have the only good copy, in its log.

The payload is written anew, and is part of the next promise; the election asks for promises until one has it.

A VOTERS payload can be found in journals only, since no log holds it. A slot that has lost its value's name cannot be
asked for. Each round asks for a few values, one request at a time; the next round continues with the following ones.
"""

from __future__ import annotations

import asyncio

import structlog

from tidelog.broker.consensus.engine import Engine
from tidelog.broker.consensus.payloads import digest_of
from tidelog.broker.paxos.context import PartitionContext
from tidelog.broker.paxos.links import Links
from tidelog.broker.paxos.messages import ReadValue
from tidelog.model.errors import TidelogError
from tidelog.model.ids import PartitionId
from tidelog.model.ports import Buffer
from tidelog.replication.paxos.state import Slot

VALUES_AT_ONCE = 8
"""Values that are requested from all other replicas in one round."""
ANSWER_S_MAX = 5.0
PAUSE_S = 0.2
PAUSE_S_MAX = 1.0
"""Upper bound of T in seconds: rounds are followed by a pause drawn from [T, 2T), and T doubles after each round that
finds nothing."""

logger = structlog.get_logger("tidelog.paxos")


class PayloadSearch:
    """The search of one replica for missing payloads. It begins when the engine meets a faulty slot, and ends when none
    is left."""

    def __init__(self, partition_id: PartitionId, engine: Engine, links: Links, context: PartitionContext) -> None:
        self._partition_id = partition_id
        self._engine = engine
        self._links = links
        self._context = context
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        self._begin = 0
        """Position at which the next round begins."""
        engine.on_missing = self.begin

    def begin(self, position: int) -> None:
        """Begins to search if the slot at `position`, whose payload is missing on this disk, is not known to be
        chosen."""
        slot = self._engine.node.replica.slots.get(position)
        is_searching = self._task is not None and not self._task.done()
        # A learned value comes with what others have learned, and needs no search.
        if slot is not None and not slot.learned and not is_searching and not self._is_closed:
            self._task = self._context.spawn(f"paxos-search-{self._partition_id}", self._run())

    async def close(self) -> None:
        """Cancels the search and waits until it has ended."""
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        pause_s = PAUSE_S
        while slots := self._next_slots():
            self._begin = slots[-1].position + 1
            # All that hold a replica, not the voters alone: one whose journal is lost may have the only good copy in
            # its log.
            for node in self._links.holders():
                await self._ask(node, slots)
            await asyncio.sleep(pause_s * self._context.entropy.uniform(1, 2))
            pause_s = min(2 * pause_s, PAUSE_S_MAX) if all(map(self._is_missing, slots)) else PAUSE_S

    def _next_slots(self) -> list[Slot]:
        """Returns the slots to ask for in the next round: from `_begin` on, and then from the first position again."""
        replica = self._engine.node.replica
        if replica.is_halted:
            return []
        positions = range(replica.applied.position, replica.end)
        sought = [slot for slot in map(replica.slots.get, positions) if slot is not None and _is_sought(slot)]
        # Each round goes on where the last ended: one payload that is lost everywhere must not hold up the others.
        return sorted(sought, key=lambda slot: (slot.position < self._begin, slot.position))[:VALUES_AT_ONCE]

    async def _ask(self, node: int, slots: list[Slot]) -> None:
        """Requests the payloads that are still missing from one broker, until it fails once."""
        for slot in slots:
            if not self._is_missing(slot):
                continue
            partition_id = self._partition_id
            request = ReadValue(
                partition_id.topic_id, partition_id.partition, slot.position, slot.value, self._links.era
            )
            try:
                answer = await self._context.peers.ask(node, request, ANSWER_S_MAX)
            except (TidelogError, TimeoutError, OSError):
                return
            self._take(node, slot, answer.body)

    def _is_missing(self, slot: Slot) -> bool:
        replica = self._engine.node.replica
        now = replica.slots.get(slot.position)
        # Another value may have been accepted there meanwhile; this payload would not be its.
        return not replica.is_halted and now is not None and now.faulty and now.value == slot.value

    def _take(self, node: int, slot: Slot, payload: Buffer) -> None:
        """Writes a received payload into the journal, if it has the value's digest and the slot still misses it."""
        # The digest proves the copy, whoever gave it: a voter or not, whether it shows these records to readers or not.
        # It is written under the number that stands there: that promises nothing, and accepts nothing that was not
        # accepted.
        if self._is_missing(slot) and digest_of(payload) == slot.value.digest:
            logger.info(
                "a damaged entry of a journal is mended from another broker's copy",
                partition=str(self._partition_id),
                position=slot.position,
                broker=node,
            )
            self._engine.restore(slot.position, slot.value, payload)


def _is_sought(slot: Slot) -> bool:
    # A slot that has lost its name cannot be asked for.
    return slot.faulty and not slot.learned and len(slot.value.digest) > 0
