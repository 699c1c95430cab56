"""The entries of a Paxos journal (slot store): each is a record batch, so that segments, catalogs and tools treat them
like any batch.

An entry is a control batch (Kafka's term: written by a broker for itself) of one record. Its key is the *head*, big
endian:

    version int16, 0 | kind int16 | position uint64 | number uint64 | digest length uint8 | digest | content

`content` is a slot's identity, or the floor. The record's value is the slot's payload; it is null if the value has
none, or if the payload lies in an earlier entry.

A head must survive the loss of its payload, so it has a checksum of its own: the batch's base_sequence, which means
nothing without a producer, is the CRC32C of the head. It thereby stands in the catalog row, too, beside position and
number. So a sound row tells a sound head from a damaged or an older one, whatever has become of the rest of the batch.

If the head is gone as well, its *name* is left, in the catalog row before: digest and content. An entry that only
repeats a value that is named already has no name.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from crc32c import crc32c

from tidelog.model.batch_codec import spread_control_batch
from tidelog.model.batch_header import HEADER_BYTES, BatchHeader, SpreadBatch, parse_header
from tidelog.model.errors import InvalidBatch
from tidelog.model.ports import Buffer
from tidelog.model.varint import decode_varint

VERSION = 0
FLOOR_NUMBER = (1 << 64) - 1
"""Stands in place of the proposal number in the catalog rows of floor entries, since a floor belongs to no slot."""
HEAD_BYTES_MAX = 4096
NAME_BYTES_MAX = 56
"""Maximum bytes of content in a NAME row."""
NAMED_CONTENT_MAX = NAME_BYTES_MAX - 2 - 16
"""Maximum bytes of an entry's content for which a NAME row is written: what is left of `NAME_BYTES_MAX` beside two
lengths and a digest. Contents at the first feature level are longer, so those entries get no NAME row."""
_HEAD_END_MAX = HEADER_BYTES + 32 + HEAD_BYTES_MAX
_HEAD = struct.Struct(">hhQQB")
_NO_TIMESTAMP = -1
_CRC_BITS = struct.Struct(">I")
_SEQUENCE_BITS = struct.Struct(">i")


class EntryKind(IntEnum):
    """The kind of a journal entry. The values are control types that Kafka does not use."""

    FLOOR = 0x7D00
    """The log begins at `position`; `content` describes the state before it."""
    SLOT = 0x7D01
    """A slot complete in itself: with its payload, or with a value that has none."""
    REFERENCE = 0x7D02
    """A slot whose payload, known by its digest, lies in an earlier entry, or is not on this disk."""
    UNKNOWN = 0x7D03
    """A slot of which only position and proposal number are left."""


# Kafka's own control types are small numbers, so nothing takes an entry for the end of a transaction.
_KINDS = {int(kind): kind for kind in EntryKind}


class Head(NamedTuple):
    """The part of a journal entry that is not payload: kind, position, proposal number, payload digest, and content."""

    kind: EntryKind
    position: int
    number: int
    digest: bytes = b""
    content: bytes = b""

    def pack(self) -> bytes:
        fields = _HEAD.pack(VERSION, self.kind, self.position, self.number, len(self.digest))
        return fields + self.digest + self.content


def name_for(head: Head) -> bytes:
    """Returns the content of the NAME row of an entry: lengths, digest, content; nothing if they do not fit."""
    lengths = len(head.digest), len(head.content)
    # All of it or nothing: half a name would name another value.
    has_room = len(head.content) <= NAMED_CONTENT_MAX and 2 + sum(lengths) <= NAME_BYTES_MAX
    return bytes(lengths) + head.digest + head.content if has_room else b""


def named_head(name: bytes, position: int, number: int) -> Head:
    """Returns the head that a NAME row stands for, as a reference: the payload is gone with the entry."""
    digest_end = 2 + name[0]
    # A reference, as the payload is gone with the entry. An earlier entry may have it, by position and digest.
    return Head(EntryKind.REFERENCE, position, number, name[2:digest_end], name[digest_end : digest_end + name[1]])


def encode_entry(head: Head, payload: Buffer | None, offset: int, epoch: int) -> SpreadBatch:
    """Returns the batch of an entry at its journal offset. The payload, which may be large, is not copied."""
    key = head.pack()
    assert len(key) <= HEAD_BYTES_MAX, f"a slot's identity or a floor of {len(head.content)} bytes is too large"
    # It stands where a producer's sequence would, and so in the catalog row, too: a checksum of the head that is stored
    # apart from it.
    (checksum,) = _SEQUENCE_BITS.unpack(_CRC_BITS.pack(crc32c(key)))
    return spread_control_batch(
        key, payload, timestamp_ms=_NO_TIMESTAMP, base_offset=offset, leader_epoch=epoch, base_sequence=checksum
    )


def decode_entry(data: bytes) -> tuple[Head, bytes | None] | None:
    """Returns head and payload of an entry; None if the batch, whose bytes verify, is no journal entry."""
    if not parse_header(data).is_control:
        return None
    try:
        key, value = _fields(data)
        head = _parse_head(key or b"")
    except (InvalidBatch, IndexError):
        return None
    return None if head is None else (head, value)


def salvage_head(data: bytes, checksum: int) -> Head | None:
    """Returns the head of an entry whose batch does not verify, if the head matches `checksum`, its row's
    base_sequence."""
    try:
        # The key comes first, so the head can be read from a batch of which all behind it is lost.
        key = next(_field_of(data))
    except (InvalidBatch, IndexError):
        return None
    # The batch does not verify, so its head is believed by this checksum alone. Without that, a flipped bit would make
    # it another slot's: the acceptor would have forgotten one vote, and made up another.
    if key is None or _SEQUENCE_BITS.unpack(_CRC_BITS.pack(crc32c(key)))[0] != checksum:
        return None
    return _parse_head(key)


def identity_of(header: BatchHeader, data: Buffer) -> tuple[int, int]:
    """Returns position and number of a journal entry, for its catalog row; zeros for any other batch."""
    if not header.is_control:
        return 0, 0
    try:
        # Only the beginning is copied: the payload behind the head may be megabytes.
        key = next(_field_of(bytes(memoryview(data)[:_HEAD_END_MAX])))
    except (InvalidBatch, IndexError):
        return 0, 0
    head = _parse_head(key or b"")
    return (0, 0) if head is None else (head.position, head.number)


def _fields(data: bytes) -> tuple[bytes | None, bytes | None]:
    fields = _field_of(data)
    return next(fields), next(fields)


def _field_of(data: bytes) -> Iterator[bytes | None]:
    """Yields key and value of a batch's first record. Raises `InvalidBatch` or `IndexError` for bytes that are no
    record."""
    _, position = decode_varint(data, HEADER_BYTES)
    position += 1  # the record's attributes
    for _ in ("timestamp delta", "offset delta"):
        _, position = decode_varint(data, position)
    for _ in ("key", "value"):
        size, position = decode_varint(data, position)
        # Sizes are not to be trusted in a batch that is damaged: a slice would be short without saying so.
        if position + size > len(data):
            raise IndexError(size)
        yield None if size < 0 else data[position : position + size]
        position += max(size, 0)


def _parse_head(key: bytes) -> Head | None:
    if len(key) < _HEAD.size:
        return None
    version, kind, position, number, digest_bytes = _HEAD.unpack_from(key)
    if version != VERSION or kind not in _KINDS:
        return None
    content_at = _HEAD.size + digest_bytes
    return Head(_KINDS[kind], position, number, key[_HEAD.size : content_at], key[content_at:])
