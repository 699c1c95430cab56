"""Messages between the replicas of Paxos partitions.

Frames of engines are one-way, as those of the metadata log: the cores behind them repeat what matters. What is added is
the partition that they are about.
"""

from __future__ import annotations

import msgspec

from tidelog.broker.consensus.messages import PaxosFrame
from tidelog.model.wire_numbers import Natural
from tidelog.replication.paxos.state import Value


class PartitionFrame(msgspec.Struct, frozen=True, tag=True):
    """An engine's message to the engine of another replica. The payloads of its values follow."""

    topic_id: str
    partition: Natural
    frame: PaxosFrame
    era: Natural = 0
    """The sender's (`ReplicaIdentity.era`): a replica of another drops it."""


class AppliedDurable(msgspec.Struct, frozen=True, tag=True):
    """A replica tells the leader how far its log of applied batches is durable. One-way: what is lost is said again
    with the next flush."""

    topic_id: str
    partition: Natural
    senders: tuple[Natural, ...]
    """All engine ids that this disk goes by: what was promised under another is forgotten."""
    durable_offset: Natural
    era: Natural = 0


class ReadApplied(msgspec.Struct, frozen=True, tag=True):
    """Asks any replica for batches as they lie in its log, from `offset` on. Answered by `AppliedRead`."""

    topic_id: str
    partition: Natural
    offset: Natural
    bytes_max: Natural
    era: Natural = 0
    """The era of the replica that asks: one of another has nothing for it."""
    takes_rows: bool = False
    """The replica that asks can read the rows behind the batches."""


class AppliedRead(msgspec.Struct, frozen=True, tag=True):
    """Whole batches, which follow; none at the log's end. A log that begins later than the offset asked for gives those
    from its beginning on; the first may begin before that. Whoever asks may then have to start over with the first, so
    behind the batches come PRODUCER rows (docs/data-files.md): what was known of producers before it."""

    log_start_offset: Natural
    floor: bytes
    """The floor of the answering replica's journal (`journal.Floor`), encoded."""
    producers_size: Natural = 0
    """How many of the last bytes that follow are rows."""
    damaged_to: Natural = 0
    """The batches from the offset asked for up to there cannot be read here; 0 if it is none of them."""
    damaged_digest: bytes = b""
    """The digest of the batch that is damaged there; empty if its row is lost as well."""


class ReadValue(msgspec.Struct, frozen=True, tag=True):
    """Asks any replica for the payload of a value that the journal of the one that asks has lost, from memory, journal
    or log: its digest proves it, whatever else the answering replica has there. Answered by `ValueRead`."""

    topic_id: str
    partition: Natural
    position: Natural
    value: Value
    era: Natural = 0
    """The era of the replica that asks."""


class ValueRead(msgspec.Struct, frozen=True, tag=True):
    """Brings the payload, which follows; none if it is not here whole."""

    is_held: bool


PAXOS_MESSAGES = (PartitionFrame, AppliedDurable, ReadApplied, AppliedRead, ReadValue, ValueRead)
"""All messages of this page: a peer node has to know them."""
