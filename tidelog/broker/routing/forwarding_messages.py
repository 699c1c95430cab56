"""Messages of one broker to another about partitions that the other leads: forwarded requests of clients.

Each request names its partitions by `Addressed`: what, and in which state of the cluster the caller believes that the
callee leads it. Record batches travel behind the message, as they are; so do the batches of an answer. An error crosses
as the error it is (`transport.peer.errors`); in an answer about many partitions, each has its own `Refusal`.

Nothing here can be forwarded again: an `Addressed` partition is served by its leader or refused with `NotLeader`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tidelog.model.errors import TidelogError
from tidelog.model.wire_numbers import Int64, Natural, NaturalOrNone
from tidelog.transport.errors import error_from_code


class Addressed(msgspec.Struct, frozen=True, array_like=True):
    """A partition, and what the caller's image said of it."""

    topic: str
    topic_id: str
    partition: Int64
    leader_epoch: Int64
    position: Int64
    """The metadata position of the caller's image. A callee with an older image lets it catch up before it refuses."""


class ForwardProduce(msgspec.Struct, frozen=True, tag=True):
    """Has the leader append the batches that follow, all or none. Answered by `Produced`."""

    partition: Addressed
    acks: Int64
    timeout_ms: Int64
    idempotency: tuple[Int64, Int64] | None
    """The producer id made from an idempotency key, and the fingerprint of the content."""
    expected_end: Int64 | None = None
    """The offset at which the last batch must end; otherwise nothing is appended."""
    is_own: bool = False
    """True for a record of a broker itself, to the topic to which all brokers write."""


class Produced(msgspec.Struct, frozen=True, tag=True):
    """A `ProduceReceipt`."""

    batches: list[tuple[Natural | None, Natural | None]]
    leader_epoch: NaturalOrNone
    acked_by: list[Natural]
    durability: str
    log_append_time_ms: Int64 | None


class ForwardDeletion(msgspec.Struct, frozen=True, tag=True):
    """Has the leader delete the committed records below `offset`. Answered by an empty answer."""

    partition: Addressed
    offset: Int64
    timeout_ms: Int64


class ForwardRead(msgspec.Struct, frozen=True, tag=True):
    """Asks for committed batches from the one with `offset` on. Answered by `BatchesRead` and the batches."""

    partition: Addressed
    offset: Int64
    bytes_max: Int64
    timeout_ms: Int64


class BatchesRead(msgspec.Struct, frozen=True, tag=True):
    """`FetchedBatches`, whose data follows."""

    next_offset: Natural
    log_start_offset: Natural
    high_watermark: Natural
    log_end_offset: Natural
    leader_epoch: NaturalOrNone
    replica: NaturalOrNone
    lost: tuple[tuple[Natural, Natural], ...] = ()


class ForwardDataWait(msgspec.Struct, frozen=True, tag=True):
    """Waits until `bytes_min` committed bytes lie behind `offset`. Answered then, by an empty answer."""

    partition: Addressed
    offset: Int64
    bytes_min: Int64
    timeout_ms: Int64


class ForwardChangeWait(msgspec.Struct, frozen=True, tag=True):
    """Waits until the high watermark of any of these is not the one given, or one is not led here. Answered then, by an
    empty answer."""

    known: list[tuple[Addressed, Int64]]
    timeout_ms: Int64


class ForwardOffsets(msgspec.Struct, frozen=True, tag=True):
    """Asks where partitions begin and end, and for those that come with a timestamp (ms) the first record of that time
    or later. Answered by `OffsetsFound` (Kafka: ListOffsets).
    """

    asked: list[tuple[Addressed, Int64 | None]]
    timeout_ms: Int64


class Refusal(msgspec.Struct, frozen=True, array_like=True):
    """Why there is no answer about one partition of many."""

    code: Natural
    message: str

    @classmethod
    def of(cls, error: TidelogError) -> Refusal:
        return cls(error.code, error.message)

    def to_error(self) -> TidelogError:
        return error_from_code(self.code, self.message)


class OffsetsEntry(msgspec.Struct, frozen=True):
    """An `Extent`, and offset and timestamp of the record that was looked for, if there is one; or why not."""

    log_start_offset: NaturalOrNone = -1
    high_watermark: NaturalOrNone = -1
    log_end_offset: NaturalOrNone = -1
    leader_epoch: NaturalOrNone = -1
    leader: NaturalOrNone = -1
    record: tuple[Natural, Int64] | None = None
    refusal: Refusal | None = None


class OffsetsFound(msgspec.Struct, frozen=True, tag=True):
    """The offsets of each partition asked for, in their order."""

    entries: list[OffsetsEntry]


class ForwardFingerprints(msgspec.Struct, frozen=True, tag=True):
    """Asks for the fingerprint of the request that came to these partitions under an idempotency key, by the producer
    id made from it. Answered by `Fingerprints`.
    """

    partitions: list[Addressed]
    producer_id: Int64
    timeout_ms: Int64


class Fingerprints(msgspec.Struct, frozen=True, tag=True):
    """The fingerprint for each partition, in their order; null if nothing came, and a refusal if that is not known."""

    found: list[Int64 | Refusal | None]


FORWARDING_MESSAGES: Final = (
    ForwardProduce,
    Produced,
    ForwardDeletion,
    ForwardRead,
    BatchesRead,
    ForwardDataWait,
    ForwardChangeWait,
    ForwardOffsets,
    OffsetsFound,
    ForwardFingerprints,
    Fingerprints,
)
"""All messages of this page: a peer node has to know them."""
