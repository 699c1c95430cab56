"""A leader's way into its log: proposals go to the engine beside it, whose answer comes at once or not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidelog.broker.consensus.engine import Engine
from tidelog.broker.paxos.links import Links
from tidelog.model.errors import DiskFull, LeaderNotAvailable, Overloaded
from tidelog.model.ports import Buffer
from tidelog.replication.paxos.events import Append, Delete, Proposed, Reason, Refused
from tidelog.replication.paxos.state import Value

ORDER_LEVEL: Final = 3
"""Since which feature level a value may need the log unbroken below it: all replicas must decide the same."""


class Proposer:
    """Proposes for the leaders of one replica, which share it. `lags` counts by node what others' logs lack, and
    `level` is the cluster's feature level."""

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

    def propose(self, count: int, payload: Buffer, *, is_lazy: bool) -> tuple[int, Value]:
        """Proposes batches, already placed, whose bytes never change again. They count when a quorum has them on disk,
        and behind all that was proposed before; or, lazily, when a quorum has them in memory. Returns position and
        value. Raises `LeaderNotAvailable`, `Overloaded` or `DiskFull`: nothing was proposed."""
        # Proposed now, it could not be accepted here, and would fill the window.
        if self._is_out_of_room():
            raise DiskFull("no space is left for this partition; nothing was appended")
        digest = self._engine.payloads.hold(payload)
        # What is chosen in memory can be lost, so nothing may depend on it, nor it on anything.
        is_in_order = not is_lazy and self._level() >= ORDER_LEVEL
        answer = self._engine.propose(Append(count, digest, is_lazy=is_lazy, is_in_order=is_in_order))
        if isinstance(answer, Proposed):
            return answer.position, answer.value
        # Nobody will ask for it: the value was never proposed.
        self._engine.payloads.release(digest)
        if isinstance(answer, Refused) and answer.reason is Reason.WINDOW_FULL:
            raise Overloaded("too much is on its way for this partition; nothing was appended, try again")
        raise LeaderNotAvailable("this broker is not elected now; nothing was appended")

    def propose_deletion(self, offset: int) -> int:
        """Proposes that the records below `offset` go; returns the position. Raises `LeaderNotAvailable`."""
        answer = self._engine.propose(Delete(offset))
        if isinstance(answer, Proposed):
            return answer.position
        raise LeaderNotAvailable("this broker cannot delete anything now; nothing was deleted, try again")

    def next_offset(self) -> int:
        """Returns the coordinator's next offset. Raises `LeaderNotAvailable`."""
        coordinator = self._engine.node.coordinator
        if coordinator is None:
            raise LeaderNotAvailable("this broker is not elected now; nothing was appended")
        return coordinator.next_offset

    def nodes_of(self, engine_ids: tuple[int, ...]) -> list[int]:
        """Returns the brokers that go by these engine ids."""
        return self._links.nodes_of(engine_ids)

    @property
    def live_voters(self) -> list[int]:
        """The brokers of the voters that are live."""
        return self.nodes_of(tuple(self._links.live()))

    @property
    def may_be_lazy(self) -> bool:
        """True if there are so many voters that one may forget what it accepted: of two, each one's loss is a
        majority's."""
        return self._links.voter_count > 2
