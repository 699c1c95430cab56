"""Messages from one broker to another about partitions that the other leads: forwarded client requests.

Each request names its partitions by `Addressed`: the partition, and the leader epoch and metadata position by which the
sender believes that the receiver leads it. Record batches follow the message as they are, in requests and in answers.
An error is sent as its code and message (`transport.peer.errors`); an answer about many partitions has a `Refusal` for
each that failed.

No message here is forwarded again: the receiver serves an `Addressed` partition or refuses it with `NotLeader`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tidelog.model.errors import TidelogError
from tidelog.model.wire_numbers import Int64, Natural, NaturalOrNone
from tidelog.transport.errors import error_from_code


class Addressed(msgspec.Struct, frozen=True, array_like=True):
    """A partition, with its leader epoch in the sender's metadata."""

    topic: str
    topic_id: str
    partition: Int64
    leader_epoch: Int64
    position: Int64
    """The metadata position that the sender has applied. A receiver that is behind it waits until it has caught up
    before it refuses.
    """


class ForwardProduce(msgspec.Struct, frozen=True, tag=True):
    """Asks the leader to append the batches that follow, all or none. Answered by `Produced`."""

    partition: Addressed
    acks: Int64
    timeout_ms: Int64
    idempotency: tuple[Int64, Int64] | None
    """The producer id made from an idempotency key, and the fingerprint of the request's content."""
    expected_end: Int64 | None = None
    """The offset at which the partition's last batch must end before the append, else nothing is appended. None: any
    offset.
    """
    is_own: bool = False
    """True for a record that the broker itself writes to an internal topic that all brokers write to (the audit
    log).
    """


class Produced(msgspec.Struct, frozen=True, tag=True):
    """The answer to `ForwardProduce`, with the fields of a `ProduceReceipt`: the offsets of each batch, the leader
    epoch, the acknowledging brokers, the durability and the log append time.
    """

    batches: list[tuple[Natural | None, Natural | None]]
    leader_epoch: NaturalOrNone
    acked_by: list[Natural]
    durability: str
    log_append_time_ms: Int64 | None


class ForwardDeletion(msgspec.Struct, frozen=True, tag=True):
    """Asks the leader to delete the committed records below `offset` (DeleteRecords). The answer is empty."""

    partition: Addressed
    offset: Int64
    timeout_ms: Int64


class ForwardRead(msgspec.Struct, frozen=True, tag=True):
    """Asks for committed batches from the one with `offset` on. Answered by `BatchesRead`, and the batches after it."""

    partition: Addressed
    offset: Int64
    bytes_max: Int64
    timeout_ms: Int64


class BatchesRead(msgspec.Struct, frozen=True, tag=True):
    """The answer to `ForwardRead`; the batches follow it. Has the other fields of `FetchedBatches`: the offset to read
    on at, the log's offsets, the leader epoch, the replica that was read, and the accepted losses that were skipped.
    """

    next_offset: Natural
    log_start_offset: Natural
    high_watermark: Natural
    log_end_offset: Natural
    leader_epoch: NaturalOrNone
    replica: NaturalOrNone
    lost: tuple[tuple[Natural, Natural], ...] = ()


class ForwardDataWait(msgspec.Struct, frozen=True, tag=True):
    """Asks the leader to answer when `bytes_min` committed bytes can be read from `offset` on, or after `timeout_ms`.
    The answer is empty.
    """

    partition: Addressed
    offset: Int64
    bytes_min: Int64
    timeout_ms: Int64


class ForwardChangeWait(msgspec.Struct, frozen=True, tag=True):
    """Asks the leader to answer when the high watermark of any of these partitions differs from the one given, when it
    does not lead one of them, or after `timeout_ms`. The answer is empty.
    """

    known: list[tuple[Addressed, Int64]]
    timeout_ms: Int64


class ForwardOffsets(msgspec.Struct, frozen=True, tag=True):
    """Asks for the log start, high watermark and log end of partitions and, with a timestamp (ms), for the first record
    of that time or later (Kafka: ListOffsets). Answered by `OffsetsFound`.
    """

    asked: list[tuple[Addressed, Int64 | None]]
    timeout_ms: Int64


class Refusal(msgspec.Struct, frozen=True, array_like=True):
    """The error of one partition in an answer about many: its code and message."""

    code: Natural
    message: str

    @classmethod
    def of(cls, error: TidelogError) -> Refusal:
        return cls(error.code, error.message)

    def to_error(self) -> TidelogError:
        return error_from_code(self.code, self.message)


class OffsetsEntry(msgspec.Struct, frozen=True):
    """The extent of a partition, with offset and timestamp of the record that was looked for, if there is one; or a
    refusal.
    """

    log_start_offset: NaturalOrNone = -1
    high_watermark: NaturalOrNone = -1
    log_end_offset: NaturalOrNone = -1
    leader_epoch: NaturalOrNone = -1
    leader: NaturalOrNone = -1
    record: tuple[Natural, Int64] | None = None
    refusal: Refusal | None = None


class OffsetsFound(msgspec.Struct, frozen=True, tag=True):
    """The offsets of each requested partition, in the order of the request."""

    entries: list[OffsetsEntry]


class ForwardFingerprints(msgspec.Struct, frozen=True, tag=True):
    """Asks for the fingerprint of the content of the request that was appended to each partition under an idempotency
    key; `producer_id` is the one made from the key. Answered by `Fingerprints`.
    """

    partitions: list[Addressed]
    producer_id: Int64
    timeout_ms: Int64


class Fingerprints(msgspec.Struct, frozen=True, tag=True):
    """The answer to `ForwardFingerprints`: for each partition, in the order of the request, the fingerprint; null if
    nothing was appended under the key; or a refusal if the receiver cannot tell.
    """

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
"""All message types of this module, to be registered with the peer transport."""
