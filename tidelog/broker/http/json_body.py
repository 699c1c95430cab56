"""JSON bodies, decoded straight into typed structs, so that unexpected fields are refused instead of ignored.

A JSON key or value is kept as the exact text that was sent (`msgspec.Raw`): `1.0`, 2**70 and the order of object keys
survive, and the partitioner sees the bytes that will be stored. The decoder checks that the text is JSON, also inside
such a value, and that its escapes are complete; that its bytes are UTF-8 is checked here, once for the whole body. If
an object has a key twice, the last one counts, as in every parser of the broker.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from types import MappingProxyType
from typing import Annotated, Final, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Meta, Raw, Struct, field

from tidelog.broker.http.params import INT32_MAX
from tidelog.model.errors import InvalidRequest
from tidelog.model.ids import OFFSET_MAX
from tidelog.model.json_decoders import decoder_of
from tidelog.model.steps import Steps

T = TypeVar("T")

Ignored: TypeAlias = Raw
"""The type of a field that is accepted and ignored; docs/http-api.md lists these."""

PartitionNumber = Annotated[int, Meta(ge=0, le=INT32_MAX)]
NodeNumber = Annotated[int, Meta(ge=0, le=INT32_MAX)]
OffsetNumber = Annotated[int, Meta(ge=0, le=OFFSET_MAX)]
TimestampMs = Annotated[int, Meta(ge=0, le=OFFSET_MAX)]
ByteRate = Annotated[int, Meta(ge=0, le=OFFSET_MAX)]
Duration = Annotated[int, Meta(ge=0, le=OFFSET_MAX)]

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
PIECE_BYTES: Final = 64 << 10
"""Bytes of a large body that are decoded at a time: some 2 ms of small records."""
_NULL: Final = b"null"
_SEAM: Final = re.compile(rb"\}[ \t\r\n]{0,1000},[ \t\r\n]{0,1000}\{")
_PLACE: Final = re.compile(r"`\$\[(\d+)\]")


class Body(Struct, forbid_unknown_fields=True):
    """Base of all request bodies. An unknown field is an error, because it is most likely a misspelt one. Fields that
    clients of other proxies send and that have no use here are declared as `Ignored`.
    """


# -- v2 ------------------------------------------------------------------------------------------------------------


class HeaderV2(Body):
    """A record header; the value is base64 (Strimzi's extension of v2)."""

    key: str
    value: bytes | None = None


class _RecordV2(Body):
    """The fields of a v2 record besides its key and value."""

    partition: PartitionNumber | None = None
    headers: list[HeaderV2] | None = None
    timestamp: TimestampMs | None = None


class BinaryRecord(_RecordV2):
    """A record whose key and value are base64."""

    key: bytes | None = None
    value: bytes | None = None


class JsonRecord(_RecordV2):
    """A record whose key and value are any JSON, kept as it was written."""

    key: Raw = field(default_factory=Raw)
    value: Raw = field(default_factory=Raw)


class TextRecord(_RecordV2):
    """A record whose key and value are strings, stored as UTF-8."""

    key: str | None = None
    value: str | None = None


class _Schemas(Body):
    """The fields that refer to a schema registry; they are ignored, as by Confluent's REST Proxy for these formats."""

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
    """A key or a value: `data` is base64 (BINARY), text (STRING) or any JSON (JSON); null is no key, or a tombstone.

    The fields that refer to a schema registry are ignored.
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
    """A record of a v3 `records:batch` request; its receipt has the same `id`."""

    id: str


class EntriesV3(Body):
    """The body of v3 `records:batch`."""

    entries: list[EntryV3]


class _RecordsOutline(_Schemas, kw_only=True):
    records: Raw


class _EntriesOutline(Body):
    entries: Raw


class NotJson(InvalidRequest):
    """The request's body, or one of several documents in it, is not JSON."""


def decode_body(kind: type[T], body: bytes | bytearray) -> T:
    """Returns the body as a value of type `kind`. Raises `InvalidRequest`, with the place in the body, if it does not
    fit; `NotJson` if it is not JSON.
    """
    decoder: msgspec.json.Decoder[T] = decoder_of(kind)
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


_OUTLINES: Final[Mapping[str, type]] = MappingProxyType({"records": _RecordsOutline, "entries": _EntriesOutline})


def decode_items(whole: type, field: str, kind: type[T], body: bytearray) -> Steps[list[T]]:
    """Returns the items of the array `field` of a body, decoded in slices, between which other requests are served.
    Raises `InvalidRequest`, with the place in the body, if an item does not fit; `NotJson` if the body is not JSON.

    A large body is first scanned as a whole for its outline; then its array is decoded piece by piece. The end of a
    piece is guessed, at some `},{`. A piece begins where an item does, so it decodes as an array only if it also ends
    where one does; after a wrong guess the next piece is twice as long.
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
    """Converts a place in a decoder's message from the piece to the body: `$[2].key` becomes `$.records[1002].key`."""
    return _PLACE.sub(lambda place: f"`$.{field}[{before + int(place[1])}]", message, count=1)


def stored_json(text: Raw) -> bytes | None:
    """Returns a JSON value as it is stored: its exact text. None (no key, or a tombstone) for null and for an absent
    field.
    """
    data = bytes(text)
    return None if data in (b"", _NULL) else data


def milliseconds(moment: datetime) -> int:
    """Returns a point in time as milliseconds since 1970; UTC if it has no time zone. Raises `InvalidRequest` if it is
    before 1970.
    """
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    value = (moment - EPOCH) // timedelta(milliseconds=1)
    if value < 0:
        raise InvalidRequest("timestamp is before 1970")
    return value


@lru_cache(maxsize=256)  # the receipts of a group mostly have one time
def iso_time(timestamp_ms: int) -> str | None:
    """Returns milliseconds since 1970 as RFC 3339 text; None if they are negative or beyond the year 9999."""
    if timestamp_ms < 0:
        return None
    try:
        return (EPOCH + timedelta(milliseconds=timestamp_ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return None
