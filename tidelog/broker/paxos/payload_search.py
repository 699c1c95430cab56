"""How a replica gets back what it has accepted, and can neither read nor know to be chosen.

A damaged entry of a journal leaves a slot that is faulty: its number and its name stand, its payload is gone. If the
value is chosen, a copy comes with what others have learned. Where nobody knows that, nobody sends one unasked, and an
election that has to know it (`Awaits`) asks those who vote for nothing but what their journals accepted. But the name
has the payload's digest, which proves any copy: of a voter or not, chosen or not, shown to readers or hidden from them.
So while it has such a slot, every replica, whether it campaigns or has promised to one that does, asks all other
brokers that hold one (`ReadValue`): for what is in memory, in the journal or in the log there. A voter whose journal is
lost may have the only good copy, in its log.

What comes is written anew, and shown by the next promise; the election asks for promises until one does.

VOTERS may come as well, but from journals alone, since no log holds them. A slot that has lost its name cannot be asked
for. Nothing is asked while no slot is faulty; one question at a time, of a few values each round, then of the next.
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

ASKED_MAX = 8
"""Values that all others are asked for in one round."""
ANSWER_S_MAX = 5.0
PAUSE_S = 0.2
PAUSE_S_MAX = 1.0
"""T: after a round, for a time drawn from [T, 2T); longer after each round that brings nothing."""

logger = structlog.get_logger("tidelog.paxos")


class PayloadSearch:
    """The search of one replica, which begins when its engine misses a payload, and ends when none is missing."""

    def __init__(self, partition_id: PartitionId, engine: Engine, links: Links, context: PartitionContext) -> None:
        self._partition_id = partition_id
        self._engine = engine
        self._links = links
        self._context = context
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        self._begin = 0
        """The position that the next round begins with."""
        engine.on_missing = self.begin

    def begin(self, position: int) -> None:
        """Begins to search if a payload that is missing on this disk may be needed by an election."""
        slot = self._engine.node.replica.slots.get(position)
        is_searching = self._task is not None and not self._task.done()
        # A learned value comes with what others have learned, and needs no search.
        if slot is not None and not slot.learned and not is_searching and not self._is_closed:
            self._task = self._context.spawn(f"paxos-search-{self._partition_id}", self._run())

    async def close(self) -> None:
        """Searches no more."""
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        pause_s = PAUSE_S
        while slots := self._wanted():
            self._begin = slots[-1].position + 1
            # All that hold a replica, not the voters alone: one whose journal is lost may have the only good copy in
            # its log.
            for node in self._links.holders():
                await self._ask(node, slots)
            await asyncio.sleep(pause_s * self._context.entropy.uniform(1, 2))
            pause_s = min(2 * pause_s, PAUSE_S_MAX) if all(map(self._is_missing, slots)) else PAUSE_S

    def _wanted(self) -> list[Slot]:
        """Returns the slots of the next round; behind the last position, from the first on again."""
        replica = self._engine.node.replica
        if replica.is_halted:
            return []
        positions = range(replica.applied.position, replica.end)
        sought = [slot for slot in map(replica.slots.get, positions) if slot is not None and _is_sought(slot)]
        # Each round goes on where the last ended: one payload that is lost everywhere must not hold up the others.
        return sorted(sought, key=lambda slot: (slot.position < self._begin, slot.position))[:ASKED_MAX]

    async def _ask(self, node: int, slots: list[Slot]) -> None:
        """Asks one broker for the payloads that are still missing; nothing more after it has failed once."""
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
        """Takes an answer, if it is a copy: meanwhile another value may stand there, or a copy have come."""
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
