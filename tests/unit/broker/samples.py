"""The smallest message of each kind, made of its type, so that a new kind of message is tried as well."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import inspect


def _made(kind: Any) -> Any:
    return BY_TYPE[type(kind)](kind)


def _struct(kind: Any) -> Any:
    return kind.cls(**{field.name: _made(field.type) for field in kind.fields if field.required})


BY_TYPE: Final[Mapping[type, Callable[[Any], Any]]] = {
    inspect.IntType: lambda kind: 1,
    inspect.FloatType: lambda kind: 1.0,
    inspect.StrType: lambda kind: "a" * 32,
    inspect.BytesType: lambda kind: b"",
    inspect.BoolType: lambda kind: False,
    inspect.NoneType: lambda kind: None,
    inspect.EnumType: lambda kind: next(iter(kind.cls)),
    inspect.LiteralType: lambda kind: kind.values[0],
    inspect.VarTupleType: lambda kind: (),
    inspect.ListType: lambda kind: [],
    inspect.CollectionType: lambda kind: [],
    inspect.DictType: lambda kind: {},
    inspect.TupleType: lambda kind: tuple(map(_made, kind.item_types)),
    inspect.UnionType: lambda kind: _made(kind.types[0]),
    inspect.NamedTupleType: _struct,
    inspect.StructType: _struct,
}


def sample(kind: type[msgspec.Struct], **fields: object) -> Any:
    """Returns a message; all that has a default has it, unless it is given."""
    return msgspec.structs.replace(_made(inspect.type_info(kind)), **fields)


def numbers(kind: type[msgspec.Struct]) -> Iterator[tuple[str, Any]]:
    """Yields all whole numbers in a kind of message, with the path to each."""
    return _numbers(inspect.type_info(kind), kind.__name__, frozenset())


def _numbers(kind: Any, path: str, seen: frozenset[type]) -> Iterator[tuple[str, Any]]:
    if isinstance(kind, inspect.IntType):
        yield path, kind
    elif isinstance(kind, inspect.StructType | inspect.NamedTupleType):
        for field in kind.fields if kind.cls not in seen else ():
            yield from _numbers(field.type, f"{path}.{field.name}", seen | {kind.cls})
    else:
        assert type(kind) in BY_TYPE, f"{path} is of a type that nobody looks into: {kind}"
        parts = [getattr(kind, name, None) for name in ("item_type", "key_type", "value_type")]
        several = (*getattr(kind, "types", ()), *getattr(kind, "item_types", ()))
        for part in (*several, *(one for one in parts if one is not None)):
            yield from _numbers(part, path, seen)
