"""A record object of REST v3: its conversion to a stored record, and its receipt."""

from __future__ import annotations

import binascii
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from tidelog.broker.http.json_body import DataV3, EntryV3, RecordV3, iso_time, milliseconds, stored_json
from tidelog.broker.http.params import shown
from tidelog.broker.http.produce import Slot
from tidelog.model.errors import InvalidRequest, TidelogError
from tidelog.model.records import Record

if TYPE_CHECKING:
    from tidelog.broker.face.partitions import ProduceReceipt

OK: Final = 200
_TEXT: Final = msgspec.json.Decoder(str | None)


class SizeV3(Struct, frozen=True):
    """The type and the stored size of a key or value."""

    type: str
    size: int


class ReceiptV3(Struct, frozen=True, omit_defaults=True):
    """The receipt of a record; `error_code` is 200, and `id` is present if the record had one."""

    error_code: int
    cluster_id: str
    topic_name: str
    partition_id: int
    offset: int | None
    timestamp: str | None
    key: SizeV3 | None
    value: SizeV3 | None
    leader_epoch: int
    acked_by: list[int]
    durability: str
    id: str | None = None


class FailureV3(Struct, frozen=True, omit_defaults=True):
    """The error of a record. After a 504xx code the record may have been appended, after any other it was not. `id` is
    present if the record had one.
    """

    error_code: int
    message: str
    id: str | None = None


def record_of(sent: RecordV3, now_ms: int) -> Record:
    """Returns the record to store. Raises `InvalidRequest` for an unknown type, or data that do not match their
    type.
    """
    timestamp_ms = now_ms if sent.timestamp is None else milliseconds(sent.timestamp)
    headers = tuple((header.name, header.value) for header in sent.headers) if sent.headers else ()
    return Record(timestamp_ms, _stored(sent.key, "key"), _stored(sent.value, "value"), headers)


def receipt_of(
    cluster_id: str, topic: str, sent: RecordV3, record: Record, slot: Slot, produced: ProduceReceipt
) -> ReceiptV3:
    """Returns the receipt of the record `sent`, which was stored as `record` at the place `slot`."""
    timestamp_ms = record.timestamp_ms if produced.log_append_time_ms is None else produced.log_append_time_ms
    return ReceiptV3(
        OK,
        cluster_id,
        topic,
        slot.partition,
        slot.offset(produced),
        iso_time(timestamp_ms),
        _size(sent.key, record.key),
        _size(sent.value, record.value),
        produced.leader_epoch,
        list(produced.acked_by),
        produced.durability,
        sent.id if isinstance(sent, EntryV3) else None,
    )


def failure_of(error: TidelogError, entry_id: str | None = None) -> FailureV3:
    """Returns the receipt of a record that failed."""
    return FailureV3(error.code, error.message, entry_id)


def _stored(sent: DataV3 | None, field: str) -> bytes | None:
    if sent is None:
        return None
    match sent.type:
        case "JSON":
            return stored_json(sent.data)
        case "STRING":
            text = _text(sent, field)
            return None if text is None else text.encode()
        case "BINARY":
            text = _text(sent, field)
            return None if text is None else _base64(text, field)
        case None:
            raise InvalidRequest(f"the {field} has no type: give BINARY, JSON or STRING")
        case other:
            raise InvalidRequest(f"the {field} has type {shown(other)}: give BINARY, JSON or STRING")


def _text(sent: DataV3, field: str) -> str | None:
    try:
        return _TEXT.decode(sent.data) if bytes(sent.data) else None
    except msgspec.DecodeError:
        raise InvalidRequest(f"the data of a {sent.type} {field} must be a string or null") from None


def _base64(text: str, field: str) -> bytes:
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except (binascii.Error, ValueError):
        raise InvalidRequest(f"the data of the BINARY {field} is not base64") from None


def _size(sent: DataV3 | None, stored: bytes | None) -> SizeV3 | None:
    if sent is None or stored is None:
        return None
    return SizeV3(str(sent.type), len(stored))
