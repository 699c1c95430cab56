"""Every request of every listener is judged by one `Authorizer`, in the words of `model/access.py`."""

from __future__ import annotations

from typing import Protocol

from tidelog.model.access import Caller, Operation, Resource


class Authorizer(Protocol):
    """Decides what callers may do."""

    def may(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        """Returns True if this caller may do this to the resource."""
        ...


class EverybodyMay:
    """The authorizer of a cluster without access control."""

    def may(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        """Returns True."""
        return True
