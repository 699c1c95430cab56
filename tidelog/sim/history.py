"""What the clients of a simulated broker did, were told and saw: the material of the checkers.

A `Sent` is one record batch of a client, with values like no other in the run. What is known of it only ever grows: a
definite error rules out the attempt it answers, an unknown outcome rules out nothing, a receipt names offsets.

What an acknowledgement is worth depends on what it said. `fsynced` holds against everything. `leader` and `replicated`
hold as long as the machine does: `volatile_losses` counts the events that may take such records (a power cut, a failed
fsync), and a `Sent` remembers the count at its acknowledgement.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import xxhash

from tidelog.model.batch_codec import decode_batch
from tidelog.model.batch_header import iter_batches
from tidelog.model.ids import TopicPartition
from tidelog.model.ports import Buffer

PADDING = b"."
"""What clients fill up their values with."""


class Kind(enum.Enum):
    """How a producer makes sure of its records."""

    IDEMPOTENT = "idempotent"
    """Sequences; the same again until it is known."""
    KEYED = "keyed"
    """An idempotency key; the same again until it is known."""
    PLAIN = "plain"
    """Never the same twice."""


@dataclass(slots=True, eq=False)
class Sent:
    """One batch that a client sent, perhaps several times."""

    producer: str
    kind: Kind
    number: int
    """Its place among the batches of its producer for this partition."""
    partition: TopicPartition
    values: list[bytes]
    attempts: int = 0
    unknown: int = 0
    """Attempts of which nobody knows whether they appended."""
    base_offset: int | None = None
    durability: str = ""
    """As the receipt said; empty as long as there is none."""
    losses_at_ack: int = 0

    @property
    def is_acknowledged(self) -> bool:
        return bool(self.durability) and self.durability != "none"

    @property
    def is_refused(self) -> bool:
        """True if surely no attempt appended anything."""
        return not self.durability and self.unknown == 0


@dataclass(slots=True)
class View:
    """A partition as it was read from start to end."""

    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    records: dict[int, bytes]
    damaged: list[int]
    """Offsets that were answered with `DamagedBatch`."""


@dataclass(slots=True)
class History:
    """Everything that happened in one run."""

    sent: list[Sent] = field(default_factory=list)
    writers: dict[bytes, Sent] = field(default_factory=dict)
    seen: dict[TopicPartition, dict[int, tuple[bytes, int]]] = field(default_factory=dict)
    """By offset: the value that a reader got, and the count of volatile losses then."""
    start_asked: dict[TopicPartition, int] = field(default_factory=dict)
    start_promised: dict[TopicPartition, int] = field(default_factory=dict)
    """Log starts that a later fsynced acknowledgement vouches for."""
    rotten: dict[TopicPartition, set[int]] = field(default_factory=dict)
    """Offsets whose bytes were damaged on purpose."""
    watched: set[TopicPartition] = field(default_factory=set)
    """Partitions that clients write to and that are checked at the end."""
    volatile: set[TopicPartition] = field(default_factory=set)
    """Partitions whose high watermark does not wait for the disk (`ack.durability=replicated`)."""
    volatile_losses: int = 0
    counters: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    hash: xxhash.xxh3_64 = field(default_factory=xxhash.xxh3_64)

    def send(self, sent: Sent) -> None:
        """A new batch; its values are registered before anybody can see them."""
        self.sent.append(sent)
        for value in sent.values:
            assert value not in self.writers, "values must be unique"
            self.writers[value] = sent

    def attempt(self, sent: Sent) -> None:
        sent.attempts += 1
        sent.unknown += 1

    def refuse(self, sent: Sent, reason: str) -> None:
        """This attempt appended nothing."""
        sent.unknown -= 1
        self.note("refused", reason, sent.producer, sent.number)

    def acknowledge(self, sent: Sent, base_offset: int | None, durability: str) -> None:
        sent.base_offset, sent.durability, sent.losses_at_ack = base_offset, durability, self.volatile_losses
        self.note("acknowledged", sent.producer, sent.number, base_offset, durability)

    def see(self, partition: TopicPartition, offset: int, value: bytes) -> None:
        """A reader was given this record. What it was given before, or what nobody sent, is checked on the spot."""
        self.note("seen", partition, offset, value)
        writer = self.writers.get(value)
        if writer is None or writer.partition != partition:
            self.violate(f"{partition} offset {offset} shows {shown(value)}, which nobody sent there")
        before = self.seen.setdefault(partition, {}).get(offset)
        is_excused = partition in self.volatile and before is not None and before[1] < self.volatile_losses
        if before is not None and before[0] != value and not is_excused:
            self.violate(f"{partition} offset {offset} showed {shown(before[0])} before, now {shown(value)}")
        self.seen[partition][offset] = (value, self.volatile_losses)

    def note(self, *what: object) -> None:
        """Makes an event part of the trace."""
        self.hash.update(repr(what).encode())

    def violate(self, what: str) -> None:
        if what not in self.violations:
            self.violations.append(what)


def shown(value: bytes | None) -> str:
    """A value as violations print it: without its padding."""
    return "nothing" if value is None else repr(value.rstrip(PADDING).decode("ascii", "backslashreplace"))


def records_in(data: Buffer, offset: int) -> Iterable[tuple[int, bytes]]:
    """(offset, value) of the records at `offset` or later. Raises `InvalidBatch`."""
    for batch in iter_batches(data):
        for record in decode_batch(batch):
            if record.offset >= offset:
                yield record.offset, record.value or b""
