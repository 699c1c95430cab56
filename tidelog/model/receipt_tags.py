"""The field of answers in Kafka's protocol that a broker of tidelog adds for clients of tidelog, and for no others.

A client asks for it by an empty tagged field of its Produce or Fetch request. Then each partition of the answer has a
tagged field of the same number, with JSON inside: beside Kafka's code the error as HTTP says it, with a code of its own
that tells what is definite; and what HTTP tells of a success. Whoever does not know a tagged field skips it (KIP-482):
a broker that does not know this one answers without.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from tidelog.model.kafka_wire import Reader, tagged

TAG: Final = 10_000
"""Kafka counts its own from 0 on."""
ASKED: Final = tagged({TAG: b""})


class ProducedTag(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome of one partition of a Produce: a receipt, with a base offset for each batch, or an error."""

    base_offsets: Sequence[int | None] = ()
    leader_epoch: int = -1
    acked_by: Sequence[int] = ()
    durability: str = "none"
    error_code: int | None = None
    message: str = ""


class FetchedTag(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tells what stands beside Kafka's fields for one partition of a Fetch. `lost` is written as in HTTP's header."""

    leader_epoch: int | None = None
    lost: str = ""
    error_code: int | None = None
    message: str = ""
    log_start_offset: int = -1
    log_end_offset: int = -1


encode: Final = msgspec.json.Encoder().encode
decode_produced: Final = msgspec.json.Decoder(ProducedTag).decode
decode_fetched: Final = msgspec.json.Decoder(FetchedTag).decode


def is_asked(reader: Reader, *, is_flexible: bool) -> bool:
    """Reads the tagged fields at the end of a request. Returns True if a client of tidelog sent it."""
    return is_flexible and reader.tag(TAG) is not None
