"""A listener: one address at which a broker serves one protocol, under bounds of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from tidelog.broker.face.admission import ListenerLimits
from tidelog.config.schema import ALL_ADDRESSES
from tidelog.model.cluster import Endpoint

LimitsT = TypeVar("LimitsT", bound=ListenerLimits)


@dataclass(frozen=True, slots=True)
class Listener(Generic[LimitsT]):
    """A listener as it is configured: its name, its addresses and its limits."""

    name: str
    """The key of its address in the broker's registration (`BrokerInfo.listeners`)."""
    bind: Endpoint
    """The address it listens at. Port 0 lets the system choose one."""
    limits: LimitsT
    advertised: Endpoint | None = None
    """The address that clients are told, if the operator has set one."""

    def advertised_at(self, bound: Endpoint, machine: str) -> Endpoint:
        """Returns the address that clients are told, of a listener that is bound: nobody can connect to "all
        addresses", so those are told as the name of this machine."""
        if self.advertised is not None:
            return self.advertised
        return Endpoint(machine, bound.port) if bound.host in ALL_ADDRESSES else bound
