"""Says who may do what, in the words of Kafka's ACLs, by one function.

An ACL allows or denies a principal, from a host, an operation on the resources that a pattern fits. What is denied is
denied, whatever else allows it; what nothing allows is not allowed (Kafka's `StandardAuthorizer`).

- Allowed `Read`, `Write`, `Delete` or `Alter` is allowed `Describe`, and allowed `AlterConfigs` is allowed
  `DescribeConfigs`. A denial implies nothing.
- `All` stands for every operation, `User:*` for every principal, and the host `*` for every host. The literal name `*`
  fits every name. A host may be a network, which Kafka does not know.
- A super user may do everything.

`may` is the definition; `AclIndex` gives the same answer in the time that a request can afford.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Final, NamedTuple

from tidelog.model.errors import InvalidRequest, NotAuthorized

ANYBODY: Final = "User:*"
ANYWHERE: Final = "*"
ANY_NAME: Final = "*"
DECISIONS_MAX: Final = 20_000
"""An `AclIndex` remembers so many of its answers."""


class Operation(enum.Enum):
    """Names what a request does to its resource."""

    NONE = "None"
    """Open to everybody: it tells nothing."""
    READ = "Read"
    WRITE = "Write"
    CREATE = "Create"
    DELETE = "Delete"
    ALTER = "Alter"
    DESCRIBE = "Describe"
    CLUSTER_ACTION = "ClusterAction"
    DESCRIBE_CONFIGS = "DescribeConfigs"
    ALTER_CONFIGS = "AlterConfigs"
    IDEMPOTENT_WRITE = "IdempotentWrite"
    ALL = "All"
    """Only in ACLs."""


OPERATIONS: Final = tuple(operation.value for operation in Operation if operation is not Operation.NONE)
"""The operations that an ACL may name."""
RESOURCE_TYPES: Final = ("Topic", "Group", "Cluster", "User")
"""The last are a principal's own things, such as its tokens."""
CLUSTER_NAME: Final = "kafka-cluster"
LITERAL: Final = "Literal"
PREFIXED: Final = "Prefixed"
PATTERN_TYPES: Final = (LITERAL, PREFIXED)
ALLOW: Final = "Allow"
DENY: Final = "Deny"
PERMISSIONS: Final = (ALLOW, DENY)

IMPLIED_BY: Final[Mapping[str, tuple[str, ...]]] = {
    "Describe": ("Describe", "Read", "Write", "Delete", "Alter"),
    "DescribeConfigs": ("DescribeConfigs", "AlterConfigs"),
}


class Resource(NamedTuple):
    """Names what a request is about, by a resource type and a name. The name `*` stands for those that the request does
    not name: each one has to be judged, and a list is filtered."""

    type: str
    name: str


CLUSTER: Final = Resource("Cluster", CLUSTER_NAME)


class Principal(NamedTuple):
    """A caller, as Kafka names them: `User:alice`."""

    type: str
    name: str

    def __str__(self) -> str:
        """Returns `User:alice`."""
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal("User", "ANONYMOUS")
"""A caller that has not logged in."""


class Caller(NamedTuple):
    """A principal, at the address that it calls from."""

    principal: Principal
    host: str


class Acl(NamedTuple):
    """Allows or denies something. All fields are Kafka's words; `host` is an address, a network, or `*`."""

    resource_type: str
    pattern_type: str
    resource_name: str
    principal: str
    host: str
    operation: str
    permission: str

    def fits(self, resource: Resource) -> bool:
        """Returns True if its pattern fits the resource."""
        if self.resource_type != resource.type:
            return False
        if self.pattern_type == PREFIXED:
            return resource.name.startswith(self.resource_name)
        return self.resource_name in (ANY_NAME, resource.name)

    def concerns(self, caller: Caller, operation: Operation) -> bool:
        """Returns True if it says something about this caller and operation, on a resource that it fits."""
        return (
            self.principal in (ANYBODY, str(caller.principal))
            and self._has(operation.value)
            and (self.host in (ANYWHERE, caller.host) or ("/" in self.host and is_within(caller.host, self.host)))
        )

    def _has(self, operation: str) -> bool:
        if self.operation in ("All", operation):
            return True
        return self.permission == ALLOW and self.operation in IMPLIED_BY.get(operation, ())


def is_within(host: str, network: str) -> bool:
    """Returns True if an address is part of a network."""
    try:
        return ip_address(host) in ip_network(network)
    except ValueError:  # a caller without an address, as in a test's own process
        return False


def check_acl(acl: Acl) -> Acl:
    """Returns the ACL with its host written in the one way. Raises `InvalidRequest`, which says what is wrong."""
    for what, value, known in (
        ("resource type", acl.resource_type, RESOURCE_TYPES),
        ("pattern type", acl.pattern_type, PATTERN_TYPES),
        ("operation", acl.operation, OPERATIONS),
        ("permission", acl.permission, PERMISSIONS),
    ):
        if value not in known:
            raise InvalidRequest(f"{value!r} is no {what} of an ACL; take one of {', '.join(known)}")
    check_principal(acl.principal)
    if not 0 < len(acl.resource_name) <= NAME_MAX or not acl.resource_name.isprintable():
        raise InvalidRequest(f"an ACL names a resource, with 1 to {NAME_MAX} printable characters, or * for all")
    if acl.resource_type == "Cluster" and acl.resource_name not in (CLUSTER_NAME, ANY_NAME):
        raise InvalidRequest(f"the one resource of the type Cluster is called {CLUSTER_NAME}")
    return acl._replace(host=_one_spelling(acl.host))


NAME_MAX: Final = 249


def check_principal(text: str) -> Principal:
    """Returns the principal that is written as `User:alice`. Raises `InvalidRequest`."""
    kind, colon, name = text.partition(":")
    if kind != "User" or not colon or not 0 < len(name) <= NAME_MAX or not name.isprintable():
        raise InvalidRequest(f"{text[:300]!r} is no principal; write it as User:alice")
    return Principal(kind, name)


def _one_spelling(host: str) -> str:
    if host == ANYWHERE:
        return host
    try:
        network: IPv4Network | IPv6Network = ip_network(host)
    except ValueError as error:
        raise InvalidRequest(f"{host[:100]!r} is no address, no network, and not *: {error}") from None
    return str(network) if "/" in host else str(network.network_address)


def may(
    acls: Iterable[Acl],
    super_users: Collection[Principal],
    caller: Caller,
    operation: Operation,
    resource: Resource,
    *,
    without_acl: bool = False,
) -> bool:
    """Returns True if the caller may do this to the resource. `without_acl` is the answer for resources that no ACL
    fits (Kafka: `allow.everyone.if.no.acl.found`)."""
    if caller.principal in super_users:
        return True
    fitting = [acl for acl in acls if acl.fits(resource)]
    if not fitting:
        return without_acl
    said = [acl.permission for acl in fitting if acl.concerns(caller, operation)]
    return DENY not in said and ALLOW in said


def refusal(caller: Caller, operation: Operation, resource: Resource) -> NotAuthorized:
    """Returns what a caller is told who may not do this, whether or not there is such a resource."""
    return NotAuthorized(
        f"{caller.principal} may not {operation.value} {resource.type} {resource.name}; "
        "ask the cluster's administrator for this right"
    )


_Pattern = dict[str, list[Acl]]
"""The ACLs of one pattern, by their principal."""
_Question = tuple[Caller, Operation, Resource | str]
"""Whether a caller may do something to a resource, or to any of a type."""


class AclIndex:
    """Gives the answers of `may`, for one set of ACLs.

    The ACLs are found by the patterns that fit a name: its own, `*`, and its beginnings of the lengths that there are
    among the prefixes; then by the principal. What was answered once is remembered.
    """

    def __init__(
        self, acls: Iterable[Acl] = (), super_users: Collection[Principal] = (), *, without_acl: bool = False
    ) -> None:
        """The arguments are those of `may`."""
        self._super_users = super_users
        self._without_acl = without_acl
        self._acls: dict[Acl, None] = {}
        self._patterns: dict[tuple[str, str, str], _Pattern] = {}
        self._lengths: dict[str, Counter[int]] = {}
        """How many ACLs have a prefix of each length, by resource type."""
        self._decisions: dict[_Question, bool] = {}
        self.set(acls)

    def set(self, acls: Iterable[Acl]) -> None:
        """Has these ACLs instead; costs little for each that stays."""
        new, old = dict.fromkeys(acls), self._acls
        self._acls = new
        self._decisions.clear()
        for acl in old:
            if acl not in new:
                self._remove(acl)
        for acl in new:
            if acl not in old:
                self._add(acl)

    def _add(self, acl: Acl) -> None:
        self._patterns.setdefault(acl[:3], {}).setdefault(acl.principal, []).append(acl)
        if acl.pattern_type == PREFIXED:
            self._lengths.setdefault(acl.resource_type, Counter())[len(acl.resource_name)] += 1

    def _remove(self, acl: Acl) -> None:
        pattern = self._patterns[acl[:3]]
        pattern[acl.principal].remove(acl)
        if not pattern[acl.principal]:
            del pattern[acl.principal]
        if not pattern:
            del self._patterns[acl[:3]]
        if acl.pattern_type == PREFIXED:
            lengths = self._lengths[acl.resource_type]
            lengths[len(acl.resource_name)] -= 1
            if not lengths[len(acl.resource_name)]:
                del lengths[len(acl.resource_name)]

    def may(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        """Answers as the function `may`."""
        question = (caller, operation, resource)
        decision = self._decisions.get(question)
        return self._remember(question, self.decide(*question)) if decision is None else decision

    def may_any(self, caller: Caller, operation: Operation, resource_type: str) -> bool:
        """Returns True if there is a pattern of this type on which the caller may do this, and which no denial covers
        (Kafka's `authorizeByResourceType`)."""
        if caller.principal in self._super_users:
            return True
        question = (caller, operation, resource_type)
        decision = self._decisions.get(question)
        return self._remember(question, self._decide_any(*question)) if decision is None else decision

    def _remember(self, question: _Question, decision: bool) -> bool:
        """Forgets all other decisions first, where they are too many."""
        if len(self._decisions) >= DECISIONS_MAX:
            self._decisions.clear()
        self._decisions[question] = decision
        return decision

    def decide(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        """Answers as `may`, and remembers nothing."""
        if caller.principal in self._super_users:
            return True
        patterns = self._fitting(resource)
        if not patterns:
            return self._without_acl
        said = [acl.permission for acl in self._about(patterns, caller) if acl.concerns(caller, operation)]
        return DENY not in said and ALLOW in said

    def _fitting(self, resource: Resource) -> list[_Pattern]:
        kind, name = resource
        keys = [(kind, LITERAL, name)]
        if name != ANY_NAME:
            keys.append((kind, LITERAL, ANY_NAME))
        keys += [(kind, PREFIXED, name[:length]) for length in self._lengths.get(kind, ()) if length <= len(name)]
        return [self._patterns[key] for key in keys if key in self._patterns]

    @staticmethod
    def _about(patterns: Iterable[_Pattern], caller: Caller) -> Iterable[Acl]:
        names = (str(caller.principal), ANYBODY)
        return (acl for pattern in patterns for name in names for acl in pattern.get(name, ()))

    def _decide_any(self, caller: Caller, operation: Operation, resource_type: str) -> bool:
        found = [
            acl
            for (kind, _, _), pattern in self._patterns.items()
            if kind == resource_type
            for acl in self._about([pattern], caller)
            if acl.concerns(caller, operation)
        ]
        denials = [acl for acl in found if acl.permission == DENY]
        return any(acl.permission == ALLOW and not any(_covers(denial, acl) for denial in denials) for acl in found)


def _covers(denial: Acl, allowed: Acl) -> bool:
    """Returns True if a denial leaves nothing of what another ACL allows."""
    if denial.pattern_type == LITERAL:
        is_same = allowed.pattern_type == LITERAL and allowed.resource_name == denial.resource_name
        return denial.resource_name == ANY_NAME or is_same
    return allowed.resource_name.startswith(denial.resource_name)
