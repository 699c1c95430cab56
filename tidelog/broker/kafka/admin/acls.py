"""DescribeAcls, CreateAcls and DeleteAcls, and the translation between Kafka's numbers and this broker's names.

There are no ACLs on transactional ids or delegation tokens: a filter for them matches nothing, and creating one is an
error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from tidelog.broker.kafka.admin.codes import DONE, Outcome, Refused, outcome_of
from tidelog.broker.kafka.admin.desk import Desk, Tree, bound
from tidelog.controller.access_commands import AddAcls, RemoveAcls
from tidelog.model.access import (
    ALLOW,
    CLUSTER,
    DENY,
    LITERAL,
    PREFIXED,
    Acl,
    Operation,
    Resource,
    check_acl,
)
from tidelog.model.errors import InvalidRequest, TidelogError
from tidelog.model.kafka_codes import KafkaCode

AT_ONCE_MAX: Final = 250
"""Maximum number of ACLs, or of filters, in one request."""
NAMED_MAX: Final = 10
"""Maximum number of ACLs that one audit log line lists."""
ANY: Final = 1
MATCH: Final = 2
"""Kafka's pattern type MATCH: the filter matches every ACL whose pattern covers the filter's resource name."""
KINDS: Final[Mapping[int, str]] = MappingProxyType({2: "Topic", 3: "Group", 4: "Cluster", 7: "User"})
KINDS_ELSEWHERE: Final = (5, 6)
PATTERNS: Final[Mapping[int, str]] = MappingProxyType({3: LITERAL, 4: PREFIXED})
OPERATIONS: Final[Mapping[int, str]] = MappingProxyType(
    {
        2: Operation.ALL.value,
        3: Operation.READ.value,
        4: Operation.WRITE.value,
        5: Operation.CREATE.value,
        6: Operation.DELETE.value,
        7: Operation.ALTER.value,
        8: Operation.DESCRIBE.value,
        9: Operation.CLUSTER_ACTION.value,
        10: Operation.DESCRIBE_CONFIGS.value,
        11: Operation.ALTER_CONFIGS.value,
        12: Operation.IDEMPOTENT_WRITE.value,
    }
)
OPERATIONS_ELSEWHERE: Final = (13, 14, 15)
PERMISSIONS: Final[Mapping[int, str]] = MappingProxyType({2: DENY, 3: ALLOW})


class Filter(NamedTuple):
    """A filter of ACLs. A field that is None matches any value."""

    kinds: tuple[str, ...] | None
    name: str | None
    pattern: str | None
    is_match: bool
    principal: str | None
    host: str | None
    operations: tuple[str, ...] | None
    permission: str | None

    def takes(self, acl: Acl) -> bool:
        """Returns True if the filter matches the ACL."""
        return (
            (self.kinds is None or acl.resource_type in self.kinds)
            and self._takes_name(acl)
            and self.pattern in (None, acl.pattern_type)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and (self.operations is None or acl.operation in self.operations)
            and self.permission in (None, acl.permission)
        )

    def _takes_name(self, acl: Acl) -> bool:
        if self.name is None or acl.resource_name == self.name:
            return True
        return self.is_match and acl.fits(Resource(acl.resource_type, self.name))


def read_filter(criteria: Any) -> Filter:
    """Returns the filter that the numbers of a request describe. Raises `Refused` for an unknown number."""
    pattern = criteria.pattern_type_filter
    return Filter(
        _any_of(KINDS, criteria.resource_type_filter, "resource type", KINDS_ELSEWHERE),
        criteria.resource_name_filter,
        None if pattern in (ANY, MATCH) else _word(PATTERNS, pattern, "pattern type"),
        pattern == MATCH,
        criteria.principal_filter,
        criteria.host_filter,
        _any_of(OPERATIONS, criteria.operation, "operation", OPERATIONS_ELSEWHERE),
        None if criteria.permission_type == ANY else _word(PERMISSIONS, criteria.permission_type, "permission"),
    )


def _any_of(words: Mapping[int, str], number: int, subject: str, elsewhere: Sequence[int]) -> tuple[str, ...] | None:
    if number == ANY:
        return None
    return () if number in elsewhere else (_word(words, number, subject),)


def _word(words: Mapping[int, str], number: int, subject: str) -> str:
    if number not in words:
        raise Refused(KafkaCode.INVALID_REQUEST, f"{number} is no {subject} of an ACL here; take {[*words]}")
    return words[number]


def _number(words: Mapping[int, str], word: str) -> int:
    return next(number for number, candidate in words.items() if candidate == word)


# -- the calls -------------------------------------------------------------------------------------------------------


async def describe_acls(desk: Desk, request: Any) -> Tree:
    """Describes the ACLs that a filter matches, grouped by resource."""
    try:
        desk.require(Operation.DESCRIBE, CLUSTER)
        acl_filter = read_filter(request)
    except Refused as error:
        return {**outcome_of(error).fields, "resources": []}
    resources: dict[tuple[str, str, str], list[Tree]] = {}
    for acl in desk.image.access.acls:
        if acl_filter.takes(acl):
            resources.setdefault(acl[:3], []).append(_rule(acl))
    shown = [{**_pattern(*pattern), "acls": acls} for pattern, acls in resources.items()]
    return {**DONE.fields, "resources": shown}


async def create_acls(desk: Desk, request: Any) -> Tree:
    """Creates ACLs. An invalid ACL gets its own error; the valid ones are created all together or not at all."""
    bound(len(request.creations))
    if len(request.creations) > AT_ONCE_MAX:
        return {"results": [_too_many(request.creations).fields for _ in request.creations]}
    outcomes: list[Outcome | None] = []
    acls = []
    for creation in request.creations:
        try:
            acls.append(_acl(creation))
            outcomes.append(None)
        except (InvalidRequest, Refused) as error:
            outcomes.append(Outcome(KafkaCode.INVALID_REQUEST, error.message))
    outcome_of_all = await _changed(desk, AddAcls(acls), acls)
    return {"results": [(outcome or outcome_of_all).fields for outcome in outcomes]}


async def delete_acls(desk: Desk, request: Any) -> Tree:
    """Deletes the ACLs that each filter matches, and returns the deleted ones."""
    bound(len(request.filters))
    if len(request.filters) > AT_ONCE_MAX:
        return {"filter_results": [_deleted(_too_many(request.filters)) for _ in request.filters]}
    return {"filter_results": [await _delete(desk, entry) for entry in request.filters]}


async def _delete(desk: Desk, entry: Any) -> Tree:
    try:
        desk.require(Operation.ALTER, CLUSTER)
        acl_filter = read_filter(entry)
    except Refused as error:
        return _deleted(outcome_of(error))
    acls = [acl for acl in desk.image.access.acls if acl_filter.takes(acl)]
    outcome = await _changed(desk, RemoveAcls(acls), acls)
    return _deleted(outcome, () if outcome.code else acls)


def _too_many(items: Sequence[Any]) -> Outcome:
    return Outcome(KafkaCode.INVALID_REQUEST, f"{len(items)} items: send {AT_ONCE_MAX} in one request at most")


async def _changed(desk: Desk, command: AddAcls | RemoveAcls, acls: Sequence[Acl]) -> Outcome:
    """Sends a change of ACLs to the controller, if there are any; checks the client's right to alter ACLs in any
    case."""
    try:
        desk.require(Operation.ALTER, CLUSTER)
        if not acls:
            return DONE
        async with desk.changing(Operation.ALTER, CLUSTER, "; ".join(" ".join(acl) for acl in acls[:NAMED_MAX])):
            await desk.administration.change_access(command)
    except (TidelogError, Refused) as error:
        return outcome_of(error, CLUSTER.type)
    return DONE


def _acl(creation: Any) -> Acl:
    return check_acl(
        Acl(
            _word(KINDS, creation.resource_type, "resource type"),
            _word(PATTERNS, creation.resource_pattern_type, "pattern type"),
            creation.resource_name,
            creation.principal,
            creation.host,
            _word(OPERATIONS, creation.operation, "operation"),
            _word(PERMISSIONS, creation.permission_type, "permission"),
        )
    )


def _pattern(kind: str, pattern: str, name: str) -> Tree:
    return {
        "resource_type": _number(KINDS, kind),
        "resource_name": name,
        "pattern_type": _number(PATTERNS, pattern),
    }


def _rule(acl: Acl) -> Tree:
    return {
        "principal": acl.principal,
        "host": acl.host,
        "operation": _number(OPERATIONS, acl.operation),
        "permission_type": _number(PERMISSIONS, acl.permission),
    }


def _deleted(outcome: Outcome, acls: Sequence[Acl] = ()) -> Tree:
    matching = [{**DONE.fields, **_pattern(*acl[:3]), **_rule(acl)} for acl in acls]
    return {**outcome.fields, "matching_acls": matching}
