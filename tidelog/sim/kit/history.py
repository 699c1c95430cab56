"""The history of a simulated broker's clients: their operations, recorded for `tidelog.checker`.

A `Sent` is one record batch of a client, with values that are unique in the run, and one operation, however often it is
attempted. A definite error rules out the attempt that it answers, an unknown outcome rules out nothing, a receipt names
offsets. If all attempts were refused, the operation has failed.

What an acknowledgement promises depends on its durability. `fsynced` holds against every fault. `leader` and
`replicated` hold as long as the machine runs: `lose` notes an event that may take such records (a power cut, a failed
fsync), and a `Sent` remembers the count of these events at its acknowledgement.
"""

from __future__ import annotations

import asyncio
import enum
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import xxhash

from tidelog.checker import Recorder, judge
from tidelog.checker.operations import Damage, Durability, Guarantee, Poll, Prefix, Send, Unread, View
from tidelog.model.batch_codec import decode_batch
from tidelog.model.batch_header import iter_batches
from tidelog.model.ids import TopicPartition
from tidelog.model.ports import Buffer
from tidelog.sim.kit.loop import SimLoop

PADDING = b"."
"""Byte with which clients pad their values."""


class Kind(enum.Enum):
    """Way in which a producer makes sure that its records are appended once."""

    IDEMPOTENT = "idempotent"
    """Producer with sequence numbers, which retries a batch until its outcome is known."""
    KEYED = "keyed"
    """Producer with an idempotency key per batch, which retries a batch until its outcome is known."""
    PLAIN = "plain"
    """Producer that sends each batch once."""

    @property
    def guarantee(self) -> Guarantee:
        return _GUARANTEES[self]


_GUARANTEES: dict[Kind, Guarantee] = {Kind.IDEMPOTENT: "sequence", Kind.KEYED: "key", Kind.PLAIN: "none"}


@dataclass(slots=True, eq=False)
class Sent:
    """A batch that a client sent, perhaps several times."""

    producer: str
    kind: Kind
    number: int
    """Number of the batch among its producer's batches."""
    partition: TopicPartition
    values: list[bytes]
    keys: list[bytes | None]
    """The records' keys; None for a record without one."""
    producer_id: int = -1
    """The id of its idempotent producer, once it is sent; -1 for others."""
    attempts: int = 0
    unknown: int = 0
    """Attempts whose outcome is unknown: they may have appended the batch."""
    invocation: int = -1
    durability: Durability | None = None
    """Durability stated in the receipt; None as long as there is none."""
    losses_at_ack: int = 0

    @property
    def is_acknowledged(self) -> bool:
        return self.durability not in (None, "none")

    @property
    def is_refused(self) -> bool:
        """True if certainly no attempt has appended anything."""
        return self.durability is None and self.unknown == 0


def _true_s() -> float:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    return loop.true_time


@dataclass(slots=True)
class History:
    """All operations of clients and all known losses in one run."""

    recorder: Recorder = field(default_factory=lambda: Recorder(_true_s))
    sent: list[Sent] = field(default_factory=list)
    writers: dict[bytes, Sent] = field(default_factory=dict)
    rotten: dict[TopicPartition, set[int]] = field(default_factory=dict)
    """Offsets of records that a fault has damaged, by partition."""
    unread: set[TopicPartition] = field(default_factory=set)
    """Partitions in which a log has continued behind batches that no replica could read."""
    watched: set[TopicPartition] = field(default_factory=set)
    """Partitions that clients write to and that are checked at the end."""
    volatile: set[TopicPartition] = field(default_factory=set)
    """Partitions whose high watermark does not wait for the disk (`ack.durability=replicated`)."""
    volatile_losses: int = 0
    counters: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    hash: xxhash.xxh3_64 = field(default_factory=xxhash.xxh3_64)

    @property
    def records_acknowledged(self) -> int:
        return sum(len(sent.values) for sent in self.sent if sent.is_acknowledged)

    # -- writing -----------------------------------------------------------------------------------------------------

    def send(self, sent: Sent) -> None:
        """Notes a new batch; its values are registered before any reader can see them."""
        self.sent.append(sent)
        for value in sent.values:
            assert value not in self.writers, "values must be unique"
            self.writers[value] = sent
        sent.invocation = self.recorder.invoke(
            sent.producer, "send", self._sends(sent, None), guarantee=sent.kind.guarantee
        )

    def _sends(self, sent: Sent, base_offset: int | None) -> list[Send]:
        key = str(sent.partition)
        return [
            Send(key, None if base_offset is None else base_offset + i, self.text(value))
            for i, value in enumerate(sent.values)
        ]

    def attempt(self, sent: Sent) -> None:
        sent.attempts += 1
        sent.unknown += 1

    def knows_sequences(self, partition: TopicPartition) -> bool:
        """Returns True if each leader of the partition knows the sequences of all acknowledged batches."""
        return partition not in self.unread

    def refuse(self, sent: Sent, reason: str) -> None:
        """Notes that one attempt to send the batch has appended nothing."""
        sent.unknown -= 1
        self.note("refused", reason, sent.producer, sent.number)

    def acknowledge(self, sent: Sent, base_offset: int | None, durability: Durability, epoch: int) -> None:
        sent.durability, sent.losses_at_ack = durability, self.volatile_losses
        self.note("acknowledged", sent.producer, sent.number, base_offset, durability)
        sends = self._sends(sent, base_offset)
        self.recorder.complete(sent.invocation, "ok", sends, durability=durability, epoch=epoch)

    # -- reading -----------------------------------------------------------------------------------------------------

    def show(
        self,
        poll: int,
        partition: TopicPartition,
        records: Sequence[tuple[int, bytes]],
        *,
        high_watermark: int,
        epoch: int,
        rebalanced: Iterable[str] = (),
    ) -> None:
        """Notes the records that a reader got for the operation `poll`; `rebalanced` names the partitions that it
        gained or lost before."""
        self.note("seen", partition, records, high_watermark)
        given = [(offset, self.text(value)) for offset, value in records]
        parts = [Poll({str(partition): given}, {str(partition): high_watermark})]
        self.recorder.complete(poll, "ok", parts, epoch=epoch, rebalanced=rebalanced)

    def text(self, value: bytes) -> str:
        """Returns a value in the form that the checker knows: without its padding, unless it is not exactly what a
        client sent."""
        return shown(value) if value in self.writers else f"{shown(value)} and its padding"

    # -- the world ---------------------------------------------------------------------------------------------------

    def lose(self) -> None:
        """Notes that records which only memory held may be lost."""
        self.volatile_losses += 1
        self.recorder.tell("loss", map(str, sorted(self.volatile)))

    def damage(self, partition: TopicPartition, offsets: Iterable[int]) -> None:
        """Notes that a fault has damaged these records, or that their loss was accepted."""
        damaged = [*offsets]
        self.rotten.setdefault(partition, set()).update(damaged)
        self.recorder.tell("damage", [Damage(str(partition), damaged)])

    def go_on(self, partition: TopicPartition, offsets: Iterable[int]) -> None:
        """Notes that a log continues behind these offsets, whose batches no replica can read: leaders do not know their
        sequences."""
        self.unread.add(partition)
        self.recorder.tell("unread", [Unread(str(partition), [*offsets])])

    def ask_start(self, partition: TopicPartition, offset: int) -> None:
        """Notes that a client asks to delete the records before an offset."""
        self.recorder.tell("prefix", [Prefix(str(partition), offset, 0)])

    # -- the end -----------------------------------------------------------------------------------------------------

    def check(self, views: Iterable[View]) -> None:
        """Checks the whole history, given the final content of every watched partition; a partition without a view is
        taken as lost."""
        viewed = [*views]
        present = [view.key for view in viewed]
        self.recorder.tell("gone", [str(where) for where in sorted(self.watched) if str(where) not in present])
        self.recorder.tell("view", viewed)
        for sent in self.sent:
            if sent.is_refused:
                self.recorder.complete(sent.invocation, "fail")
        verdict = judge(self.recorder.operations)
        self.counters["excused duplicate of a lost record"] += verdict.excused
        for anomaly in verdict.anomalies:
            self.violate(str(anomaly))

    def note(self, *what: object) -> None:
        """Adds an event to the trace's hash."""
        self.hash.update(repr(what).encode())

    def violate(self, what: str) -> None:
        if what not in self.violations:
            self.violations.append(what)


def shown(value: bytes) -> str:
    """Returns a value without its padding."""
    return value.rstrip(PADDING).decode("ascii", "backslashreplace")


def records_in(data: Buffer, offset: int) -> Iterable[tuple[int, bytes]]:
    """Yields the offset and value of each record at `offset` or later. Raises `InvalidBatch`."""
    for batch in iter_batches(data):
        for record in decode_batch(batch):
            if record.offset >= offset:
                yield record.offset, record.value or b""
