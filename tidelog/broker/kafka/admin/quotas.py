"""DescribeClientQuotas and AlterClientQuotas (KIP-546): the quotas of users, client ids and IP addresses.

In Kafka's messages an entity is a combination of the types `user`, `client-id` and `ip`; a null name stands for the
default quota. The quota keys are those of `model/quotas.py`; Kafka's `request_percentage` is not supported.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, Final

from tidelog.broker.kafka.admin.codes import DONE, Outcome, Refused, outcome_of
from tidelog.broker.kafka.admin.desk import Desk, Tree, bound, refuse_repeated, repeated
from tidelog.controller.commands import QuotaChange
from tidelog.controller.decide_quotas import CHANGES_MAX
from tidelog.model.access import CLUSTER, Operation
from tidelog.model.kafka_codes import KafkaCode
from tidelog.model.quotas import DEFAULT, Entity

TYPES: Final = ("user", "client-id", "ip")
"""Types of a quota entity, in the order of the fields of `Entity`."""
OPS_SHOWN: Final = 10


class Match(enum.IntEnum):
    """Kafka's match types of a quota filter component."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


# -- showing ---------------------------------------------------------------------------------------------------------


async def describe_client_quotas(desk: Desk, request: Any) -> Tree:
    """Describes the quotas of the entities that a filter matches."""
    bound(len(request.components))
    try:
        desk.require(Operation.DESCRIBE_CONFIGS, CLUSTER)
        _check(request)
    except Refused as error:
        return {**outcome_of(error).fields, "entries": None}
    entries = [
        {
            "entity": [
                {"entity_type": kind, "entity_name": None if name == DEFAULT else name}
                for kind, name in zip(TYPES, quota.entity, strict=True)
                if name is not None
            ],
            "values": [{"key": key, "value": rate} for key, rate in quota.rates],
        }
        for quota in desk.image.quotas
        if _takes(request, quota.entity)
    ]
    return {**DONE.fields, "entries": entries}


def _check(request: Any) -> None:
    """Raises `Refused` for a filter with an unknown entity type, a repeated one, or an unknown match type."""
    kinds = [component.entity_type for component in request.components]
    if len(dict.fromkeys(kinds)) != len(kinds):
        raise Refused(KafkaCode.INVALID_REQUEST, "a filter names each type of entity once")
    for component in request.components:
        if component.entity_type not in TYPES:
            raise _no_type(component.entity_type)
        if component.match_type not in (*Match,):
            raise Refused(KafkaCode.INVALID_REQUEST, f"{component.match_type} is no way to mean an entity")


def _takes(request: Any, entity: Entity) -> bool:
    """Returns True if the filter of a request matches the entity."""
    names = dict(zip(TYPES, entity, strict=True))
    if not all(_is_meant(component, names.pop(component.entity_type)) for component in request.components):
        return False
    return not (request.strict and any(name is not None for name in names.values()))


def _is_meant(component: Any, name: str | None) -> bool:
    match component.match_type:
        case Match.EXACT:
            return name is not None and name == component.match
        case Match.DEFAULT:
            return name == DEFAULT
    return name is not None


def _no_type(kind: str) -> Refused:
    return Refused(KafkaCode.UNSUPPORTED_VERSION, f"{kind[:100]!r} is no type of entity; take {', '.join(TYPES)}")


# -- altering --------------------------------------------------------------------------------------------------------


async def alter_client_quotas(desk: Desk, request: Any) -> Tree:
    """Sets or removes the quotas of each entity in the request, independently of the others."""
    bound(*(len(entry.entity) + len(entry.ops) for entry in request.entries))
    is_repeated = repeated(_parts(entry) for entry in request.entries)

    async def alter(entry: Any) -> Tree:
        refuse_repeated(is_repeated=is_repeated(_parts(entry)), what="this entity")
        desk.require(Operation.ALTER_CONFIGS, CLUSTER)
        async with desk.changing(Operation.ALTER_CONFIGS, CLUSTER, _subject(entry)):
            change = _change(entry)
            await desk.administration.alter_quotas([change], validate_only=request.validate_only)
        return _answer(entry, DONE)

    return {"entries": await desk.each(request.entries, alter, _answer, kind=CLUSTER.type, most=CHANGES_MAX)}


def _subject(entry: Any) -> str:
    entity = " ".join(f"{part.entity_type}={part.entity_name}" for part in entry.entity[: len(TYPES)])
    return f"{entity}: " + " ".join(f"{op.key}={None if op.remove else op.value}" for op in entry.ops[:OPS_SHOWN])


def _parts(entry: Any) -> Sequence[Any]:
    return tuple(sorted((part.entity_type, part.entity_name or DEFAULT) for part in entry.entity))


def _change(entry: Any) -> QuotaChange:
    """Returns the change of one entity's quotas. Raises `Refused` for an unknown or repeated entity type, or a repeated
    key."""
    names: dict[str, str | None] = dict.fromkeys(TYPES)
    for part in entry.entity:
        if part.entity_type not in names:
            raise _no_type(part.entity_type)
        if names[part.entity_type] is not None:
            raise Refused(KafkaCode.INVALID_REQUEST, "an entity has one name of each type")
        names[part.entity_type] = DEFAULT if part.entity_name is None else part.entity_name
    rates: dict[str, float | None] = {op.key: None if op.remove else op.value for op in entry.ops}
    if len(rates) != len(entry.ops):
        raise Refused(KafkaCode.INVALID_REQUEST, "a key is changed more than once")
    return QuotaChange(rates, *names.values())


def _answer(entry: Any, outcome: Outcome) -> Tree:
    entity = [{"entity_type": part.entity_type, "entity_name": part.entity_name} for part in entry.entity]
    return {**outcome.fields, "entity": entity}
