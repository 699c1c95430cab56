"""The columns of Spark's Kafka source, and subsets of them: a query with a schema reads only its columns.

Spark compares the first Arrow batch strictly with the schema, so types are checked here with a clear error. Pure; a
schema is any iterable of fields with a `name` and a `dataType`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tidelog.model.errors import InvalidRequest

TYPES = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}


def ddl(*, include_headers: bool) -> str:
    """Returns the whole schema in Spark's DDL notation."""
    return ", ".join(f"`{name}` {kind}" for name, kind in TYPES.items() if include_headers or name != "headers")


def query_columns(schema: Iterable[Any]) -> list[str]:
    """Returns the column names of a query's schema, in its order. Raises `InvalidRequest` for unknown columns or wrong
    types."""
    names = []
    for field in schema:
        kind = TYPES.get(field.name)
        if kind is None:
            raise InvalidRequest(f"there is no column {field.name!r}; choose from {', '.join(TYPES)}")
        if field.dataType.simpleString() != kind:
            raise InvalidRequest(f"column {field.name} is {kind}, not {field.dataType.simpleString()}: cast it later")
        if not field.nullable:
            raise InvalidRequest(f"column {field.name} can be null: leave NOT NULL out")
        names.append(field.name)
    return names
