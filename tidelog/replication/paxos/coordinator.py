"""The coordinator (Multi-Paxos' leader) writes to a log until some node has a promise for a larger proposal number.

    ELECTING --barrier applied--> ELECTED --a larger number--> lost
       |__________________a larger number______________________^

ELECTING is one promise phase (`fill.py`): a quorum's promise, then every open position is proposed again or filled,
together with this coordinator's first own value, a *barrier*, behind them all. When the barrier is applied here,
everything before it is applied, so the next offset is known, and clients' values may follow: up to `window` positions
in flight, each chosen independently, and acknowledged in order, or as far as their keys need it (`releases.py`).

A larger number shows in a rejection, in a learned slot with another value, and in the log itself: another node's value
is at a position where this coordinator proposed, or its own value turns out void.
"""

from __future__ import annotations

from tidelog.replication.paxos.apply import Verdict
from tidelog.replication.paxos.events import (
    Action,
    Append,
    Applied,
    Chosen,
    Delete,
    Elected,
    Proposed,
    Reason,
    Refused,
    Released,
    Truncate,
)
from tidelog.replication.paxos.proposer import Proposer
from tidelog.replication.paxos.releases import Releases
from tidelog.replication.paxos.replica import Replica
from tidelog.replication.paxos.state import WITH_PAYLOAD, Kind, Value
from tidelog.replication.paxos.term import Term


class LogCoordinator(Proposer):
    """The coordinator of a log (Mesos' Coordinator), with up to `window` positions in flight."""

    def __init__(self, number: int, term: Term, replica: Replica, *, window: int) -> None:
        super().__init__(number, term, replica)
        assert window >= 1
        self.is_elected = False
        """True once this coordinator's barrier (its first value, BARRIER) is applied. It stays True when the
        coordinator is deposed."""
        self.next_offset = 0
        """The record offset for the next `Append`; valid once elected."""
        self.window = window
        """The number of positions, from the first that is not applied on, up to which it proposes values."""
        self._barrier: int | None = None
        self._next_position = 0
        self._is_changing = False
        """True once the coordinator has proposed new voters, after which it proposes nothing more."""
        self._in_order_from = 0
        """The position of the first batch in the present run of batches that were proposed with `is_in_order`; 0 if the
        last batch was not."""
        self._own: dict[int, Value] = {}
        """The values, by position, that this coordinator proposed first and that are not applied yet."""
        self._releases = Releases()

    @property
    def is_writing(self) -> bool:
        """True while the coordinator accepts values to propose."""
        return self.is_elected and not self.is_lost

    @property
    def is_drained(self) -> bool:
        """True if all values that it proposed are applied, so that the voters may be changed."""
        return self.is_writing and self._next_position == self._replica.applied.position

    def _on_quorum(self, end: int) -> list[Action]:
        """Proposes the barrier, the coordinator's first value, once a quorum has promised."""
        # In parallel with the fill below it: it need only be chosen before any value of a client is proposed. Then a
        # client's value proves that the barrier stands below it, and whatever is older above the barrier is void.
        self._barrier = end
        self._next_position = end
        return self._propose(Value(Kind.BARRIER, self.number))

    def append(self, event: Append) -> list[Action]:
        """Proposes the next batch, at `next_offset`. Refuses it if `window` positions are in flight, as
        backpressure."""
        assert event.kind in WITH_PAYLOAD and event.count >= (event.kind is Kind.APPEND)
        assert event.kind is Kind.APPEND or not (event.is_lazy or event.is_in_order)
        # A lazy value may be chosen and then lost, so no other may need it: the next batch in order needs only the
        # positions behind it.
        assert not (event.is_lazy and event.is_in_order)
        refusal = self._refusal()
        # New voters come alone. With something open before them they could turn out void; and at positions behind them
        # the new voters may decide already.
        if refusal is None and event.kind is Kind.VOTERS and not self.is_drained:
            refusal = Reason.NOT_DRAINED
        if refusal is not None:
            return [Refused(event, refusal)]
        self._is_changing = event.kind is Kind.VOTERS
        value = Value(event.kind, self.number, self.next_offset, event.count, event.digest, self._needs(event))
        self.next_offset += event.count
        return [Proposed(self._next_position, value), *self._propose(value, is_lazy=event.is_lazy)]

    def _needs(self, event: Append) -> int:
        """Returns the `Value.begin` of the next batch: what it needs below it to have an effect."""
        if event.keys is not None:
            return self._releases.add(self._next_position, event.keys, is_lazy=event.is_lazy)
        # A batch in order needs all positions unbroken back to the last one that was not. Without that, a coordinator
        # that fails could leave a producer's third batch in the log, and not its second.
        self._in_order_from = (self._in_order_from or self._next_position) if event.is_in_order else 0
        return self._in_order_from

    def truncate_or_delete(self, event: Truncate | Delete) -> list[Action]:
        """Proposes a `Truncate` or a `Delete`. Refuses positions or offsets beyond the applied prefix."""
        # Mesos takes any position, and aborts later, when the log begins behind its end.
        applied = self._replica.applied
        match event:
            case Truncate(begin):
                value, is_in_range = Value(Kind.TRUNCATE, self.number, begin=begin), 0 <= begin <= applied.position
            case Delete(offset):
                value, is_in_range = Value(Kind.DELETE, self.number, offset), 0 <= offset <= applied.next_offset
        refusal = self._refusal()
        if refusal is None and not is_in_range:
            refusal = Reason.OUT_OF_RANGE
        if refusal is not None:
            return [Refused(event, refusal)]
        # It conflicts with nothing, but a batch that needs all values below it needs this one, too.
        self._releases.add(self._next_position, frozenset())
        return [Proposed(self._next_position, value), *self._propose(value)]

    def _refusal(self) -> Reason | None:
        assert self.is_writing
        if self._is_changing:
            return Reason.NOT_DRAINED
        if self._next_position - self._replica.applied.position >= self.window:
            return Reason.WINDOW_FULL
        return None

    def _propose(self, value: Value, *, is_lazy: bool = False) -> list[Action]:
        position = self._next_position
        self._next_position += 1
        self._own[position] = value
        return [*self._proposals.propose(position, value, is_lazy=is_lazy), *self._set_timer()]

    def _chosen(self, chosen: Chosen) -> list[Action]:
        # Before what the replica makes of it: a value that is released by this may be applied by it, too.
        first, *others = super()._chosen(chosen)
        # If a later coordinator has adopted it, another's barrier may stand below it, and make it void.
        released = [] if chosen.is_adopted else self._release(chosen.position)
        return [first, *released, *others]

    def _release(self, position: int) -> list[Action]:
        released = self._releases.chosen(position)
        return [Released(each) for each in released if self._own[each].kind is Kind.APPEND]

    # -- what the replica beside it reports --------------------------------------------------------------------------

    def on_applied(self, applied: Applied) -> list[Action]:
        actions = super().on_applied(applied)
        if self.is_lost or self._barrier is None or applied.position < self._barrier:
            return actions
        # Another's value in the place of an own one, or an own one that is void, shows a larger number.
        if applied.value != self._own.get(applied.position) or applied.verdict is Verdict.VOID:
            return self.lose(self._replica.highest)
        # Learned from others, it was not counted here.
        released = self._release(applied.position)
        del self._own[applied.position]
        return self._on_barrier() if applied.position == self._barrier else released

    def _on_barrier(self) -> list[Action]:
        prefix = self._replica.applied
        # Values stand behind the barrier that are not this coordinator's, which has proposed nothing there yet.
        if prefix.position != self._next_position:
            return self.lose(self._replica.highest)
        self.is_elected = True
        # Only now is it known: all below the barrier is applied, so no value that counts can take an offset any more.
        self.next_offset = prefix.next_offset
        return [Elected(self.number, self._next_position - 1, self.next_offset)]

    def on_jumped(self, position: int) -> list[Action]:
        """Ends the term, because other nodes have truncated positions that are not applied here."""
        # These may have held VOTERS, which only a snapshot tells now.
        return self.lose(self._replica.highest)

    def _is_waiting(self) -> bool:
        return bool(self._own)
