"""Produce requests on their way into a partition: what is asked, what was decided, who waits for the answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

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
"""First and last offset of a batch; None for a duplicate that is older than what is remembered."""


@dataclass(frozen=True, slots=True)
class ProduceReceipt:
    """The answer to a producer, and what it may rely on.

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
    """Waits for what becomes of a request."""

    @property
    def is_gone(self) -> bool:
        """True if nobody would hear the answer."""
        ...

    def hear(self, outcome: ProduceReceipt | TidelogError) -> None:
        """Takes the outcome, once. Must not raise, nor take long: many askers are called one after the other."""
        ...


Ahead = dict[int, tuple[int, int]]
"""Maps producers to epoch and first sequence of what follows the batches that are judged and not appended yet."""


@dataclass(slots=True, eq=False)
class Proposal:
    """A produce request: its batches go in together, contiguously, or not at all."""

    batches: list[RecordBatch]
    acks: int
    deadline_s: float
    asker: Asker | None
    """None if nobody waits: with acks=0, or once it was told."""
    log_append_time_ms: int | None = None
    expected_end: int | None = None
    """The offset at which the last batch must end; otherwise the request is refused."""
    is_appended: bool = False
    verdicts: list[Duplicate | None] = field(default_factory=list)
    placements: list[Placement] = field(default_factory=list)
    committed_at: int = 0
    """The high watermark that answers acks=all; known once appended."""
    since_s: float = 0.0
    """When it came into the mailbox; from when it was taken out, that time."""

    size: int = field(init=False)
    """Bytes of all batches."""

    def __post_init__(self) -> None:
        self.size = sum([batch.header.size for batch in self.batches])

    def appended(self, log_end_offset: int) -> None:
        """Notes that all batches are in the log. A repeat whose offsets are forgotten is somewhere below the log's
        end."""
        self.is_appended = True
        ends = [log_end_offset if last is None else last + 1 for _, last in self.placements]
        self.committed_at = max(ends, default=0)

    @property
    def is_abandoned(self) -> bool:
        """True if whoever waited has given up, or was told something else."""
        return self.acks != ACKS_NONE and not self.is_waiting

    @property
    def is_waiting(self) -> bool:
        """True while somebody waits for the answer."""
        return self.asker is not None and not self.asker.is_gone

    def fail(self, error: TidelogError) -> None:
        self._tell(error.forget_origin())  # where this proposal is at hand

    def complete(self, receipt: ProduceReceipt) -> None:
        self._tell(receipt)

    def _tell(self, outcome: ProduceReceipt | TidelogError) -> None:
        asker, self.asker = self.asker, None
        if asker is not None and not asker.is_gone:
            asker.hear(outcome)

    def expire(self) -> None:
        """Fails the request, since its deadline has passed."""
        self.fail(self.late())

    def late(self) -> TidelogError:
        """Returns the error when the deadline has passed: definite before the append, indefinite after it."""
        if self.is_appended:
            return TimedOutAfterAppend("appended, but not committed in time; it may still be: retry idempotently")
        return Overloaded("not appended: the deadline passed while the request was waiting for the log")

    def judge(self, producers: ProducerTable, ahead: Ahead) -> None:
        """Checks each batch's sequence, counting in those before it here, and those `ahead` of this request, which are
        to be appended with it; adds its own to these. Raises as `ProducerTable.check`, and has added nothing then."""
        before = ahead.copy() if len(self.batches) > 1 else ahead
        self.verdicts = [_judge(batch.header, producers, before) for batch in self.batches]
        ahead.update(before)

    def require_end(self, appended_end: int) -> None:
        """Holds the request to the end that it expects; a repeat of what is there expects nothing. Judged before.

        Raises `EndOffsetMoved`; `LeaderNotAvailable` if the log does not even reach that end: the producer knows more
        than this broker, as if it were the leader no more.
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
    """Holds batches to their topic's bounds, and stamps them if it wants log-append time, which is returned then.

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
    """Makes a request with an idempotency key a producer of its own, numbered by its content's fingerprint.

    Raises `UnprocessableBody` if there are more batches than a partition remembers of one producer.
    """
    if len(batches) > BATCHES_REMEMBERED:
        raise UnprocessableBody(f"a request with an Idempotency-Key takes at most {BATCHES_REMEMBERED} batches")
    stamped, sequence = [], fingerprint % SEQUENCES
    for batch in batches:
        stamped.append(stamp_producer(batch, producer_id, 0, sequence))
        sequence = (sequence + batch.header.record_count) % SEQUENCES
    return stamped
