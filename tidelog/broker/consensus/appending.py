"""The appends of a leader to its log: proposed to its engine, and answered when the log shows their outcome.

A refused append was proposed nowhere, so surely nothing was appended. After `WAIT_S_MAX` the outcome of one that was
proposed is reported as unknown: it stays in flight, and may be chosen later.
"""

from __future__ import annotations

import asyncio

from tidelog.broker.consensus.engine import Engine
from tidelog.broker.consensus.inflight import InFlightProposal, InFlightProposals, fail
from tidelog.model.errors import ControllerLost, NotController, Overloaded, TidelogError
from tidelog.replication.paxos.events import Append, Applied, Reason, Refused, Truncate

WAIT_S_MAX = 5.0
"""Seconds that an append waits before its outcome is reported as unknown."""


class PendingAppend:
    """A call of `Appends.propose` that waits for its outcome."""

    def __init__(self) -> None:
        self.outcome: asyncio.Future[Applied] = asyncio.get_running_loop().create_future()

    @property
    def is_waiting(self) -> bool:
        return not self.outcome.done()

    def complete(self, applied: Applied) -> None:
        if not self.outcome.done():
            self.outcome.set_result(applied)

    def fail(self, error: TidelogError) -> None:
        fail(self.outcome, error)


class Appends:
    """The appends of one member in flight, from its last terms as the log's leader."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._in_flight = InFlightProposals[PendingAppend]()

    def __len__(self) -> int:
        return len(self._in_flight)

    async def propose(self, event: Append | Truncate) -> Applied:
        """Proposes an entry or a truncation; returns when it is chosen and applied here. Raises `NotController` or
        `Overloaded` if nothing was proposed, `ControllerLost` if the outcome is unknown."""
        answer = self._engine.propose(event)
        if isinstance(answer, Refused):
            reason = f"the log takes nothing now ({answer.reason.value})"
            is_full = answer.reason is Reason.WINDOW_FULL
            # A refused append was proposed nowhere, so both errors say surely without effect.
            raise Overloaded(f"{reason}; try again") if is_full else NotController(reason)
        assert answer is not None, "nobody appends from within a step of the engine"
        pending = PendingAppend()
        proposal = InFlightProposal[PendingAppend](answer.value)
        proposal.waiters.append(pending)
        self._in_flight.add(answer.position, proposal)
        try:
            async with asyncio.timeout(WAIT_S_MAX):
                return await pending.outcome
        except TimeoutError:
            # It stays in flight, and may be chosen later; the caller must not be told no.
            raise ControllerLost("the brokers could not agree in time; whether they will is unknown") from None

    def settle(self, applied: Applied) -> None:
        """Answers the append that waits for the value it proposed at this position."""
        proposal = self._in_flight.take(applied.position)
        if proposal is None:
            return
        # The position is decided, with another value, and ours was proposed nowhere else: a certain no.
        if not proposal.is_in_log(applied):
            proposal.fail(NotController("another leader came first; nothing was appended"))
        # Those that were failed above have their outcome, and keep it.
        for pending in proposal.waiters:
            pending.complete(applied)

    def close(self) -> None:
        """Fails the waiting appends with an unknown outcome, as this broker stops."""
        self._in_flight.fail(ControllerLost("this broker is stopping; the outcome is unknown"))
