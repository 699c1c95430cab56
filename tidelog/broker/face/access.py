"""Who may do what, in the words of Kafka's ACLs: every request of every listener is judged by one `Authorizer`."""

from __future__ import annotations

import enum
from typing import Final, NamedTuple, Protocol


class Operation(enum.Enum):
    """What a request does to its resource."""

    NONE = "None"
    """Open to everybody: it tells nothing."""
    READ = "Read"
    WRITE = "Write"
    CREATE = "Create"
    DELETE = "Delete"
    ALTER = "Alter"
    DESCRIBE = "Describe"
    DESCRIBE_CONFIGS = "DescribeConfigs"
    ALTER_CONFIGS = "AlterConfigs"
    IDEMPOTENT_WRITE = "IdempotentWrite"


class Resource(NamedTuple):
    """What a request is about: a resource type and a name. The name `*` stands for resources that the request does not
    name: each one has to be judged, and a list is filtered."""

    type: str
    name: str


class Principal(NamedTuple):
    """A caller, as Kafka names them: `User:alice`."""

    type: str
    name: str


ANONYMOUS: Final = Principal("User", "ANONYMOUS")
"""A caller that has not logged in."""


class Authorizer(Protocol):
    """Decides what callers may do."""

    def may(self, principal: Principal, operation: Operation, resource: Resource) -> bool:
        """Returns True if this caller may do this to the resource."""
        ...


class EverybodyMay:
    """The authorizer of a cluster without access control."""

    def may(self, principal: Principal, operation: Operation, resource: Resource) -> bool:
        """Returns True."""
        return True
