"""The proposals of a partition's leader to its own engine, which answers at once or not at all.

The batches of a group become one value. They have their offsets already, since the digest that names the value covers
them. Up to `WINDOW` values are in flight at one time. Where the order is not total, a value that is chosen no longer
keeps others back, as far as the hole span and memory go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tidelog.broker.consensus.engine import Engine
from tidelog.broker.consensus.inflight import InFlightProposal, InFlightProposals
from tidelog.broker.partitions.proposals import Proposal
from tidelog.broker.paxos.conflict_keys import conflict_keys
from tidelog.broker.paxos.links import Links
from tidelog.config.schema import TopicConfig
from tidelog.model.batch_header import RecordBatch
from tidelog.model.cluster import TOTAL
from tidelog.model.errors import DiskFull, LeaderNotAvailable, Overloaded
from tidelog.model.ports import Buffer
from tidelog.replication.paxos.events import Append, Delete, Proposed, Reason, Refused
from tidelog.replication.paxos.state import Value

WINDOW: Final = 16
"""Values of produce requests in flight at one time. A DELETE may be in flight besides."""
IN_FLIGHT_BYTES_MAX: Final = 16 << 20
"""Bytes of values up to which a leader proposes more above one that is not chosen yet."""
ORDER_LEVEL: Final = 3
"""The feature level from which on a value may require that all values below it are in the log. All replicas must decide
that alike."""


def window_of(config: TopicConfig) -> int:
    """Returns the number of positions that the leader of a partition with these settings may have in flight."""
    # A TRUNCATE and a DELETE take no producer's slot.
    return (WINDOW if config.commit_order == TOTAL else config.commit_hole_span) + 2


def is_full(in_flight: InFlightProposals[Proposal], config: TopicConfig) -> bool:
    """Returns True while as many values are in flight as may be. Without total order those count that are not chosen,
    as far as the hole span and memory go."""
    if config.commit_order == TOTAL:
        return len(in_flight) >= WINDOW
    is_wide = len(in_flight) >= config.commit_hole_span or in_flight.size >= IN_FLIGHT_BYTES_MAX
    return is_wide or in_flight.unchosen >= WINDOW


class Proposer:
    """Proposes values for the leaders of one replica, which share it. `lags` returns by node id how many records each
    other replica's log lacks, `level` the cluster's feature level."""

    def __init__(
        self,
        engine: Engine,
        links: Links,
        is_out_of_room: Callable[[], bool],
        lags: Callable[[], dict[int, int]],
        level: Callable[[], int],
    ) -> None:
        self.lags = lags
        self._level = level
        self._engine = engine
        self._links = links
        self._is_out_of_room = is_out_of_room

    def propose(self, batches: Sequence[RecordBatch], config: TopicConfig) -> tuple[int, InFlightProposal[Proposal]]:
        """Proposes batches that have their offsets and whose bytes never change again, as one value; returns its
        position and the proposal.

        The value is committed when a quorum has it on disk, or in memory if `ack.durability=replicated`, together with
        all values proposed before it, or, if the order is not total, with those that it conflicts with. Raises
        `LeaderNotAvailable`, `Overloaded` or `DiskFull`: nothing was proposed.
        """
        count = batches[-1].header.next_offset - batches[0].header.base_offset
        payload = batches[0].data if len(batches) == 1 else b"".join(batch.data for batch in batches)
        keys = conflict_keys(batches, config.commit_order)
        # A voter that forgets loses its vote, so of two voters none may be asked to accept in memory alone.
        is_lazy = config.ack_durability == "replicated" and self._may_be_lazy
        position, value = self._propose(count, payload, is_lazy=is_lazy, keys=keys)
        return position, InFlightProposal(value, "replicated" if is_lazy else "fsynced", len(payload))

    def _propose(self, count: int, payload: Buffer, *, is_lazy: bool, keys: frozenset[int] | None) -> tuple[int, Value]:
        # Proposed now, it could not be accepted here, and would fill the window.
        if self._is_out_of_room():
            raise DiskFull("no space is left for this partition; nothing was appended")
        digest = self._engine.payloads.hold(payload)
        # What is chosen in memory can be lost, so nothing may depend on it, nor it on anything.
        is_in_order = keys is None and not is_lazy and self._level() >= ORDER_LEVEL
        answer = self._engine.propose(Append(count, digest, is_lazy=is_lazy, is_in_order=is_in_order, keys=keys))
        if isinstance(answer, Proposed):
            return answer.position, answer.value
        # Nobody will ask for it: the value was never proposed.
        self._engine.payloads.release(digest)
        if isinstance(answer, Refused) and answer.reason is Reason.WINDOW_FULL:
            raise Overloaded("too much is on its way for this partition; nothing was appended, try again")
        raise LeaderNotAvailable("this broker is not elected now; nothing was appended")

    def payload_of(self, position: int, value: Value) -> Buffer | None:
        """Returns the payload of a value in flight; None if no copy on this disk can be read."""
        return self._engine.buffer_of(position, value)

    def propose_deletion(self, offset: int) -> int:
        """Proposes to delete the records below `offset`; returns the position of the DELETE. Raises
        `LeaderNotAvailable`."""
        answer = self._engine.propose(Delete(offset))
        if isinstance(answer, Proposed):
            return answer.position
        raise LeaderNotAvailable("this broker cannot delete anything now; nothing was deleted, try again")

    def next_offset(self) -> int:
        """Returns the offset that the next proposed record gets. Raises `LeaderNotAvailable`."""
        coordinator = self._engine.node.coordinator
        if coordinator is None:
            raise LeaderNotAvailable("this broker is not elected now; nothing was appended")
        return coordinator.next_offset

    def nodes_of(self, engine_ids: tuple[int, ...]) -> list[int]:
        """Returns the node ids of the brokers that have these engine ids."""
        return self._links.nodes_of(engine_ids)

    @property
    def live_voters(self) -> list[int]:
        """Node ids of the voters whose brokers are live."""
        return self.nodes_of(tuple(self._links.live()))

    @property
    def is_only_voter(self) -> bool:
        """True if no other replica has a vote, or may have one by a change of voters that is not applied yet. Then any
        election needs the promise of this replica, which would end its term."""
        node = self._engine.node
        return node.quorum.members == (node.node,)

    @property
    def _may_be_lazy(self) -> bool:
        """True with more than two voters, so that values may be accepted in memory: of two voters, one that forgets
        leaves no majority."""
        return self._links.voter_count > 2
