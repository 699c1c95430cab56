"""A produce request on its way into a partition: its batches, the result of its checks, and the waiting caller."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from tidelog.config.schema import TopicConfig
from tidelog.model.batch_header import BatchHeader, RecordBatch, stamp_append_time, stamp_producer
from tidelog.model.errors import (
    EndOffsetMoved,
    InvalidTimestamp,
    LeaderNotAvailable,
    OutOfOrderSequence,
    Overloaded,
    TidelogError,
    TimedOutAfterAppend,
    TooLarge,
    UnprocessableBody,
)
from tidelog.model.producers import BATCHES_REMEMBERED, SEQUENCES, Duplicate, ProducerTable

ACKS_ALL = -1
ACKS_LEADER = 1
ACKS_NONE = 0

Placement = tuple[int | None, int | None]
"""First and last offset of a batch; (None, None) for a duplicate that is older than the remembered batches."""


class ProduceReceipt(Struct, frozen=True):
    """The answer to a produce request, with the durability that it promises.

    `durability` is `fsynced` (on the disk of each node in `acked_by`), `replicated` (in their memory), `leader` (in the
    leader's memory) or `none` (nothing is promised).
    """

    batches: list[Placement]
    leader_epoch: int
    acked_by: list[int]
    durability: str
    log_append_time_ms: int | None = None

    @property
    def base_offset(self) -> int | None:
        return self.batches[0][0] if self.batches else None

    @property
    def last_offset(self) -> int | None:
        return self.batches[-1][1] if self.batches else None


class Asker(Protocol):
    """The caller that waits for the result of a produce request."""

    @property
    def is_gone(self) -> bool:
        """True if nobody waits for the answer any more."""

    def hear(self, outcome: ProduceReceipt | TidelogError) -> None:
        """Takes the result, once, even if nobody waits for it any more. Must not raise, nor take long: many askers are
        called one after the other."""


Ahead = dict[int, tuple[int, int]]
"""Maps producer ids to the epoch and first sequence that their next batch must have, counting batches that are checked
and not appended yet."""


class Proposal(Struct, eq=False):
    """A produce request: its batches are appended together, contiguously, or not at all."""

    batches: list[RecordBatch]
    acks: int
    deadline_s: float
    asker: Asker | None
    """Caller that gets the result; None with acks=0, or once it has got the result."""
    log_append_time_ms: int | None = None
    expected_end: int | None = None
    """Offset at which the log's last batch must end, or the request is refused; None for any."""
    is_appended: bool = False
    verdicts: list[Duplicate | None] = []
    placements: list[Placement] = []
    committed_at: int = 0
    """High watermark from which on acks=all is answered; set by the append."""
    since_s: float = 0.0
    """Monotonic time at which the request was queued; once it was taken from the queue, the time of that."""
    size: int = 0
    """Size of all batches in bytes."""

    def __post_init__(self) -> None:
        for batch in self.batches:
            self.size += batch.header.size

    def appended(self, log_end_offset: int) -> None:
        """Sets `committed_at` when all batches are in the log. A duplicate whose offsets are forgotten is anywhere
        below the log's end."""
        self.is_appended = True
        self.committed_at = 0
        for _, last in self.placements:
            self.committed_at = max(self.committed_at, log_end_offset if last is None else last + 1)

    @property
    def is_waiting(self) -> bool:
        """True while a caller waits for the result."""
        return self.asker is not None and not self.asker.is_gone

    def fail(self, error: TidelogError) -> None:
        self.complete(error.forget_origin())  # where this proposal is at hand

    def complete(self, outcome: ProduceReceipt | TidelogError) -> None:
        """Passes the result to the caller, once."""
        asker, self.asker = self.asker, None
        if asker is not None:
            asker.hear(outcome)

    def expire(self) -> None:
        """Fails the request, since its deadline has passed."""
        self.fail(self.late())

    def late(self) -> TidelogError:
        """Returns the error of a request whose deadline has passed: definite before the append, indefinite after it."""
        if self.is_appended:
            return TimedOutAfterAppend("appended, but not committed in time; it may still be: retry idempotently")
        return Overloaded("not appended: the deadline passed while the request was waiting for the log")

    def judge(self, producers: ProducerTable, ahead: Ahead) -> None:
        """Checks each batch's sequence number against the log, the batches before it in this request, and `ahead`
        (earlier requests of the same group); then adds its batches to `ahead`. Raises `ProducerFenced`,
        `OutOfOrderSequence` or `IdempotencyKeyReused`, and adds nothing then."""
        if len(self.batches) == 1:
            self.verdicts = [_judge(self.batches[0].header, producers, ahead)]
            return
        before = ahead.copy()
        self.verdicts = [_judge(batch.header, producers, before) for batch in self.batches]
        ahead.update(before)

    def require_end(self, appended_end: int) -> None:
        """Checks that the log ends at `expected_end`, unless all batches are duplicates. Called after `judge`.

        Raises `EndOffsetMoved`; or `LeaderNotAvailable` if the log does not reach that end: the producer knows of later
        batches, so that another broker may lead by now.
        """
        if self.expected_end is None or self.expected_end == appended_end or None not in self.verdicts:
            return
        if self.expected_end > appended_end:
            raise LeaderNotAvailable(
                f"the last batch ends at offset {appended_end}, before {self.expected_end}, where it is expected to "
                "end: another broker may lead by now, or records have been lost; nothing was appended"
            )
        raise EndOffsetMoved(
            f"the last batch ends at offset {appended_end}, not at {self.expected_end}, as expected; nothing was "
            "appended"
        )


def _judge(header: BatchHeader, producers: ProducerTable, ahead: Ahead) -> Duplicate | None:
    producer_id = header.producer_id
    if producer_id < 0:
        return None
    verdict = None
    if producer_id not in ahead:
        verdict = producers.check(producer_id, header.producer_epoch, header.base_sequence, header.record_count)
    elif ahead[producer_id] != (header.producer_epoch, header.base_sequence):
        raise OutOfOrderSequence(f"the batches of producer {producer_id} that came together are not consecutive")
    if verdict is None:
        ahead[producer_id] = (header.producer_epoch, (header.base_sequence + header.record_count) % SEQUENCES)
    return verdict


def admit_batches(batches: list[RecordBatch], config: TopicConfig, now_ms: int) -> tuple[list[RecordBatch], int | None]:
    """Checks batches against the topic's size and timestamp limits. With log-append time, stamps them with `now_ms` and
    returns that time, too; else None.

    Raises `TooLarge` or `InvalidTimestamp`.
    """
    bytes_max = config.max_message_bytes
    for batch in batches:
        if batch.header.size > bytes_max:
            raise TooLarge(f"a batch of {batch.header.size} bytes is over max.message.bytes ({bytes_max})")
    if config.message_timestamp_type == "LogAppendTime":
        return [stamp_append_time(batch, now_ms) for batch in batches], now_ms
    newest = now_ms + config.message_timestamp_after_max_ms
    oldest = now_ms - config.message_timestamp_before_max_ms
    for batch in batches:
        header = batch.header
        if header.max_timestamp > newest or 0 <= header.base_timestamp < oldest:
            raise InvalidTimestamp(
                f"timestamps {header.base_timestamp} to {header.max_timestamp} ms are too far from the broker's clock "
                f"({now_ms} ms); see message.timestamp.before.max.ms and message.timestamp.after.max.ms"
            )
    return batches, None


def stamp_keyed(batches: list[RecordBatch], producer_id: int, fingerprint: int) -> list[RecordBatch]:
    """Stamps the batches of a request that has an idempotency key with a producer id made from the key, and with
    sequence numbers that begin at the content's fingerprint.

    Raises `UnprocessableBody` if there are more batches than a partition remembers of one producer.
    """
    if len(batches) > BATCHES_REMEMBERED:
        raise UnprocessableBody(f"a request with an Idempotency-Key takes at most {BATCHES_REMEMBERED} batches")
    stamped, sequence = [], fingerprint % SEQUENCES
    for batch in batches:
        stamped.append(stamp_producer(batch, producer_id, 0, sequence))
        sequence = (sequence + batch.header.record_count) % SEQUENCES
    return stamped
