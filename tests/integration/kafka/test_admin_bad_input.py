"""Whatever a request of administration holds, it is answered, or its connection ends; nothing fails unforeseen."""

from __future__ import annotations

import random
from dataclasses import fields
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.integration.kafka.admin_trees import TREES
from tests.integration.kafka.conftest import Client, KafkaSite, message, read_answer, request_frame
from tidelog.broker.kafka.apis import APIS, Key

TEXTS = ("", "t", "new", "a/b", "\0", "x" * 300, "*", "-1", "\u00e9\n", "<default>", "__audit", "User:a")
NUMBERS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
REQUESTS = 150


def spoilt(cls: Any, tree: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """A request with some of its values replaced by what fits their types, and hardly anything else."""
    result = {}
    for field in fields(cls):
        if field.name in tree:
            result[field.name] = _value(field, tree[field.name], chance)
    return result


def _value(field: Any, value: Any, chance: random.Random) -> Any:
    kind = field.metadata.get("kafka_type", "")
    nested = _nested(field.type)
    if nested is not None and isinstance(value, list):
        entries = [spoilt(nested, entry, chance) for entry in value for _ in range(chance.choice((1, 1, 2)))]
        return [] if chance.random() < 0.1 else entries
    if chance.random() > 0.3 or nested is not None:
        return value
    if kind in NUMBERS:
        top = 1 << NUMBERS[kind]
        number = chance.choice((-top, -2, -1, 0, 1, 2, 3, 9, top - 1))
        return (number,) * chance.randrange(3) if isinstance(value, tuple) else number
    if kind == "string":
        text = chance.choice(TEXTS)
        return (text,) if isinstance(value, tuple) else text
    if kind == "bytes":
        return chance.randbytes(chance.choice((0, 4, 32, 64)))
    if kind == "float64":
        return chance.choice((0.0, -1.0, float("nan"), float("inf"), 1e300))
    return (not value) if kind == "bool" else value


def _nested(kind: Any) -> Any:
    if hasattr(kind, "__dataclass_fields__"):
        return kind
    return next(filter(None, map(_nested, getattr(kind, "__args__", ()))), None)


async def ask(client: Client, key: Key, version: int, chance: random.Random) -> bool:
    """Returns False once the connection has ended."""
    cls = getattr(message(key, version, "request"), f"{key.label}Request")
    try:
        frame = request_frame(key, version, spoilt(cls, TREES[key], chance))
    except (TypeError, ValueError):  # no request of this version can say that
        return True
    client.send(frame)
    answer = await client.receive()
    if answer:
        read_answer(key, version, answer)
    return bool(answer)


async def spoil(site: KafkaSite, seed: int, requests: int) -> None:
    chance = random.Random(seed)
    client = await site.client()
    with capture_logs() as logs:
        for _ in range(requests):
            key = chance.choice([*TREES])
            if not await ask(client, key, chance.randint(APIS[key].oldest, APIS[key].newest), chance):
                client = await site.client()
            if "t" not in site.broker.image.topics:
                await site.topic("t", 2)
    assert not [log for log in logs if "unforeseen" in log["event"] or "not foreseen" in log["event"]]
    assert site.server.parts.admission.bodies.used == 0


async def test_spoilt_requests_are_answered(site: KafkaSite) -> None:
    await spoil(site, 1, REQUESTS)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 12))
async def test_many_spoilt_requests_are_answered(site: KafkaSite, seed: int) -> None:
    await spoil(site, seed, 2_000)
