"""Codecs of the request types that are not performance-critical, based on the library `kio`, which is generated from
Kafka's message definitions.

A message's module is imported at its first request, since importing all takes a tenth of a second. An answer is
given as nested dicts with the field names of the library kio, with the fields of all versions; the codec leaves out
those that the requested version lacks, so that a handler is written once for all versions.

kio encodes the answers but does not decode the requests: its native reader aborts the process on some damaged frames.
Requests are decoded here, field by field by kio's definitions, and each length is checked against the remaining bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from datetime import timedelta
from functools import cache
from importlib import import_module
from io import BytesIO
from types import MappingProxyType
from typing import Any, Final, NamedTuple, get_args, get_origin
from uuid import UUID  # determinism: a value that nobody draws here

from tidelog.broker.kafka.apis import Key
from tidelog.broker.kafka.call import Answer, Call
from tidelog.model.kafka_wire import Malformed, Reader

Tree = Mapping[str, Any]

_PACKAGES: Final = "kio.schema"
_NO_ID: Final = "0" * 32


def _id(reader: Reader) -> str | None:
    """Reads a topic id and returns its 32 hexadecimal digits; None for the all-zero id."""
    topic_id = reader.uuid()
    return None if topic_id == _NO_ID else topic_id


NUMBERS: Final[Mapping[str, Callable[[Reader], Any]]] = MappingProxyType(
    {
        "bool": Reader.boolean,
        "int8": Reader.int8,
        "int16": Reader.int16,
        "int32": Reader.int32,
        "int64": Reader.int64,
        "float64": Reader.float64,
        "timedelta_i32": Reader.int32,
        "timedelta_i64": Reader.int64,
        "uuid": _id,
    }
)
"""Readers of the fixed-size types. Durations are returned in ms, ids as hexadecimal digits."""


class Field(NamedTuple):
    """A field of a kio message class, with its type and encoding."""

    name: str
    kind: str
    nested: type[Any] | None
    is_required: bool
    is_array: bool
    is_nullable: bool
    is_tagged: bool


def read(call: Call) -> Any:
    """Decodes the body of a request into kio's message class. Raises `Malformed`."""
    return _read_message(call.reader, _message(call.api.key, call.version, "request"))


def _read_message(reader: Reader, message: Any) -> Any:
    is_flexible = bool(message.__flexible__)
    values = {
        field.name: _read_field(reader, field, is_flexible=is_flexible)
        for field in fields_of(message)
        if not field.is_tagged
    }
    reader.tags(is_flexible=is_flexible)
    return message(**values)


def _read_field(reader: Reader, field: Field, *, is_flexible: bool) -> Any:
    if not field.is_array:
        return _read_entry(reader, field, is_flexible=is_flexible)
    count = reader.array(1, is_flexible=is_flexible)
    if count < 0:
        if not field.is_nullable:
            raise Malformed(f"{field.name} is missing")
        return None
    return tuple(_read_entry(reader, field, is_flexible=is_flexible) for _ in range(count))


def _read_entry(reader: Reader, field: Field, *, is_flexible: bool) -> Any:
    if field.nested is not None:
        is_missing = field.is_nullable and not field.is_array and reader.int8() < 0
        return None if is_missing else _read_message(reader, field.nested)
    if field.kind == "string":
        is_nullable = field.is_nullable and not field.is_array
        read_text = reader.nullable_string if is_nullable else reader.string
        return read_text(is_flexible=is_flexible)
    if field.kind == "bytes":
        span = reader.nullable_span(is_flexible=is_flexible)
        if span is None and not field.is_nullable:
            raise Malformed(f"{field.name} is missing")
        return None if span is None else bytes(reader.frame[span[0] : span[1]])
    return NUMBERS[field.kind](reader)


def write(call: Call, tree: Tree) -> Answer:
    """Encodes an answer, given as nested dicts with kio's field names, in the version of the call."""
    message, writer = _writer(call.api.key, call.version)
    out = BytesIO()
    writer(out, _made(message, tree))
    return [call.head(), out.getvalue()]


@cache
def _writer(key: Key, version: int) -> tuple[type[Any], Callable[[BytesIO, Any], None]]:
    from kio.serial import entity_writer  # noqa: PLC0415 -- not before a client needs it

    message = _message(key, version, "response")
    return message, entity_writer(message)


def _made(message: Any, tree: Tree) -> Any:
    """Returns a kio message object with the values of the tree for which it has fields."""
    return message(
        **{
            field.name: _value(field, tree[field.name])
            for field in fields_of(message)
            if field.is_required or field.name in tree
        }
    )


def _value(field: Field, value: Any) -> Any:
    if field.nested is not None and isinstance(value, Mapping):
        return _made(field.nested, value)
    if field.nested is not None and isinstance(value, Sequence):
        return tuple(_made(field.nested, entry) for entry in value)
    if field.kind.startswith("timedelta"):
        return timedelta(milliseconds=value)
    if field.kind == "uuid" and value is not None:
        return UUID(value)
    if field.kind == "error_code":
        from kio.schema.errors import ErrorCode  # noqa: PLC0415 -- not before a client needs it

        return ErrorCode(value)
    return tuple(value) if isinstance(value, list) else value


@cache
def _message(key: Key, version: int, kind: str) -> type[Any]:
    module = import_module(f"{_PACKAGES}.{key.name.lower()}.v{version}.{kind}")
    message: type[Any] = getattr(module, f"{key.label}{kind.title()}")
    return message


@cache
def fields_of(message: type[Any]) -> list[Field]:
    """Returns the fields of a kio message class in wire order."""
    message_fields = []
    for field in fields(message):
        nested = [part for part in (field.type, *_parts(field.type)) if hasattr(part, "__dataclass_fields__")]
        is_required = field.default is MISSING and field.default_factory is MISSING
        kind = field.metadata.get("kafka_type", "")
        parts = (field.type, *get_args(field.type))
        message_fields.append(
            Field(
                field.name,
                kind,
                nested[0] if nested else None,
                is_required,
                is_array=any(get_origin(part) is tuple for part in parts),
                is_nullable=type(None) in parts,
                is_tagged="tag" in field.metadata,
            )
        )
    return message_fields


def _parts(kind: Any) -> list[Any]:
    return [inner for part in get_args(kind) for inner in (part, *_parts(part))]
