"""Hand-written codec of Produce.

The records themselves are not decoded: only their position in the frame is noted, and the partition checks, patches and
writes the batches from there without a copy. Versions 0 to 2 are decoded, so that they can be refused with an answer
that their clients understand.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from tidelog.broker.kafka.call import Answer, Call
from tidelog.broker.kafka.endpoints import Hint, leader_tag, nodes_tag
from tidelog.broker.kafka.slices import ENTRIES
from tidelog.model.kafka_wire import INT32, NO_TAGS, array, string, tagged
from tidelog.model.ports import Buffer
from tidelog.model.receipt_tags import TAG, ProducedTag, encode, is_requested
from tidelog.model.steps import Steps

TRANSACTIONS_FROM: Final = 3
"""First version with RecordBatch v2; older ones are refused."""
MESSAGES_FROM: Final = 8
HINTS_FROM: Final = 10
IDS_FROM: Final = 13
"""First version with topic ids instead of names."""
_ENTRY_BYTES_MIN: Final = 5
_TERMS: Final = struct.Struct(">hi")
OUTCOME: Final = struct.Struct(">ihqqq")
"""Partition, error code, base offset, append time and log start offset."""
OUTCOME_WHOLE_FROM: Final = 5
"""First version whose answer has all of `OUTCOME`."""


class ProduceEntry(Struct):
    """A partition of a Produce request, and its part of the answer."""

    topic: str
    """Name of the topic; at first its id, if the request has ids, and empty if no topic has that."""
    partition: int
    records: tuple[int, int] | None
    """Begin and end of the records in the frame, in bytes; None if the partition has null records."""
    error: int = 0
    message: str | None = None
    base_offset: int = -1
    append_time_ms: int = -1
    log_start_offset: int = -1
    hint: Hint | None = None
    """The current leader, if it is not this broker."""
    tag: ProducedTag | None = None
    """Details for tidelog's own client, sent as a tagged field; None for other clients."""


class ProduceRequest(Struct):
    """A decoded Produce request. `topics` holds the name or id of each topic, as it is encoded, with its
    partitions."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: Sequence[tuple[Buffer, list[ProduceEntry]]]
    entries: list[ProduceEntry]
    """All partitions of the request, in order."""
    is_ours: bool = False
    """True if the client is tidelog's own, which may send several batches for one partition."""


def read_produce(call: Call) -> Steps[ProduceRequest]:
    """Decodes a Produce request; a long one in slices, between which the event loop serves other connections. Raises
    `Malformed`."""
    reader, is_flexible = call.reader, call.is_flexible
    transactional_id = None
    if call.version >= TRANSACTIONS_FROM:
        transactional_id = reader.nullable_string(is_flexible=is_flexible)
    acks, timeout_ms = reader.unpack(_TERMS)
    topics, all_entries, served, has_ids = [], [], 0, call.version >= IDS_FROM
    for _ in range(reader.array(_ENTRY_BYTES_MIN, is_flexible=is_flexible)):
        begin = reader.position
        topic = reader.uuid() if has_ids else reader.string(is_flexible=is_flexible)
        encoded_topic, entries = reader.frame[begin : reader.position], []
        for _ in range(reader.array(_ENTRY_BYTES_MIN, is_flexible=is_flexible)):
            partition = reader.int32()
            entries.append(ProduceEntry(topic, partition, reader.nullable_span(is_flexible=is_flexible)))
            reader.tags(is_flexible=is_flexible)
            served += 1
            if served % ENTRIES == 0:
                yield None
        reader.tags(is_flexible=is_flexible)
        served += 1
        if served % ENTRIES == 0:
            yield None
        topics.append((encoded_topic, entries))
        all_entries += entries
    is_ours = is_requested(reader, is_flexible=is_flexible)
    return ProduceRequest(transactional_id, acks, timeout_ms, topics, all_entries, is_ours)


def write_produced(call: Call, request: ProduceRequest, throttle_ms: int) -> Steps[Answer]:
    """Encodes the answer; a long one in slices, between which the event loop serves other connections."""
    version, is_flexible, served = call.version, call.is_flexible, 0
    out = bytearray(call.head())
    out += array(len(request.topics), is_flexible=is_flexible)
    for topic, entries in request.topics:
        out += topic
        out += array(len(entries), is_flexible=is_flexible)
        for entry in entries:
            _write_entry(out, entry, version, is_flexible=is_flexible)
            served += 1
            if served % ENTRIES == 0:
                yield None
        if is_flexible:
            out += NO_TAGS
    if version >= 1:
        out += INT32.pack(throttle_ms)
    if version >= HINTS_FROM:
        out += nodes_tag([entry.hint for entry in request.entries if entry.hint is not None])
    elif is_flexible:
        out += NO_TAGS
    return [out]


def _write_entry(out: bytearray, entry: ProduceEntry, version: int, *, is_flexible: bool) -> None:
    place = entry.partition, entry.error, entry.base_offset, entry.append_time_ms, entry.log_start_offset
    out += OUTCOME.pack(*place)[: 30 if version >= OUTCOME_WHOLE_FROM else 22 if version >= 2 else 14]
    if version >= MESSAGES_FROM:
        out += array(0, is_flexible=is_flexible) + string(entry.message, is_flexible=is_flexible)
    if entry.tag is not None or (version >= HINTS_FROM and entry.hint is not None):
        fields = {} if entry.tag is None else {TAG: encode(entry.tag)}
        if version >= HINTS_FROM and entry.hint is not None:
            fields[0] = leader_tag(entry.hint)
        out += tagged(fields)
    elif is_flexible:
        out += NO_TAGS
