"""Messages by which a replica requests batches that its own disk has lost (CTRL's RecoverQuery, FAST '18).

A request names each batch as its catalog row does, so the answer can be checked by the digest, whichever replica gives
it. It may be repeated, and changes nothing. Whether an answer that denies a batch proves anything depends on the
answering replica and the time: so it includes the leader epoch that this replica has adopted, and its broker epoch.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tidelog.model.holdings import Holding
from tidelog.model.wire_numbers import Int64, Natural, NaturalOrNone

REQUESTED_MAX: Final = 64
"""Maximum number of batches that one request may name."""


class RequestedBatch(msgspec.Struct, frozen=True, array_like=True):
    """A batch that a replica asks for, by its offset, leader epoch and digest. If the asking replica has lost its
    catalog row, `epoch` is -1 and `digest` empty. Then it asks for the batch that is committed at `offset`; or, if both
    logs are prefixes of one leader's log, for the batch that this leader's log has there."""

    offset: Natural
    epoch: NaturalOrNone
    digest: bytes


class RecoverQuery(msgspec.Struct, frozen=True, tag=True):
    """Asks for copies of damaged batches. Answered by `RecoverReply`."""

    topic_id: str
    partition: Natural
    wanted: tuple[RequestedBatch, ...]
    aligned_epoch: NaturalOrNone = -1
    """Leader epoch whose leader's log the requesting replica's log is a prefix of; -1 if none is known."""


class Held(msgspec.Struct, frozen=True, array_like=True):
    """The answer about one batch: whether the replica holds it. `size` is the number of its bytes behind the message; 0
    if it is not sent."""

    holding: Holding
    size: Natural = 0


class RecoverReply(msgspec.Struct, frozen=True, tag=True):
    """The answer to a `RecoverQuery`: about the first batches that it asked for, as many as fit into one message. The
    bytes of the batches follow the message, one batch after the other."""

    leader_epoch: NaturalOrNone
    """The leader epoch in which the answering replica follows or leads, so that it takes nothing from leaders of older
    epochs; -1 if it does neither."""
    broker_epoch: NaturalOrNone
    """The broker epoch of the answering process."""
    high_watermark: NaturalOrNone
    """The high watermark that the answering replica knows."""
    held: tuple[Held, ...]
    is_aligned: bool = False
    """True if both logs are prefixes of the same leader's: wherever both have a batch, it is the same."""


class VerifyQuery(msgspec.Struct, frozen=True, tag=True):
    """Asks a replica to read and check its committed batches of offsets [offset, to), or the first part of them.
    Answered by `VerifyReply`."""

    topic_id: str
    partition: Int64
    offset: Int64
    to: Int64
    names_batches: bool = False


class DamagedRange(msgspec.Struct, frozen=True, array_like=True):
    """Offsets [start, end) that are lost on a replica's disk, and the reason."""

    start: Natural
    end: Natural
    reason: str


class NamedBatch(msgspec.Struct, frozen=True, array_like=True):
    """The identity of a batch, from its catalog row: offsets, leader epoch and digest."""

    base_offset: Natural
    next_offset: Natural
    leader_epoch: NaturalOrNone
    digest: bytes


class VerifyReply(msgspec.Struct, frozen=True, tag=True):
    """The answer to a `VerifyQuery`: the damage found below `next_offset`, and a checksum for comparison with other
    replicas."""

    log_start_offset: Natural
    high_watermark: Natural
    next_offset: Int64
    size: Natural
    checksum: bytes
    """The 128-bit XXH3 hash over the digests that the replica's catalog (its list of batches) has for the batches in
    the verified range of offsets."""
    damaged: tuple[DamagedRange, ...]
    batches: tuple[NamedBatch, ...] = ()
    """The batches of the range, if the query asked for their names."""


class VerifyFilesQuery(msgspec.Struct, frozen=True, tag=True):
    """Asks a broker to read and check its files that are not logs, in the order of their names, from the first name
    after `after` on, or the first part of them. Answered by `VerifyFilesReply`."""

    after: str = ""


SUSPECTS_MAX: Final = 512
"""Maximum number of damaged batches that one `DamageReply` names."""


class DamageQuery(msgspec.Struct, frozen=True, tag=True):
    """Asks a replica which of the offsets [start, end) it knows to be damaged. Answered by `DamageReply`."""

    topic_id: str
    partition: Int64
    start: Int64
    end: Int64


class Suspect(msgspec.Struct, frozen=True, array_like=True):
    """A damaged batch, as its catalog row describes it. If the row is lost too, only the offsets [start, end) are
    known."""

    start: Natural
    end: Natural
    epoch: NaturalOrNone = -1
    digest: bytes = b""
    size: Natural = 0
    max_timestamp: Int64 = -1


class DamageReply(msgspec.Struct, frozen=True, tag=True):
    """The answer to a `DamageQuery`: the first `SUSPECTS_MAX` damaged batches, in order of offsets."""

    log_start_offset: Natural
    high_watermark: Natural
    log_end_offset: Natural
    suspects: tuple[Suspect, ...]


# Earlier versions know the message by its former name, so that stays its tag on the wire.
class ReplicaStateQuery(msgspec.Struct, frozen=True, tag="StandingQuery"):
    """Asks a replica of a partition without a leader how far its log and its journal go, and whether it may vote.
    Answered by `ReplicaState`."""

    topic_id: str
    partition: Int64


# Its former name is its tag, as with `ReplicaStateQuery`.
class ReplicaState(msgspec.Struct, frozen=True, tag="Standing"):
    """The answer to a `ReplicaStateQuery`: how far a replica's log and journal go, and under which ids it votes. The
    fields from `era` to `is_named` have a meaning only for a replica with a journal (`commit.protocol=paxos`)."""

    log_start_offset: Natural
    log_end_offset: Natural
    epoch: NaturalOrNone
    """The leader epoch at the end of the replica's log."""
    partition_epoch: NaturalOrNone = 0
    """The partition epoch in the answering broker's newest metadata."""
    era: Natural = 0
    engine_ids: tuple[Natural, ...] = ()
    """The ids under which this disk votes; none if it has forgotten its promises."""
    is_leading: bool = False
    agreed_end: Natural = 0
    """The end of the offsets whose values are known to be chosen, according to the replica's journal."""
    journal_end: Natural = 0
    """The end of the offsets of all values in the journal, agreed on or not."""
    top_position: Natural = 0
    """The position behind the last slot of the journal."""
    position: Natural = 0
    """The position behind the last batch in the log that names its Paxos position; `birth` is the ballot number under
    which the value of that batch was first proposed."""
    birth: Natural = 0
    is_named: bool = True
    """True if the log ends with the last batch that names a Paxos position; a copied batch names none."""
    awaited: tuple[Natural, ...] = ()
    """The brokers whose answers about the damaged end of its log the replica awaits before it leads; none if it leads
    or follows."""
    unsettled: NaturalOrNone = -1
    """The first journal position for whose value the replica's election waits, although enough voters have promised; -1
    if there is none."""
    unheard: tuple[Natural, ...] = ()
    """The ids of the voters that have not promised to the replica's election yet."""


class CheckedFiles(msgspec.Struct, frozen=True, array_like=True):
    """The result of checking a journal, a file that is kept in two copies, or the snapshots: how many pieces were found
    damaged, and how many are left damaged."""

    name: str
    size: Natural
    found: Natural
    left: Natural
    error: str = ""


class VerifyFilesReply(msgspec.Struct, frozen=True, tag=True):
    """The answer to a `VerifyFilesQuery`: the files that were checked, in the order of their names."""

    checked: tuple[CheckedFiles, ...]
    is_last: bool


REPAIR_MESSAGES: Final = (
    RecoverQuery,
    RecoverReply,
    VerifyQuery,
    VerifyReply,
    DamageQuery,
    DamageReply,
    ReplicaStateQuery,
    ReplicaState,
    VerifyFilesQuery,
    VerifyFilesReply,
)
"""All messages of this module, which a peer node has to know."""
