"""The configuration of a listener: an address at which a broker serves one protocol, with its own bounds."""

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
    """The listener's name, the key of its address in the broker's registration (`BrokerInfo.listeners`)."""
    bind: Endpoint
    """The address it listens at. Port 0 lets the system choose one."""
    limits: LimitsT
    advertised: Endpoint | None = None
    """The address given to clients, if the operator has set one."""

    def advertised_at(self, bound: Endpoint, machine: str) -> Endpoint:
        """Returns the address given to clients of a listener bound at `bound`. A listener on all addresses is given as
        the name of this machine (`machine`), since clients cannot connect to a wildcard address.
        """
        if self.advertised is not None:
            return self.advertised
        return Endpoint(machine, bound.port) if bound.host in ALL_ADDRESSES else bound
