"""Hand-written codec of Fetch. The answer is a list of buffers, so that record batches are sent as read, without a
copy.

A client's next Fetch mostly differs from its last one in nothing but the correlation id and the offsets. `LastFetch`
decodes only these then.
"""

from __future__ import annotations

import struct
from operator import attrgetter
from typing import Final

from msgspec import Struct

from tidelog.broker.kafka.call import Answer, Call
from tidelog.broker.kafka.endpoints import Hint, leader_tag, nodes_tag
from tidelog.broker.kafka.slices import ENTRIES
from tidelog.model.kafka_wire import INT32, INT64, NO_TAGS, array, tagged, uvarint
from tidelog.model.ports import Buffer
from tidelog.model.receipt_tags import TAG, FetchedTag, encode, is_requested
from tidelog.model.steps import Steps

SESSIONS_FROM: Final = 7
RACKS_FROM: Final = 11
IDS_FROM: Final = 13
HINTS_FROM: Final = 16
NO_SESSION: Final = 0
NO_REPLICA: Final = -1
_ENTRY_BYTES_MIN: Final = 5
_TERMS: Final = struct.Struct(">iiib")
"""Layout of the wait, the bounds, and the isolation level, which is ignored: all that can be read is committed."""
_TERMS_IN_SESSION: Final = struct.Struct(">iiibii")
_WANTED: Final = struct.Struct(">iiqiqi")
"""Layout of a partition's fields in flexible versions. Ignored are the epoch of what was fetched last, and where the
asking broker's log begins: they are for brokers."""
_OFFSET_AT: Final = 8
"""Place of the offset among a partition's fields in flexible versions."""
_BEGIN: Final = struct.Struct(">ihi")
_PARTITION: Final = struct.Struct(">ihqqqbi")
"""Layout of a partition in an answer of a flexible version: partition, error code, high watermark, last stable offset,
log start offset, no aborted transactions, preferred read replica."""
_HEAD: Final = struct.Struct(">ihqqq")
_NO_OFFSET: Final = bytes(INT64.size)
_ID: Final = slice(4, 8)
"""Place of the correlation id in a request."""
_NO_ID: Final = bytes(INT32.size)
_CURRENT_LEADER: Final = 1
REMEMBERED_BYTES_MAX: Final = 4 << 10
"""Size of the largest Fetch that a connection remembers: about a hundred partitions."""


class FetchEntry(Struct):
    """A partition of a Fetch request, and its part of the answer."""

    key: str
    """Name or id of the topic, as the client sent it."""
    partition: int
    leader_epoch: int
    offset: int
    offset_at: int
    """Place of the offset in the frame."""
    bytes_max: int
    topic: str
    """Name of the topic; empty if no topic has the id that the client sent."""
    error: int = 0
    high_watermark: int = -1
    log_start_offset: int = -1
    data: Buffer = b""
    preferred: int = NO_REPLICA
    hint: Hint | None = None
    tag: FetchedTag | None = None
    """Details for tidelog's own client, sent as a tagged field; None for other clients."""

    def reset(self) -> None:
        """Clears the answer part of the entry."""
        self.data, self.error, self.preferred, self.hint, self.tag = b"", 0, NO_REPLICA, None, None
        self.high_watermark = self.log_start_offset = -1


class FetchRequest(Struct):
    """A decoded Fetch request. `topics` holds the name or id of each topic, as it is encoded, with its partitions."""

    wait_ms: int
    bytes_min: int
    bytes_max: int
    session_id: int
    session_epoch: int
    topics: list[tuple[memoryview, list[FetchEntry]]]
    entries: list[FetchEntry]
    """All partitions of the request, in order."""
    has_ids: bool = False
    """True if topics are named by id."""
    rack: str = ""
    is_ours: bool = False
    """True if the client is tidelog's own."""


_fields: Final = attrgetter("error", "high_watermark", "log_start_offset", "preferred", "hint", "tag")


class LastFetch:
    """The last Fetch of a connection, if it is small. A request that repeats it is not decoded anew. If there are still
    no records, and nothing else has changed, its answer is not encoded anew."""

    __slots__ = ("_empty", "_form", "_offsets_at", "_request", "_said")

    def __init__(self) -> None:
        self._request: FetchRequest | None = None
        self._form = bytearray()
        """The frame with zeros for its correlation id and offsets."""
        self._offsets_at: list[int] = []
        self._said: list[object] = []
        """The throttle time and the fields of the partitions in the last answer without records."""
        self._empty = b""
        """The bytes of the last answer without records that follow its header."""

    def read(self, call: Call) -> Steps[FetchRequest]:
        """Decodes a Fetch as `read_fetch` does. If it differs from the last one only in its correlation id and offsets,
        returns the same object with the new offsets."""
        frame, last = call.frame, self._request
        if last is not None and len(frame) == len(self._form) and _form(frame, self._offsets_at) == self._form:
            for entry in last.entries:
                (entry.offset,) = INT64.unpack_from(frame, entry.offset_at)
            return last
        self._request = None
        request = yield from read_fetch(call)
        if len(frame) <= REMEMBERED_BYTES_MAX:
            self._request, self._offsets_at = request, [entry.offset_at for entry in request.entries]
            self._form = _form(frame, self._offsets_at)
            self._said.clear()
        return request

    def write_empty(self, call: Call, request: FetchRequest, throttle_ms: int) -> Steps[Answer]:
        """Encodes an answer without records as `write_fetched` does."""
        if request is not self._request:
            return (yield from write_fetched(call, request, throttle_ms))
        said: list[object] = [throttle_ms, *map(_fields, request.entries)]
        if said != self._said:
            (answer,) = yield from write_fetched(call, request, throttle_ms)
            self._said, self._empty = said, bytes(answer)[len(call.head()) :]
        return [call.head() + self._empty]


def _form(frame: memoryview, offsets_at: list[int]) -> bytearray:
    """Returns the frame with zeros for its correlation id and the offsets."""
    form = bytearray(frame)
    form[_ID] = _NO_ID
    for begin in offsets_at:
        form[begin : begin + INT64.size] = _NO_OFFSET
    return form


def read_fetch(call: Call) -> Steps[FetchRequest]:
    """Decodes a Fetch request, in slices, between which the event loop serves other connections. Raises
    `Malformed`."""
    reader, version = call.reader, call.version
    if version < 15:
        reader.int32()  # the broker that asks, of which there is none
    if version < SESSIONS_FROM:
        wait_ms, bytes_min, bytes_max, _ = reader.unpack(_TERMS)
        session_id, session_epoch = NO_SESSION, -1
    else:
        wait_ms, bytes_min, bytes_max, _, session_id, session_epoch = reader.unpack(_TERMS_IN_SESSION)
    topics, entries = yield from _read_topics(call)
    has_ids = version >= IDS_FROM
    request = FetchRequest(wait_ms, bytes_min, bytes_max, session_id, session_epoch, topics, entries, has_ids)
    if version >= SESSIONS_FROM:
        _skip_forgotten(call)
    if version >= RACKS_FROM:
        request.rack = reader.string(is_flexible=call.is_flexible)
    request.is_ours = is_requested(reader, is_flexible=call.is_flexible)
    return request


def _read_topics(call: Call) -> Steps[tuple[list[tuple[memoryview, list[FetchEntry]]], list[FetchEntry]]]:
    reader, is_flexible = call.reader, call.is_flexible
    topics, all_entries, served = [], [], 0
    for _ in range(reader.array(_ENTRY_BYTES_MIN, is_flexible=is_flexible)):
        begin = reader.position
        topic = reader.uuid() if call.version >= IDS_FROM else reader.string(is_flexible=is_flexible)
        encoded_topic = reader.frame[begin : reader.position]
        count = reader.array(_ENTRY_BYTES_MIN, is_flexible=is_flexible)
        entries = []
        for _ in range(count):
            entries.append(_read_entry(call, topic))
            served += 1
            if served % ENTRIES == 0:
                yield None
        topics.append((encoded_topic, entries))
        all_entries += entries
        reader.tags(is_flexible=is_flexible)
    return topics, all_entries


def _read_entry(call: Call, topic: str) -> FetchEntry:
    reader, version = call.reader, call.version
    if call.is_flexible:
        offset_at = reader.position + _OFFSET_AT
        partition, leader_epoch, offset, _, _, bytes_max = reader.unpack(_WANTED)
        reader.tags(is_flexible=True)
        return FetchEntry(topic, partition, leader_epoch, offset, offset_at, bytes_max, topic)
    partition = reader.int32()
    leader_epoch = reader.int32() if version >= 9 else -1
    offset_at, offset = reader.position, reader.int64()
    if version >= 5:
        reader.int64()
    bytes_max = reader.int32()
    return FetchEntry(topic, partition, leader_epoch, offset, offset_at, bytes_max, topic)


def _skip_forgotten(call: Call) -> None:
    reader, is_flexible = call.reader, call.is_flexible
    for _ in range(reader.array(_ENTRY_BYTES_MIN, is_flexible=is_flexible)):
        if call.version >= IDS_FROM:
            reader.uuid()
        else:
            reader.string(is_flexible=is_flexible)
        for _ in range(reader.array(4, is_flexible=is_flexible)):
            reader.int32()
        reader.tags(is_flexible=is_flexible)


def write_fetched(call: Call, request: FetchRequest, throttle_ms: int, error: int = 0) -> Steps[Answer]:
    """Encodes the answer: buffers with fields alternate with the record batches, which leave the request. A long answer
    is encoded in slices, between which the event loop serves other connections."""
    version, is_flexible = call.version, call.is_flexible
    pieces: Answer = []
    out = bytearray(call.head())
    out += _BEGIN.pack(throttle_ms, error, NO_SESSION)[: 10 if version >= SESSIONS_FROM else 4]
    topics = [] if error else request.topics
    served = 0
    out += array(len(topics), is_flexible=is_flexible)
    for topic, entries in topics:
        out += topic
        out += array(len(entries), is_flexible=is_flexible)
        for entry in entries:
            out += _head_of(entry) if is_flexible else _old_head_of(entry, version)
            if entry.data:
                pieces += (out, entry.data)
                out, entry.data = bytearray(), b""
            if is_flexible:
                out += _end_of(entry, version)
            served += 1
            if served % ENTRIES == 0:
                yield None
        if is_flexible:
            out += NO_TAGS
    if version >= HINTS_FROM:
        out += nodes_tag([entry.hint for entry in request.entries if entry.hint is not None])
    elif is_flexible:
        out += NO_TAGS
    pieces.append(out)
    return pieces


def _head_of(entry: FetchEntry) -> bytes:
    """Encodes a partition's fields up to and including the length of its records."""
    end = entry.high_watermark  # without transactions the last stable offset, too
    fields = _PARTITION.pack(entry.partition, entry.error, end, end, entry.log_start_offset, 0, entry.preferred)
    return fields + uvarint(len(entry.data) + 1)


def _old_head_of(entry: FetchEntry, version: int) -> bytes:
    """Encodes what `_head_of` does, for versions that are not flexible."""
    end = entry.high_watermark
    head = _HEAD.pack(entry.partition, entry.error, end, end, entry.log_start_offset)
    out = (head if version >= 5 else head[:-8]) + INT32.pack(-1)  # no aborted transactions
    if version >= RACKS_FROM:
        out += INT32.pack(entry.preferred)
    return out + INT32.pack(len(entry.data))


def _end_of(entry: FetchEntry, version: int) -> bytes:
    if entry.tag is None and entry.hint is None:
        return NO_TAGS
    fields = {} if entry.tag is None else {TAG: encode(entry.tag)}
    if entry.hint is not None and version >= HINTS_FROM:
        fields[_CURRENT_LEADER] = leader_tag(entry.hint)
    return tagged(fields)
