"""Records as clients produce and consume them; in between they are stored in batches (`batch_codec`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

Header = tuple[str, bytes | None]
"""A record header: a name, which may repeat within a record, and a value; the order is kept."""


class Record(NamedTuple):
    """A record to be produced. The value `None` is a tombstone, the key `None` is no key; neither equals `b""`."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] = ()


class StoredRecord(NamedTuple):
    """A record read from a log, with its offset there.

    `timestamp_ms` is the producer's, or the broker's if the topic uses log-append time; -1 is none.
    """

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


RecordForm = Literal["binary", "json", "text"]
"""Form of a key or a value in a JSON document: base64, nested JSON, or a string."""

RecordLike = Record | tuple[int, bytes | None, bytes | None] | tuple[int, bytes | None, bytes | None, Sequence[Header]]
"""A record that can be encoded: a `Record`, or a plain tuple of its fields, with or without headers."""
