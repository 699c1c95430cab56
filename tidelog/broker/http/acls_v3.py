"""REST v3: ACLs, in the shapes of Confluent's REST Proxy, with names in capitals such as `DESCRIBE_CONFIGS`.

An addition is `acls:check`: whether a principal may perform an operation, by the ACLs in force at this broker.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlencode

from aiohttp import web
from msgspec import Struct

from tidelog.broker.http.answers import json_answer
from tidelog.broker.http.body import read_body, read_json
from tidelog.broker.http.call import Call
from tidelog.broker.http.context import Context
from tidelog.broker.http.envelope import Links, Resource
from tidelog.broker.http.json_body import Body
from tidelog.broker.http.media import JSON_TYPE
from tidelog.controller.access_commands import AddAcls, RemoveAcls
from tidelog.model.access import (
    ANY_NAME,
    ANYWHERE,
    OPERATIONS,
    PATTERN_TYPES,
    PERMISSIONS,
    RESOURCE_TYPES,
    Acl,
    Caller,
    Operation,
    check_acl,
    check_principal,
)
from tidelog.model.access import Resource as Judged
from tidelog.model.errors import InvalidRequest, UnprocessableBody

FIELDS: Final = ("resource_type", "pattern_type", "resource_name", "principal", "host", "operation", "permission")
WORDS_MAX: Final = 10
NEEDED_TO_DELETE: Final = ("resource_type", "pattern_type", "operation", "permission")
_BEGINNING: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")


def shown_word(word: str) -> str:
    """Returns a name such as `DescribeConfigs` as REST v3 writes it, `DESCRIBE_CONFIGS`."""
    return _BEGINNING.sub("_", word).upper()


_WORDS: Final[Mapping[str, Mapping[str, str]]] = {
    "resource_type": {shown_word(word): word for word in RESOURCE_TYPES},
    "pattern_type": {shown_word(word): word for word in PATTERN_TYPES},
    "operation": {shown_word(word): word for word in OPERATIONS},
    "permission": {shown_word(word): word for word in PERMISSIONS},
}
ANY: Final = "ANY"
MATCH: Final = "MATCH"


class AclV3(Resource, frozen=True):
    """An ACL."""

    resource_type: str
    resource_name: str
    pattern_type: str
    principal: str
    host: str
    operation: str
    permission: str


class AclAsked(Body):
    """An ACL to be created."""

    resource_type: str
    resource_name: str
    pattern_type: str
    principal: str
    operation: str
    permission: str
    host: str = ANYWHERE


class AclsAsked(Body):
    """ACLs to be created, all or none."""

    data: list[AclAsked]


class AclsDeletedV3(Struct, frozen=True):
    """The ACLs that were deleted."""

    data: list[AclV3]


class CheckedV3(Struct, frozen=True):
    """The result of an access check: `is_allowed` is true if the principal may perform the operation."""

    is_allowed: bool


async def list_acls(context: Context, call: Call) -> web.StreamResponse:
    """Lists the ACLs that match the query."""
    links = Links(context, call)
    shown = [_shown(links, acl) for acl in _matching(context, call)]
    return json_answer(links.list_of("KafkaAcl", shown, "acls"))


async def create_acl(context: Context, call: Call) -> web.StreamResponse:
    """Creates an ACL, unless it exists."""
    acl = _acl(await read_json(context, call, AclAsked))
    call.subject = _words([acl])
    await context.face.administration.by(call.caller).change_access(AddAcls([acl]))
    return web.Response(status=201, content_type=JSON_TYPE)


async def create_acls(context: Context, call: Call) -> web.StreamResponse:
    """Creates ACLs, all or none."""
    entries = (await read_json(context, call, AclsAsked)).data
    if not 0 < len(entries) <= context.limits.acls_at_once_max:
        raise UnprocessableBody(f"{len(entries)} ACLs: make 1 to {context.limits.acls_at_once_max} in one request")
    acls = [_acl(entry) for entry in entries]
    call.subject = _words(acls)
    await context.face.administration.by(call.caller).change_access(AddAcls(acls))
    return web.Response(status=201, content_type=JSON_TYPE)


async def delete_acls(context: Context, call: Call) -> web.StreamResponse:
    """Deletes the ACLs that match the query, and returns them."""
    links = Links(context, call)
    await read_body(context, call, context.limits.json_bytes_max, is_optional=True)
    missing = [name for name in NEEDED_TO_DELETE if name not in call.query]
    if missing:
        raise InvalidRequest(f"say {', '.join(missing)} in the query, so that no more is deleted than is meant")
    acls = _matching(context, call)
    call.subject = _words(acls)
    if acls:
        await context.face.administration.by(call.caller).change_access(RemoveAcls(acls))
    return json_answer(AclsDeletedV3([_shown(links, acl) for acl in acls]))


def _words(acls: Sequence[Acl]) -> str:
    """Returns at most `WORDS_MAX` ACLs as text for the audit log."""
    return "; ".join(" ".join(map(str, acl)) for acl in acls[:WORDS_MAX])


async def check_access(context: Context, call: Call) -> web.StreamResponse:
    """Returns whether a principal may perform an operation on a resource, from an address."""
    missing = [name for name in ("resource_type", "resource_name", "principal", "operation") if name not in call.query]
    if missing:
        raise InvalidRequest(f"say {', '.join(missing)} in the query")
    caller = Caller(check_principal(call.query["principal"]), call.query.get("host", ""))
    operation = Operation(_word("operation", call.query["operation"]))
    resource = Judged(_word("resource_type", call.query["resource_type"]), call.query["resource_name"])
    return json_answer(CheckedV3(context.admission.may(caller, operation, resource)))


def _acl(entry: AclAsked) -> Acl:
    words = {name: _word(name, getattr(entry, name)) for name in _WORDS}
    return check_acl(Acl(resource_name=entry.resource_name, principal=entry.principal, host=entry.host, **words))


def _word(name: str, word: str) -> str:
    value = _WORDS[name].get(word.upper())
    if value is None:
        raise InvalidRequest(f"{word[:40]!r} is no {name}; take one of {', '.join(_WORDS[name])}")
    return value


def _matching(context: Context, call: Call) -> list[Acl]:
    """Returns the ACLs whose fields equal the query's parameters; `ANY` equals every value. With the pattern type
    `MATCH` they are those whose pattern covers the resource name.
    """
    query = {name: value for name, value in call.query.items() if name in FIELDS and value != ANY}
    pattern = query.get("pattern_type", "").upper()
    if pattern == MATCH:
        del query["pattern_type"]
    terms = {name: _word(name, value) if name in _WORDS else value for name, value in query.items()}
    name = terms.pop("resource_name", None) if pattern == MATCH else None
    acls = context.face.cluster.image.access.acls
    return [
        acl
        for acl in acls
        if all(getattr(acl, field) == value for field, value in terms.items())
        and (name is None or acl.fits(Judged(acl.resource_type, name)) or name == ANY_NAME)
    ]


def _shown(links: Links, acl: Acl) -> AclV3:
    words = {name: _spelt(name, getattr(acl, name)) for name in FIELDS}
    kind, metadata, cluster_id = links.resource("KafkaAcl", f"acls?{urlencode(words)}")
    return AclV3(kind=kind, metadata=metadata, cluster_id=cluster_id, **words)


def _spelt(name: str, value: str) -> str:
    return shown_word(value) if name in _WORDS else value
