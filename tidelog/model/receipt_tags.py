"""The tagged field that a tidelog broker adds to Produce and Fetch answers in Kafka's protocol, for tidelog's clients
only.

A client asks for it by an empty tagged field in its request. Then each partition of the answer has a tagged field of
the same number, which contains JSON: the HTTP error code, which says more than Kafka's whether the error is definite,
or what the HTTP answer says of a success. Unknown tagged fields are skipped (KIP-482), so a broker that does not know
this one answers without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from tidelog.model.kafka_wire import Reader, tagged

TAG: Final = 10_000
"""Number of the tagged field. Kafka numbers its own from 0 on."""
REQUEST_TAG: Final = tagged({TAG: b""})
"""Encoded tagged fields of a request that asks for the field `TAG` in the answer."""


class ProducedTag(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result for one partition of a Produce request: a receipt, with a base offset for each batch, or an error."""

    base_offsets: Sequence[int | None] = ()
    leader_epoch: int = -1
    acked_by: Sequence[int] = ()
    durability: str = "none"
    error_code: int | None = None
    message: str = ""


class FetchedTag(msgspec.Struct, frozen=True, omit_defaults=True):
    """Data in addition to Kafka's fields for one partition of a Fetch. `lost` has the format of the header
    `Tidelog-Lost`."""

    leader_epoch: int | None = None
    lost: str = ""
    error_code: int | None = None
    message: str = ""
    log_start_offset: int = -1
    log_end_offset: int = -1


encode: Final = msgspec.json.Encoder().encode
decode_produced: Final = msgspec.json.Decoder(ProducedTag).decode
decode_fetched: Final = msgspec.json.Decoder(FetchedTag).decode


def is_requested(reader: Reader, *, is_flexible: bool) -> bool:
    """Reads the tagged fields at the end of a request. Returns True if the tidelog field is among them."""
    return is_flexible and reader.tag(TAG) is not None
