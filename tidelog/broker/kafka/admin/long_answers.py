"""Encoding of long answers in pieces, between which the event loop serves other connections.

`kafka-topics --describe` asks for the settings of all topics at once; encoding that answer in one go would block the
event loop for a second. In these answers the long list is the last field. Each entry is encoded in an answer of its
own, cut out of it, and appended to the entries before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tidelog.broker.kafka import cold
from tidelog.broker.kafka.apis import Key
from tidelog.broker.kafka.call import Answer, Call
from tidelog.model.kafka_wire import NO_TAGS, array

SLICE: Final = 20
"""Number of entries that are encoded before the event loop serves other connections."""
LAST_FIELDS: Final[Mapping[Key, str]] = MappingProxyType(
    {
        Key.CREATE_TOPICS: "topics",
        Key.DELETE_TOPICS: "responses",
        Key.CREATE_PARTITIONS: "results",
        Key.DESCRIBE_CONFIGS: "results",
        Key.INCREMENTAL_ALTER_CONFIGS: "responses",
        Key.ALTER_CONFIGS: "responses",
        Key.LIST_CONFIG_RESOURCES: "config_resources",
        Key.DESCRIBE_ACLS: "resources",
        Key.CREATE_ACLS: "results",
        Key.DELETE_ACLS: "filter_results",
        Key.DESCRIBE_USER_SCRAM_CREDENTIALS: "results",
        Key.ALTER_USER_SCRAM_CREDENTIALS: "results",
    }
)


async def written(call: Call, tree: cold.Tree) -> Answer:
    """Encodes an answer, given as nested dicts with kio's field names, in the version of the call. Yields to the event
    loop while it encodes a long list of entries."""
    field = LAST_FIELDS.get(call.api.key)
    if field is None or len(tree[field]) <= SLICE:
        return cold.write(call, tree)
    head, empty = cold.write(call, {**tree, field: []})
    tail = NO_TAGS if call.is_flexible else b""
    count_size = len(array(0, is_flexible=call.is_flexible))
    fixed = bytes(empty)[: -count_size - len(tail)]
    out = bytearray(fixed + array(len(tree[field]), is_flexible=call.is_flexible))
    for number, entry in enumerate(tree[field]):
        _, alone = cold.write(call, {**tree, field: [entry]})
        out += alone[len(fixed) + count_size : len(alone) - len(tail)]
        if number % SLICE == SLICE - 1:
            await asyncio.sleep(0)
    return [head, out + tail]
