"""Authorization by Kafka's ACLs: decides whether a principal may perform an operation on a resource.

An ACL allows or denies a principal, from a host, an operation on the resources that a pattern fits. A denial overrides
every permission; what no ACL allows is forbidden (Kafka's `StandardAuthorizer`).

- Permission to `Read`, `Write`, `Delete` or `Alter` includes `Describe`, and `AlterConfigs` includes `DescribeConfigs`.
  A denial implies nothing.
- `All` stands for every operation, `User:*` for every principal, and the host `*` for every host. The literal name `*`
  fits every name. A host may be a network, which Kafka does not know.
- A super user may do everything.

`may` is the definition; `AclIndex` gives the same answers fast enough for every request.
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
"""Maximum number of decisions that an `AclIndex` caches."""


class Operation(enum.Enum):
    """An operation of Kafka's ACLs, or `NONE`."""

    NONE = "None"
    """Operation that everybody may perform, because its answer reveals nothing."""
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
    """Stands for all operations in an ACL; no request asks for it."""


OPERATIONS: Final = tuple(operation.value for operation in Operation if operation is not Operation.NONE)
"""Operations that an ACL may name."""
RESOURCE_TYPES: Final = ("Topic", "Group", "Cluster", "User")
"""Resource types of ACLs. A `User` resource is what belongs to a principal, such as its tokens."""
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
    """A resource that a request accesses, by type and name. The name `*` stands for resources that the request does not
    name: the caller then checks each resource itself, or leaves forbidden ones out of a list."""

    type: str
    name: str


CLUSTER: Final = Resource("Cluster", CLUSTER_NAME)


class Principal(NamedTuple):
    """A principal in Kafka's notation, such as `User:alice`."""

    type: str
    name: str

    def __str__(self) -> str:
        """Returns `User:alice`."""
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal("User", "ANONYMOUS")
"""A caller that has not logged in."""


class Caller(NamedTuple):
    """The sender of a request: its principal and the address that it connects from."""

    principal: Principal
    host: str


class Acl(NamedTuple):
    """An ACL entry, which allows or denies an operation. The values are Kafka's; `host` is an address, a network, or
    `*`."""

    resource_type: str
    pattern_type: str
    resource_name: str
    principal: str
    host: str
    operation: str
    permission: str

    def fits(self, resource: Resource) -> bool:
        """Returns True if the ACL's resource pattern matches the resource."""
        if self.resource_type != resource.type:
            return False
        if self.pattern_type == PREFIXED:
            return resource.name.startswith(self.resource_name)
        return self.resource_name in (ANY_NAME, resource.name)

    def concerns(self, caller: Caller, operation: Operation) -> bool:
        """Returns True if the ACL's principal, host and operation match. The caller has checked that the resource
        matches."""
        return (
            self.principal in (ANYBODY, str(caller.principal))
            and self._has(operation.value)
            and (self.host in (ANYWHERE, caller.host) or ("/" in self.host and is_within(caller.host, self.host)))
        )

    def _has(self, operation: str) -> bool:
        is_it = self.operation in ("All", operation)
        return is_it or (self.permission == ALLOW and self.operation in IMPLIED_BY.get(operation, ()))


def is_within(host: str, network: str) -> bool:
    """Returns True if an IP address belongs to a network; False if `host` is no IP address."""
    try:
        return ip_address(host) in ip_network(network)
    except ValueError:  # a caller without an address, as in a test's own process
        return False


def check_acl(acl: Acl) -> Acl:
    """Returns the ACL with its host in canonical form. Raises `InvalidRequest` if a field is invalid."""
    for what, value, allowed in (
        ("resource type", acl.resource_type, RESOURCE_TYPES),
        ("pattern type", acl.pattern_type, PATTERN_TYPES),
        ("operation", acl.operation, OPERATIONS),
        ("permission", acl.permission, PERMISSIONS),
    ):
        if value not in allowed:
            raise InvalidRequest(f"{value!r} is no {what} of an ACL; take one of {', '.join(allowed)}")
    check_principal(acl.principal)
    if not 0 < len(acl.resource_name) <= NAME_MAX or not acl.resource_name.isprintable():
        raise InvalidRequest(f"an ACL names a resource, with 1 to {NAME_MAX} printable characters, or * for all")
    if acl.resource_type == "Cluster" and acl.resource_name not in (CLUSTER_NAME, ANY_NAME):
        raise InvalidRequest(f"the one resource of the type Cluster is called {CLUSTER_NAME}")
    return acl._replace(host=_one_spelling(acl.host))


NAME_MAX: Final = 249


def check_principal(text: str) -> Principal:
    """Parses a principal written as `User:alice`. Raises `InvalidRequest` for any other text."""
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
    """Returns True if the caller may perform the operation on the resource. `without_acl` is the result for resources
    that no ACL matches (Kafka: `allow.everyone.if.no.acl.found`)."""
    if caller.principal in super_users:
        return True
    fitting = [acl for acl in acls if acl.fits(resource)]
    if not fitting:
        return without_acl
    said = [acl.permission for acl in fitting if acl.concerns(caller, operation)]
    return DENY not in said and ALLOW in said


def refusal(caller: Caller, operation: Operation, resource: Resource) -> NotAuthorized:
    """Returns the error for a caller that lacks the permission. It does not reveal whether the resource exists."""
    return NotAuthorized(
        f"{caller.principal} may not {operation.value} {resource.type} {resource.name}; "
        "ask the cluster's administrator for this right"
    )


_Pattern = dict[str, list[Acl]]
"""The ACLs of one resource pattern, by principal."""
_Question = tuple[Caller, Operation, Resource | str]
"""Key of a cached decision: the arguments of `AclIndex.may`, or of `may_any` with a resource type."""


class AclIndex:
    """An index over a set of ACLs that gives the answers of the function `may` quickly.

    ACLs are looked up by resource pattern (the name itself, `*`, and those prefixes of the name whose length some
    prefixed ACL has), then by principal. Decisions are cached.
    """

    def __init__(
        self, acls: Iterable[Acl] = (), super_users: Collection[Principal] = (), *, without_acl: bool = False
    ) -> None:
        """Indexes the ACLs. The arguments are those of the function `may`."""
        self._super_users = super_users
        self._without_acl = without_acl
        self._acls: dict[Acl, None] = {}
        self._patterns: dict[tuple[str, str, str], _Pattern] = {}
        self._lengths: dict[str, Counter[int]] = {}
        """Number of prefixed ACLs for each length of prefix, by resource type."""
        self._decisions: dict[_Question, bool] = {}
        self.set(acls)

    def set(self, acls: Iterable[Acl]) -> None:
        """Replaces the ACLs. ACLs that are in the old and in the new set are not indexed again."""
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
        """Returns True if the caller may perform the operation on the resource. Decisions are cached."""
        question = (caller, operation, resource)
        decision = self._decisions.get(question)
        return self._remember(question, self.decide(*question)) if decision is None else decision

    def may_any(self, caller: Caller, operation: Operation, resource_type: str) -> bool:
        """Returns True if the caller may perform the operation on some resource of the type: an ACL allows it, and no
        denial covers that ACL's whole pattern (Kafka's `authorizeByResourceType`)."""
        if caller.principal in self._super_users:
            return True
        question = (caller, operation, resource_type)
        decision = self._decisions.get(question)
        return self._remember(question, self._decide_any(*question)) if decision is None else decision

    def _remember(self, question: _Question, decision: bool) -> bool:
        """Caches a decision and returns it. A full cache is emptied first."""
        if len(self._decisions) >= DECISIONS_MAX:
            self._decisions.clear()
        self._decisions[question] = decision
        return decision

    def decide(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        """Returns the decision of the function `may`, without reading or filling the cache."""
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
        acls = [
            acl
            for (kind, _, _), pattern in self._patterns.items()
            if kind == resource_type
            for acl in self._about([pattern], caller)
            if acl.concerns(caller, operation)
        ]
        denials = [acl for acl in acls if acl.permission == DENY]
        return any(acl.permission == ALLOW and not any(_covers(denial, acl) for denial in denials) for acl in acls)


def _covers(denial: Acl, allowed: Acl) -> bool:
    """Returns True if the pattern of a denial includes all resources of the pattern of an ACL that allows."""
    if denial.pattern_type == LITERAL:
        is_same = allowed.pattern_type == LITERAL and allowed.resource_name == denial.resource_name
        return denial.resource_name == ANY_NAME or is_same
    return allowed.resource_name.startswith(denial.resource_name)
