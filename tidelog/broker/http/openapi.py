"""`/openapi.json`: the route table as an OpenAPI 3.1 document.

Schemas are generated from the types that bodies are decoded into and answers are encoded from, so that they cannot
differ from the code.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from tidelog.broker.http.answers import encode
from tidelog.broker.http.route import Route
from tidelog.transport.errors import ErrorBody

VERSION: Final = "1"
_REFERENCE: Final = "#/components/schemas/{name}"
_PLACEHOLDER: Final = re.compile(r"\{(\w+)\}")
_NO_WORD: Final = re.compile(r"\W+")
_INTEGERS: Final = frozenset({"partition", "broker_id"})


def describe(routes: Sequence[Route]) -> bytes:
    """Returns the OpenAPI document as JSON text."""
    types = _types(routes)
    schemas, components = msgspec.json.schema_components(types, schema_hook=_raw_schema, ref_template=_REFERENCE)
    schema_of = dict(zip(map(_key, types), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.template, {})[route.method.lower()] = _operation(route, schema_of)
    document = {
        "openapi": "3.1.0",
        "info": {
            "title": "tidelog",
            "version": VERSION,
            "description": "Produce, read and administer over HTTP. Errors: 4xx, 503 and 507 mean that nothing was "
            "appended; 500, 502, 504 and a cut connection that it is unknown.",
        },
        "paths": paths,
        "components": {"schemas": components},
    }
    return encode(document)


def _types(routes: Sequence[Route]) -> list[Any]:
    """Returns each request and answer type once, in the order of the route table."""
    types = {_key(kind): kind for route in routes for kind in (route.request, *_answers(route)) if kind is not None}
    return [*types.values(), ErrorBody]


def _answers(route: Route) -> tuple[Any, ...]:
    return route.answer if isinstance(route.answer, tuple) else (route.answer,)


def _key(kind: Any) -> str:
    return repr(kind)


def _raw_schema(kind: type) -> dict[str, Any]:
    """Returns the schema of raw JSON, which may be any value."""
    if kind is msgspec.Raw:
        return {}
    raise NotImplementedError(kind)  # how a hook tells msgspec that a type is not its own


def _operation(route: Route, schema_of: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": _NO_WORD.sub("_", f"{route.method.lower()}{route.template}").strip("_"),
        "summary": route.summary,
        "x-kafka-operation": route.operation.value,
        "parameters": _parameters(route),
        "responses": _responses(route, schema_of),
    }
    if route.request is not None or route.has_raw_body:
        schema = {} if route.request is None else schema_of[_key(route.request)]
        operation["requestBody"] = {
            "required": True,
            "content": {media: {"schema": schema} for media in route.request_media},
        }
    return operation


def _parameters(route: Route) -> list[dict[str, Any]]:
    in_path = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "integer", "minimum": 0} if name in _INTEGERS else {"type": "string"},
        }
        for name in _PLACEHOLDER.findall(route.template)
    ]
    in_query = [
        {"name": query.name, "in": "query", "description": query.description, "schema": dict(query.schema)}
        for query in route.query
    ]
    return in_path + in_query


def _responses(route: Route, schema_of: dict[str, Any]) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status in route.statuses:
        responses[str(status)] = {"description": route.summary}
        if status != 204:
            schemas = [{} if answer is None else schema_of[_key(answer)] for answer in _answers(route)]
            schema = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
            responses[str(status)]["content"] = {media: {"schema": schema} for media in route.answer_media}
    responses["default"] = {
        "description": "An error: its code's first three digits are the status.",
        "content": {"application/json": {"schema": schema_of[_key(ErrorBody)]}},
    }
    return responses
