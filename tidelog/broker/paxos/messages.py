"""Messages between the replicas of Paxos partitions.

Frames of the engines are one-way: the engines repeat what matters. `PartitionFrame` adds the partition to an engine's
frame.
"""

from __future__ import annotations

import msgspec

from tidelog.broker.consensus.messages import PaxosFrame
from tidelog.model.wire_numbers import Natural
from tidelog.replication.paxos.state import Value


class PartitionFrame(msgspec.Struct, frozen=True, tag=True):
    """A message from one replica's engine to another's. The payloads of its values follow."""

    topic_id: str
    partition: Natural
    frame: PaxosFrame
    era: Natural = 0
    """The sender's era (`ReplicaIdentity.era`); a replica of another era drops the frame."""


class AppliedDurable(msgspec.Struct, frozen=True, tag=True):
    """Reports to the leader up to which offset a replica's log of applied batches is durable. One-way: the next flush
    repeats it."""

    topic_id: str
    partition: Natural
    senders: tuple[Natural, ...]
    """All engine ids of the sender's disk; promises under other ids are forgotten there."""
    durable_offset: Natural
    era: Natural = 0


class ReadApplied(msgspec.Struct, frozen=True, tag=True):
    """Requests batches of a replica's log, as stored, from `offset` on. Any replica answers, by `AppliedRead`."""

    topic_id: str
    partition: Natural
    offset: Natural
    bytes_max: Natural
    era: Natural = 0
    """Era of the requesting replica (`ReplicaIdentity.era`); a replica of another era answers `NotFound`."""
    takes_rows: bool = False
    """True if the requesting replica can read the PRODUCER rows behind the batches."""


class AppliedRead(msgspec.Struct, frozen=True, tag=True):
    """Answers `ReadApplied` with whole batches, which follow; none at the log's end.

    If the log begins behind the requested offset, its first batches are sent. The requesting replica may then have to
    start its log over with the first of them, so PRODUCER rows (docs/data-files.md) follow: the producers' sequence
    numbers before that batch.
    """

    log_start_offset: Natural
    floor: bytes
    """The encoded floor of the answering replica's journal (`journal.Floor`)."""
    producers_size: Natural = 0
    """Bytes at the end of the payload that are PRODUCER rows."""
    damaged_to: Natural = 0
    """End offset of the damaged range that begins at the requested offset; 0 if the batch there is readable."""
    damaged_digest: bytes = b""
    """Digest of the damaged batch at the requested offset; empty if its row is damaged too."""


class ReadValue(msgspec.Struct, frozen=True, tag=True):
    """Requests a value's payload, which the requesting replica's journal has lost, from the memory, journal or log of
    any replica. The digest proves the copy. Answered by `ValueRead`."""

    topic_id: str
    partition: Natural
    position: Natural
    value: Value
    era: Natural = 0
    """Era of the requesting replica (`ReplicaIdentity.era`)."""


class ValueRead(msgspec.Struct, frozen=True, tag=True):
    """Answers `ReadValue` with the payload, which follows; without one if no whole copy is here."""

    is_held: bool


PAXOS_MESSAGES = (PartitionFrame, AppliedDurable, ReadApplied, AppliedRead, ReadValue, ValueRead)
"""All message types of this module, for the registry of messages between brokers."""
