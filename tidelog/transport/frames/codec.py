"""Client-side encoding of the few requests of Kafka's protocol that tidelog's clients send: Produce, Fetch, and the
requests that open a connection.

Each has one version, the first with tagged fields (Produce 9, Fetch 12), which names topics by their names. Batches are
buffers of a request and slices of a response; neither are copied. A response that violates the protocol raises
`Malformed`.

Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from tidelog.model.kafka_wire import INT32, NO_TAGS, Malformed, Reader, array, string, uvarint
from tidelog.model.ports import Buffer
from tidelog.model.receipt_tags import REQUEST_TAG, TAG

PRODUCE: Final = 0
FETCH: Final = 1
METADATA: Final = 3
SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
SASL_AUTHENTICATE: Final = 36
PRODUCE_VERSION: Final = 9
FETCH_VERSION: Final = 12
NULL: Final = b"\x00"
_HEAD: Final = struct.Struct(">hhi")
_TERMS: Final = struct.Struct(">hi")
_PLACE: Final = struct.Struct(">ihqqq")


class Sent(NamedTuple):
    """The batches of one partition in a Produce request."""

    topic: str
    partition: int
    batches: Sequence[Buffer]
    size: int


class PartitionStatus(NamedTuple):
    """The part of a Produce or Fetch response about one partition: Kafka's error code and message, and the tagged field
    that tidelog adds."""

    code: int
    message: str
    tag: memoryview | None


def head(key: int, version: int, client_id: str, *, is_flexible: bool) -> bytes:
    """Returns the header of a request. The correlation id is always the same, since a connection has one request in
    flight."""
    begin = _HEAD.pack(key, version, 0) + string(client_id, is_flexible=False)
    return begin + NO_TAGS if is_flexible else begin


def produce(client_id: str, acks: int, timeout_ms: int, parcels: Sequence[Sent]) -> list[Buffer]:
    """Returns a Produce request as a list of buffers, which contains the batches uncopied."""
    pieces: list[Buffer] = []
    out = bytearray(head(PRODUCE, PRODUCE_VERSION, client_id, is_flexible=True))
    out += NULL + _TERMS.pack(acks, timeout_ms) + array(len(parcels), is_flexible=True)
    for parcel in parcels:
        out += string(parcel.topic, is_flexible=True) + array(1, is_flexible=True)
        out += INT32.pack(parcel.partition) + uvarint(parcel.size + 1)
        pieces += [out, *parcel.batches]
        out = bytearray(NO_TAGS + NO_TAGS)
    out += REQUEST_TAG
    return [*pieces, out]


def read_produced(frame: memoryview, parcels: Sequence[Sent]) -> list[PartitionStatus]:
    """Parses a Produce response. Raises `Malformed` for an invalid response or one about other partitions than
    `parcels`."""
    reader = _answer(frame, is_flexible=True)
    if reader.array(1, is_flexible=True) != len(parcels):
        raise Malformed(f"the answer is not about the {len(parcels)} partitions that were sent")
    results = []
    for parcel in parcels:
        name, count = reader.string(is_flexible=True), reader.array(1, is_flexible=True)
        partition, code = reader.int32(), reader.int16()
        if (name, count, partition) != (parcel.topic, 1, parcel.partition):
            raise Malformed(f"the answer tells of {name} {partition} where {parcel.topic} {parcel.partition} was sent")
        for _ in range(3):  # base offset, append time, log start
            reader.int64()
        for _ in range(reader.array(1, is_flexible=True)):  # errors of single records
            reader.int32()
            reader.nullable_string(is_flexible=True)
            reader.tags(is_flexible=True)
        message = reader.nullable_string(is_flexible=True) or ""
        results.append(PartitionStatus(code, message, reader.tag(TAG)))
        reader.tags(is_flexible=True)
    return results


def versions(client_id: str) -> list[Buffer]:
    """Returns an ApiVersions request of version 0."""
    return [head(API_VERSIONS, 0, client_id, is_flexible=False)]


def has_what_is_needed(frame: memoryview) -> bool:
    """Parses an ApiVersions response. Returns True if the broker supports the Produce and Fetch versions of this
    module."""
    reader = _answer(frame, is_flexible=False)
    if reader.int16() != 0:
        return False
    versions_of = {}
    for _ in range(reader.array(6, is_flexible=False)):
        key, oldest, newest = reader.int16(), reader.int16(), reader.int16()
        versions_of[key] = range(oldest, newest + 1)
    return PRODUCE_VERSION in versions_of.get(PRODUCE, ()) and FETCH_VERSION in versions_of.get(FETCH, ())


def no_topics(client_id: str) -> list[Buffer]:
    """Returns a Metadata request without topics. A listener that requires authentication closes the connection on it,
    which shows the requirement."""
    return [head(METADATA, 1, client_id, is_flexible=False) + array(0, is_flexible=False)]


def handshake(client_id: str, mechanism: str) -> list[Buffer]:
    """Returns a SaslHandshake request for a SASL mechanism."""
    return [head(SASL_HANDSHAKE, 1, client_id, is_flexible=False) + string(mechanism, is_flexible=False)]


def read_handshake(frame: memoryview) -> tuple[bool, list[str]]:
    """Parses a SaslHandshake response. Returns True if the broker accepts the mechanism, and the list of mechanisms
    that it supports."""
    reader = _answer(frame, is_flexible=False)
    code = reader.int16()
    return code == 0, [reader.string(is_flexible=False) for _ in range(reader.array(2, is_flexible=False))]


def authenticate(client_id: str, message: bytes) -> list[Buffer]:
    """Returns a SaslAuthenticate request with one SASL message."""
    return [head(SASL_AUTHENTICATE, 1, client_id, is_flexible=False) + INT32.pack(len(message)) + message]


def read_authenticated(frame: memoryview) -> tuple[str | None, bytes]:
    """Parses a SaslAuthenticate response. Returns the error message of a failed authentication, or None, and the
    broker's SASL message."""
    reader = _answer(frame, is_flexible=False)
    code, message = reader.int16(), reader.nullable_string(is_flexible=False)
    span = reader.nullable_span(is_flexible=False) or (0, 0)
    return None if code == 0 else message or f"error {code}", bytes(frame[slice(*span)])


def _answer(frame: memoryview, *, is_flexible: bool) -> Reader:
    """Returns a reader of a response, positioned behind the response header."""
    reader = Reader(frame)
    reader.int32()
    reader.tags(is_flexible=is_flexible)
    return reader


class Fetched(NamedTuple):
    """The result of a Fetch of one partition. `records` is a slice of the response's buffer."""

    status: PartitionStatus
    high_watermark: int
    log_start_offset: int
    records: memoryview


class FetchQuery(NamedTuple):
    """The parameters of a Fetch of one partition."""

    topic: str
    partition: int
    offset: int
    bytes_max: int
    bytes_min: int
    wait_ms: int


def fetch(client_id: str, query: FetchQuery) -> list[Buffer]:
    """Returns a Fetch request for one partition."""
    out = bytearray(head(FETCH, FETCH_VERSION, client_id, is_flexible=True))
    out += INT32.pack(-1) + struct.pack(">iiibii", query.wait_ms, query.bytes_min, query.bytes_max, 1, 0, -1)
    out += array(1, is_flexible=True) + string(query.topic, is_flexible=True) + array(1, is_flexible=True)
    out += struct.pack(">iiqiqi", query.partition, -1, query.offset, -1, -1, query.bytes_max)
    out += NO_TAGS + NO_TAGS + array(0, is_flexible=True) + string("", is_flexible=True) + REQUEST_TAG
    return [out]


def read_fetched(frame: memoryview, query: FetchQuery) -> Fetched:
    """Parses a Fetch response. Raises `Malformed` for an invalid response or one about another partition."""
    reader = _answer(frame, is_flexible=True)
    reader.int32()  # how long the broker does not listen, which shows by itself
    code = reader.int16()
    reader.int32()
    if code != 0:
        return Fetched(PartitionStatus(code, "", None), -1, -1, frame[:0])
    if reader.array(1, is_flexible=True) != 1 or reader.string(is_flexible=True) != query.topic:
        raise Malformed(f"the answer is not about {query.topic}")
    if reader.array(1, is_flexible=True) != 1:
        raise Malformed(f"the answer is not about one partition of {query.topic}")
    partition, code, high_watermark, _, log_start_offset = reader.unpack(_PLACE)
    if partition != query.partition:
        raise Malformed(f"the answer is about partition {partition}, and not {query.partition}")
    for _ in range(reader.array(16, is_flexible=True)):  # aborted transactions
        reader.skip(16)
        reader.tags(is_flexible=True)
    reader.int32()  # a replica that is nearer
    begin, end = reader.nullable_span(is_flexible=True) or (0, 0)
    return Fetched(PartitionStatus(code, "", reader.tag(TAG)), high_watermark, log_start_offset, frame[begin:end])
