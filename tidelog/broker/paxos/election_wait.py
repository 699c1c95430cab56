"""The wait of an election, as an operator sees it: for a value that may be chosen, and that who has promised has lost.

It may last until a broker is back, so its log names the position, and the voters that may know more, when the wait
begins and when something else is awaited; not with each attempt. Until it is over, it counts among what waits for a
repair.
"""

from __future__ import annotations

import asyncio

import structlog

from tidelog.broker.consensus.engine import Engine
from tidelog.broker.partitions.roles import WaitingElection
from tidelog.broker.paxos.links import Links
from tidelog.model.ids import PartitionId
from tidelog.replication.paxos.events import Awaits

logger = structlog.get_logger("tidelog.paxos")


class ElectionWait:
    """The wait of one replica's elections, if they wait."""

    def __init__(self, partition_id: PartitionId, engine: Engine, links: Links) -> None:
        self._partition_id = partition_id
        self._engine = engine
        self._links = links
        self._told: Awaits | None = None
        self._since_s = 0.0

    @property
    def current(self) -> WaitingElection | None:
        """How much is awaited, for how long, and from whom; None if the engine waits for nothing."""
        positions = len(self._engine.node.unsettled)
        if self._told is None or not positions:
            return None
        waited_s = asyncio.get_running_loop().time() - self._since_s
        return WaitingElection(positions, waited_s, frozenset(self._links.nodes_of(self._told.unheard)))

    def on_awaits(self, awaits: Awaits) -> None:
        """Takes note of what an attempt waits for."""
        # Each attempt says the same again; one line is enough.
        if awaits == self._told:
            return
        if self._told is None:
            self._since_s = asyncio.get_running_loop().time()
        self._told = awaits
        logger.warning(
            "nobody leads before a voter shows what was accepted at this position, which is damaged where it is known",
            partition=str(self._partition_id),
            position=awaits.position,
            unheard_voters=awaits.unheard,
            unheard_brokers=self._links.nodes_of(awaits.unheard),
        )

    def end(self) -> None:
        """Ends the wait, if there is one: somebody is elected, or another is to be."""
        self._told = None
