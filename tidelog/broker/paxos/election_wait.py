"""The wait of an election for a damaged value that may be chosen, as it is shown to operators.

A candidate that has a majority of promises may still have to wait: a position holds a value that may be chosen, and the
voters that have promised cannot read it. The wait may last until a broker is back, so its log line names the position
and the voters that may have the value, once when the wait begins and once when it changes. Until it is over, it counts
as an open repair.
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
    """The wait of one replica's elections for a damaged value that may be chosen, if there is such a wait."""

    def __init__(self, partition_id: PartitionId, engine: Engine, links: Links) -> None:
        self._partition_id = partition_id
        self._engine = engine
        self._links = links
        self._awaits: Awaits | None = None
        self._since_s = 0.0

    @property
    def current(self) -> WaitingElection | None:
        """The number of awaited positions, the seconds waited, and the brokers that may have the values; None if no
        election waits."""
        positions = len(self._engine.node.unsettled)
        if self._awaits is None or not positions:
            return None
        waited_s = asyncio.get_running_loop().time() - self._since_s
        return WaitingElection(positions, waited_s, frozenset(self._links.nodes_of(self._awaits.unheard)))

    def on_awaits(self, awaits: Awaits) -> None:
        """Notes the position and the voters that an election attempt waits for, and logs them if they have changed."""
        # Each attempt says the same again; one line is enough.
        if awaits == self._awaits:
            return
        if self._awaits is None:
            self._since_s = asyncio.get_running_loop().time()
        self._awaits = awaits
        logger.warning(
            "nobody leads before a voter shows what was accepted at this position, which is damaged where it is known",
            partition=str(self._partition_id),
            position=awaits.position,
            unheard_voters=awaits.unheard,
            unheard_brokers=self._links.nodes_of(awaits.unheard),
        )

    def end(self) -> None:
        """Ends the wait, if there is one: a leader is elected, or another broker is appointed."""
        self._awaits = None
