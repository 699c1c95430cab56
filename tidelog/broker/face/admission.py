"""Admission control of one listener: counts connections and memory, and refuses what exceeds the listener's limits.

Each listener has its own, so that a flood at one leaves room at the others. A refused request was not executed, and its
error has a code. `Admission.close` ends the waits of requests when the listener shuts down.
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
    """Bounds that every listener has, whatever its protocol."""

    connections_max: int = 2000
    probes_max: int = 32
    """Connections beyond `connections_max`, for health checks of an orchestrator or a monitor."""
    address_connections_max: int | None = None
    """Connections of one client address, without health-check connections; None: no bound."""
    body_budget_bytes: int = 256 * MIB
    """Bytes of memory for request bodies, over all connections."""
    answer_budget_bytes: int = 64 * MIB
    """Bytes of record data in answers that clients have not received yet, over all connections."""
    request_timeout_ms_max: int = 30_000
    """Longest time that a request waits, in ms."""
    queue_wait_s_max: float = 0.1
    queue_interval_s: float = 1.0
    """If all requests of a class waited longer than `queue_wait_s_max` for this many seconds, requests that did are
    refused.
    """
    loop_lag_s_max: float = 0.2
    """Lag of the event loop in seconds from which the `Brake` refuses long polls; at twice this all reads, at four
    times produces, too.
    """


class Readiness(Protocol):
    """Tells whether the broker serves requests."""

    @property
    def is_ready(self) -> bool:
        """True while the broker serves requests, from the end of its start until its stop."""

    @property
    def is_leaving(self) -> bool:
        """True once the broker is about to stop: clients should use other brokers, though requests may still be
        served.
        """

    @property
    def stage(self) -> str:
        """A sentence that says what the broker does while it is not ready, or is stopping."""


class ConnectionCount:
    """The number of open connections of a listener, in all and by client address. Some places are reserved for probes
    (health checks).
    """

    def __init__(self, connections_max: int, probes_max: int = 0, address_max: int | None = None) -> None:
        self._connections_max = connections_max
        self._probes_max = probes_max
        self._address_max = address_max
        self._by_address: dict[str, int] = {}
        self.open = 0
        """Number of open connections, probes included."""
        self.probes = 0

    def is_full(self, *, probe: bool = False) -> bool:
        """Returns True if no place is free for another connection, or with `probe` for another probe."""
        return self.probes >= self._probes_max if probe else self.open - self.probes >= self._connections_max

    def is_full_of(self, address: str) -> bool:
        """Returns True if one client address has as many connections as it may have."""
        return self._address_max is not None and self._by_address.get(address, 0) >= self._address_max

    def admit(self, address: str = "", *, probe: bool = False) -> bool:
        """Counts a new connection. Returns False, without counting, if no place is free for it."""
        if self.is_full(probe=probe) or (not probe and self.is_full_of(address)):
            return False
        self.open += 1
        self.probes += probe
        if not probe:
            self._by_address[address] = self._by_address.get(address, 0) + 1
        return True

    def leave(self, address: str = "", *, probe: bool = False) -> None:
        """Subtracts a connection that was closed."""
        self.open -= 1
        self.probes -= probe
        assert self.open >= self.probes >= 0
        if not probe:
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]


class Admission:
    """Admission control of one listener. Its errors are definite: the request was not executed."""

    def __init__(self, readiness: Readiness, limits: ListenerLimits, authorizer: Authorizer) -> None:
        self.connections = ConnectionCount(limits.connections_max, limits.probes_max, limits.address_connections_max)
        self.bodies = ByteBudget(limits.body_budget_bytes, "request bodies")
        """Memory budget for request bodies, taken before a body is read and given back when the request is answered."""
        self.answers = ByteBudget(limits.answer_budget_bytes, "answers")
        """Memory budget for record data in answers that clients have not received yet."""
        self.waits = Waits()
        self.shedding = Shedding(limits.queue_wait_s_max, limits.queue_interval_s, limits.loop_lag_s_max)
        self._readiness = readiness
        self._authorizer = authorizer
        self.is_open = isinstance(authorizer, EverybodyMay)
        """True if access control is off, so that `refuse_unauthorized` need not be called."""

    def refuse_unready(self) -> None:
        """Raises `LeaderNotAvailable` while the broker does not serve requests."""
        if not self._readiness.is_ready:
            raise LeaderNotAvailable(f"this broker is not ready: {self._readiness.stage}; try again in a moment")

    def refuse_if_leaving(self) -> None:
        """Raises `ShuttingDown` once the broker is about to stop."""
        if self._readiness.is_leaving:
            raise ShuttingDown(f"this broker is shutting down; go to another one: {self._readiness.stage}")

    def refuse_if_ending(self) -> None:
        """Raises `ShuttingDown` once the listener is about to close."""
        if self.waits.is_ended:
            raise ShuttingDown("this broker is shutting down; go to another one")

    def may(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        """Returns True if the caller may perform the operation on the resource."""
        return self.is_open or operation is Operation.NONE or self._authorizer.may(caller, operation, resource)

    def refuse_unauthorized(self, caller: Caller, operation: Operation, resource: Resource) -> None:
        """Raises `NotAuthorized` unless the caller may perform the operation on the resource."""
        if not self.may(caller, operation, resource):
            raise refusal(caller, operation, resource)

    def close(self) -> None:
        """Ends all waits of requests, present and future ones, because the listener shuts down."""
        self.waits.end_all()
