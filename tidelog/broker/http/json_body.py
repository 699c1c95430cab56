"""JSON bodies: decoded straight into typed structs, so that what is not expected is refused and never half-read.

A JSON key or value is kept as the exact text that was sent (`msgspec.Raw`): `1.0`, 2**70 and the order of keys survive,
and the partitioner sees the bytes that will be stored. The decoder checks that the text is JSON, also inside such a
value, and that its escapes are whole; that its bytes are UTF-8 is checked here, once for the whole body. If an object
has a key twice, the last one counts, as with every parser of the broker.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from types import MappingProxyType
from typing import Annotated, Any, Final, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Meta, Raw, Struct, field

from tidelog.broker.http.params import INT32_MAX
from tidelog.model.errors import InvalidRequest
from tidelog.model.ids import OFFSET_MAX
from tidelog.model.steps import Steps

T = TypeVar("T")

Ignored: TypeAlias = Raw
"""A field that is taken and means nothing; docs/http-api.md lists them."""

PartitionNumber = Annotated[int, Meta(ge=0, le=INT32_MAX)]
NodeNumber = Annotated[int, Meta(ge=0, le=INT32_MAX)]
OffsetNumber = Annotated[int, Meta(ge=0, le=OFFSET_MAX)]
TimestampMs = Annotated[int, Meta(ge=0, le=OFFSET_MAX)]
ByteRate = Annotated[int, Meta(ge=0, le=OFFSET_MAX)]
Duration = Annotated[int, Meta(ge=0, le=OFFSET_MAX)]

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
PIECE_BYTES: Final = 64 << 10
"""A large body is decoded so much at a time: some 2 ms, of small records."""
_NULL: Final = b"null"
_SEAM: Final = re.compile(rb"\}[ \t\r\n]{0,1000},[ \t\r\n]{0,1000}\{")
_PLACE: Final = re.compile(r"`\$\[(\d+)\]")


class Body(Struct, forbid_unknown_fields=True):
    """Base of all request bodies: an unknown field is an error, because it is a misspelt known one. What clients of
    other proxies send and we have no use for is known, and `Ignored`."""


# -- v2 ------------------------------------------------------------------------------------------------------------


class HeaderV2(Body):
    """A record header; the value is base64 (Strimzi's extension of v2)."""

    key: str
    value: bytes | None = None


class BinaryRecord(Body):
    """A record whose key and value are base64."""

    key: bytes | None = None
    value: bytes | None = None
    partition: PartitionNumber | None = None
    headers: list[HeaderV2] | None = None
    timestamp: TimestampMs | None = None


class JsonRecord(Body):
    """A record whose key and value are any JSON, kept as it was written."""

    key: Raw = field(default_factory=Raw)
    value: Raw = field(default_factory=Raw)
    partition: PartitionNumber | None = None
    headers: list[HeaderV2] | None = None
    timestamp: TimestampMs | None = None


class TextRecord(Body):
    """A record whose key and value are strings, stored as UTF-8."""

    key: str | None = None
    value: str | None = None
    partition: PartitionNumber | None = None
    headers: list[HeaderV2] | None = None
    timestamp: TimestampMs | None = None


class _Schemas(Body):
    """The fields of a request for a schema registry: they are ignored for these formats, as by Confluent's proxy."""

    key_schema: Ignored = field(default_factory=Raw)
    key_schema_id: Ignored = field(default_factory=Raw)
    value_schema: Ignored = field(default_factory=Raw)
    value_schema_id: Ignored = field(default_factory=Raw)


class BinaryRecords(_Schemas, kw_only=True):
    """The body of a v2 produce request, embedded format binary."""

    records: list[BinaryRecord]


class JsonRecords(_Schemas, kw_only=True):
    """The body of a v2 produce request, embedded format json."""

    records: list[JsonRecord]


class TextRecords(_Schemas, kw_only=True):
    """The body of a v2 produce request, embedded format text."""

    records: list[TextRecord]


# -- v3 ------------------------------------------------------------------------------------------------------------


class HeaderV3(Body):
    """A record header; the value is base64."""

    name: str
    value: bytes | None = None


class DataV3(Body):
    """A key or a value: `data` is base64 (BINARY), text (STRING) or anything (JSON); null is none or a tombstone.

    What a schema registry would need means nothing for these types.
    """

    type: str | None = None
    data: Raw = field(default_factory=Raw)
    subject: Ignored = field(default_factory=Raw)
    subject_name_strategy: Ignored = field(default_factory=Raw)
    schema: Ignored = field(default_factory=Raw)
    schema_id: Ignored = field(default_factory=Raw)
    schema_version: Ignored = field(default_factory=Raw)


class RecordV3(Body):
    """A record of a v3 `records` request."""

    partition_id: PartitionNumber | None = None
    headers: list[HeaderV3] | None = None
    key: DataV3 | None = None
    value: DataV3 | None = None
    timestamp: datetime | None = None


class EntryV3(RecordV3, kw_only=True):
    """A record of a v3 `records:batch` request; `id` names its receipt."""

    id: str


class EntriesV3(Body):
    """The body of v3 `records:batch`."""

    entries: list[EntryV3]


class _RecordsOutline(_Schemas, kw_only=True):
    records: Raw


class _EntriesOutline(Body):
    entries: Raw


class NotJson(InvalidRequest):
    """A body, or one of the documents that follow each other in it, is no JSON at all."""


def json_decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    """Returns a decoder for a body of this kind."""
    return msgspec.json.Decoder(kind)


def decode_body(decoder: msgspec.json.Decoder[T], body: bytes | bytearray) -> T:
    """Returns the body as the decoder's type. Raises `InvalidRequest`, saying where, if it is not; `NotJson` if it is
    no JSON."""
    try:
        if not body.isascii():
            body.decode()
        return decoder.decode(body)
    except UnicodeDecodeError as error:
        raise NotJson(f"the body is not UTF-8 (byte {error.start})") from None
    except RecursionError:
        raise InvalidRequest("the JSON is nested too deeply") from None
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"the body cannot be used: {error}") from None
    except msgspec.DecodeError as error:
        raise NotJson(f"the body cannot be used: {error}") from None


_OUTLINES: Final[Mapping[str, msgspec.json.Decoder[Any]]] = MappingProxyType(
    {"records": json_decoder(_RecordsOutline), "entries": json_decoder(_EntriesOutline)}
)


def decode_items(whole: msgspec.json.Decoder[Any], field: str, kind: type[T], body: bytearray) -> Steps[list[T]]:
    """Returns the items of the array that is the `field` of a body, in slices. Raises as `decode_body`.

    A body of some size is looked through once, as a whole, for its outline; then its array is decoded piece by piece.
    Where a piece may end is guessed, at some `},{`, and the decoder is the judge: as it begins where an item does, it
    can only be a whole array if it ends where one does. A guess that was wrong is followed by a piece twice as long.
    """
    if len(body) <= PIECE_BYTES:
        return cast("list[T]", getattr(decode_body(whole, body), field))
    text = memoryview(getattr(decode_body(_OUTLINES[field], body), field))
    yield None
    if bytes(text[:1]) != b"[":
        decode_body(whole, body)  # which says what is wrong
    return (yield from _items(text[1:-1], field, msgspec.json.Decoder(list[kind])))  # type: ignore[valid-type] # known at run time


def _items(text: memoryview, field: str, decoder: msgspec.json.Decoder[list[T]]) -> Steps[list[T]]:
    items: list[T] = []
    start, size = 0, PIECE_BYTES
    while start < len(text):
        seam = _SEAM.search(text, start + size)
        end = len(text) if seam is None else seam.start() + 1
        piece = b"".join((b"[", text[start:end], b"]"))
        try:
            items += decoder.decode(piece)
            size, start = PIECE_BYTES, len(text) if seam is None else seam.end() - 1
        except msgspec.ValidationError as error:
            raise InvalidRequest(f"the body cannot be used: {_in_body(str(error), field, len(items))}") from None
        except msgspec.DecodeError as error:
            if seam is None:
                raise NotJson(f"the body cannot be used: {error}") from None
            size *= 2
        yield None
    return items


def _in_body(message: str, field: str, before: int) -> str:
    """Says of the body what a decoder said of a piece: `$[2].key` is `$.records[1002].key`."""
    return _PLACE.sub(lambda place: f"`$.{field}[{before + int(place[1])}]", message, count=1)


def stored_json(text: Raw) -> bytes | None:
    """Returns a JSON value as it is stored: its exact text. None, no key or a tombstone, for null and for an absent
    field."""
    data = bytes(text)
    return None if data in (b"", _NULL) else data


def milliseconds(moment: datetime) -> int:
    """Returns a point in time as milliseconds since 1970; without a zone it is UTC. Raises `InvalidRequest` if it is
    before."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    value = (moment - EPOCH) // timedelta(milliseconds=1)
    if value < 0:
        raise InvalidRequest("timestamp is before 1970")
    return value


@lru_cache(maxsize=256)  # the receipts of a group mostly have one time
def iso_time(timestamp_ms: int) -> str | None:
    """Milliseconds since 1970 as RFC 3339; None if there is no such time or it is beyond the year 9999."""
    if timestamp_ms < 0:
        return None
    try:
        return (EPOCH + timedelta(milliseconds=timestamp_ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return None
