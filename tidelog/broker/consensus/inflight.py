"""What became of what this broker proposed: told to whoever waits, as soon as the log says so, and not before.

A value that was proposed at a position is in the log if that position is applied with this value, and surely is not if
it is applied with another, since it was proposed nowhere else. A lost leader knows neither; its log may still tell.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from tidelog.model.errors import ControllerLost, NotController, Overloaded, TidelogError
from tidelog.replication.paxos.apply import Verdict
from tidelog.replication.paxos.events import Applied, Proposed, Reason, Refused
from tidelog.replication.paxos.state import Value

WAIT_S_MAX = 5.0
"""How long to wait before an outcome is called unknown."""


class _Proposal(NamedTuple):
    value: Value
    outcome: asyncio.Future[Applied]


class Outcomes:
    """Of one broker's proposals. Bounded by the engine's window."""

    def __init__(self) -> None:
        self._proposed: dict[int, _Proposal] = {}
        self._asking: asyncio.Future[Applied] | None = None

    def __bool__(self) -> bool:
        """Is anything on its way?"""
        return bool(self._proposed)

    async def of(self, propose: Callable[[], None]) -> Applied:
        """Calls `propose`, which must lead to `proposed` or `refused` before it returns, and waits for the outcome.
        Raises `NotController` or `Overloaded`: it is not in the log; `ControllerLost`: unknown."""
        outcome: asyncio.Future[Applied] = asyncio.get_running_loop().create_future()
        self._asking = outcome
        propose()
        self._asking = None
        try:
            async with asyncio.timeout(WAIT_S_MAX):
                return await outcome
        except TimeoutError:
            raise ControllerLost("the brokers could not agree in time; whether they will is unknown") from None

    def proposed(self, proposed: Proposed) -> None:
        """What was asked for got its position."""
        if self._asking is not None:
            self._proposed[proposed.position] = _Proposal(proposed.value, self._asking)

    def refused(self, refused: Refused) -> None:
        """What was asked for was not proposed."""
        reason = f"the log takes nothing now ({refused.reason.value})"
        is_full = refused.reason is Reason.WINDOW_FULL
        fail(self._asking, Overloaded(f"{reason}; try again") if is_full else NotController(reason))

    def applied(self, applied: Applied) -> None:
        """The next position is in force here."""
        proposal = self._proposed.pop(applied.position, None)
        if proposal is None or proposal.outcome.done():
            return
        if proposal.value == applied.value and applied.verdict is Verdict.APPLIED:
            proposal.outcome.set_result(applied)
        else:
            fail(proposal.outcome, NotController("another leader came first; nothing was appended"))

    def close(self) -> None:
        """Nobody will hear of the rest."""
        for proposal in self._proposed.values():
            fail(proposal.outcome, ControllerLost("this broker is stopping; the outcome is unknown"))


def fail(outcome: asyncio.Future[Any] | None, error: TidelogError) -> None:
    """Ends a wait with an error, if somebody waits."""
    if outcome is not None and not outcome.done():
        outcome.set_exception(error)


def resolve(outcome: asyncio.Future[None] | None) -> None:
    """Ends a wait, if somebody waits."""
    if outcome is not None and not outcome.done():
        outcome.set_result(None)
