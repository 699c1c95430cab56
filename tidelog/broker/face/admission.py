"""Admission: what one listener lets in. It counts connections and memory, and refuses what there is no room for.

Each listener has its own, so that a flood on one leaves the others their room. A refusal is an error with a code, and
nothing was done; `Admission.close` ends the waits of requests when the listener shuts down.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tidelog.broker.face.access import Authorizer, EverybodyMay
from tidelog.broker.face.shedding import Shedding
from tidelog.broker.face.waits import Waits
from tidelog.broker.runtime.budget import ByteBudget
from tidelog.model.access import Caller, Operation, Resource, refusal
from tidelog.model.errors import LeaderNotAvailable, ShuttingDown

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """Bounds that every listener has, whatever it speaks."""

    connections_max: int = 2000
    probes_max: int = 32
    """Connections beyond that, for who only asks whether the broker is well: an orchestrator, a monitor."""
    address_connections_max: int | None = None
    """Connections of one client address, probes not counted; None: as many as there are."""
    body_budget_bytes: int = 256 * MIB
    """Memory for request bodies, over all connections."""
    answer_budget_bytes: int = 64 * MIB
    """Record data of answers that a client has not taken yet, over all connections."""
    request_timeout_ms_max: int = 30_000
    """No request waits for longer."""
    queue_wait_s_max: float = 0.1
    queue_interval_s: float = 1.0
    """If all requests of a class have waited for their turn for longer than `queue_wait_s_max`, for this long, those
    that have are refused."""
    loop_lag_s_max: float = 0.2
    """From here on the `Brake` refuses reads that wait; at twice this, reads; at four times, produces."""


class Readiness(Protocol):
    """Whether the broker serves requests."""

    @property
    def is_ready(self) -> bool:
        """True between its start and its stop."""
        ...

    @property
    def is_leaving(self) -> bool:
        """True from when it is to stop: nothing new should be sent here, though it may be served still."""
        ...

    @property
    def stage(self) -> str:
        """Says what the broker does while it is not ready, or leaving: a sentence about "it"."""
        ...


class ConnectionCount:
    """The open connections of a listener, counted, also by client address; some places are kept for probes."""

    def __init__(self, connections_max: int, probes_max: int = 0, address_max: int | None = None) -> None:
        self._connections_max = connections_max
        self._probes_max = probes_max
        self._address_max = address_max
        self._by_address: dict[str, int] = {}
        self.open = 0
        """All of them, probes included."""
        self.probes = 0

    def is_full(self, *, probe: bool = False) -> bool:
        """Returns True if there are as many probes as may be, or others."""
        return self.probes >= self._probes_max if probe else self.open - self.probes >= self._connections_max

    def is_full_of(self, address: str) -> bool:
        """Returns True if one address has as many as it may have."""
        return self._address_max is not None and self._by_address.get(address, 0) >= self._address_max

    def admit(self, address: str = "", *, probe: bool = False) -> bool:
        """Counts a new connection in; False if there are as many as may be."""
        if self.is_full(probe=probe) or (not probe and self.is_full_of(address)):
            return False
        self.open += 1
        self.probes += probe
        if not probe:
            self._by_address[address] = self._by_address.get(address, 0) + 1
        return True

    def leave(self, address: str = "", *, probe: bool = False) -> None:
        """Counts a connection out."""
        self.open -= 1
        self.probes -= probe
        assert self.open >= self.probes >= 0
        if not probe:
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]


class Admission:
    """The gate of one listener. All methods raise only definite errors: nothing was done."""

    def __init__(self, readiness: Readiness, limits: ListenerLimits, authorizer: Authorizer) -> None:
        self.connections = ConnectionCount(limits.connections_max, limits.probes_max, limits.address_connections_max)
        self.bodies = ByteBudget(limits.body_budget_bytes, "request bodies")
        """Memory for request bodies, from before they are read until their request is answered."""
        self.answers = ByteBudget(limits.answer_budget_bytes, "answers")
        """Memory for record data on its way to clients."""
        self.waits = Waits()
        self.shedding = Shedding(limits.queue_wait_s_max, limits.queue_interval_s, limits.loop_lag_s_max)
        self._readiness = readiness
        self._authorizer = authorizer
        self.is_open = isinstance(authorizer, EverybodyMay)
        """True if every caller may do everything: `refuse_unauthorized` need not be asked."""

    def refuse_unready(self) -> None:
        """Raises `LeaderNotAvailable` while the broker does not serve requests."""
        if not self._readiness.is_ready:
            raise LeaderNotAvailable(f"this broker is not ready: {self._readiness.stage}; try again in a moment")

    def refuse_if_leaving(self) -> None:
        """Raises `ShuttingDown` if the broker is about to stop."""
        if self._readiness.is_leaving:
            raise ShuttingDown(f"this broker is shutting down; go to another one: {self._readiness.stage}")

    def refuse_if_ending(self) -> None:
        """Raises `ShuttingDown` if the listener is about to close."""
        if self.waits.is_ended:
            raise ShuttingDown("this broker is shutting down; go to another one")

    def may(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        """Returns True if the caller may do this to the resource."""
        return self.is_open or operation is Operation.NONE or self._authorizer.may(caller, operation, resource)

    def refuse_unauthorized(self, caller: Caller, operation: Operation, resource: Resource) -> None:
        """Raises `NotAuthorized` unless the caller may do this to the resource."""
        if not self.may(caller, operation, resource):
            raise refusal(caller, operation, resource)

    def close(self) -> None:
        """Ends all waits now, and those to come as they begin: the listener shuts down."""
        self.waits.end_all()
