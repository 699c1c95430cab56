"""How a replica asks the others for batches that its own disk has lost (CTRL's RecoverQuery, FAST '18).

A question names each batch as its catalog row does: the answer can be checked by the digest, whoever gives it. It may
be asked as often as need be, and changes nothing. Whether an answer that denies a batch proves anything depends on who
says it, and when: so it tells of the leader epoch that the answering replica has adopted, and of its process.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tidelog.model.holdings import Holding
from tidelog.model.wire_numbers import Int64, Natural, NaturalOrNone

WANTED_MAX: Final = 64
"""Batches that one question may name."""


class Wanted(msgspec.Struct, frozen=True, array_like=True):
    """A batch that is asked for. Without a sound catalog row, `epoch` is -1 and `digest` empty: then it is the batch
    that is committed at `offset`, or that the leader's log has there of which both logs are prefixes.
    """

    offset: Natural
    epoch: NaturalOrNone
    digest: bytes


class RecoverQuery(msgspec.Struct, frozen=True, tag=True):
    """Asks for copies. Answered by `RecoverReply`."""

    topic_id: str
    partition: Natural
    wanted: tuple[Wanted, ...]
    aligned_epoch: NaturalOrNone = -1
    """The asking replica's `Holder.aligned_epoch`."""


class Held(msgspec.Struct, frozen=True, array_like=True):
    """About one batch; `size` bytes of it follow."""

    holding: Holding
    size: Natural = 0


class RecoverReply(msgspec.Struct, frozen=True, tag=True):
    """Answers for the first of the batches that were asked for: the others did not fit into one message. The bytes of
    the batches come one after the other.
    """

    leader_epoch: NaturalOrNone
    """The leader epoch in which the answering replica follows or leads; -1 if it does neither. It takes nothing from
    older ones.
    """
    broker_epoch: NaturalOrNone
    """The broker epoch of the answering process."""
    high_watermark: NaturalOrNone
    """The high watermark that the answering replica knows."""
    held: tuple[Held, ...]
    is_aligned: bool = False
    """True if both logs are prefixes of the same leader's: wherever both have a batch, it is the same."""


class VerifyQuery(msgspec.Struct, frozen=True, tag=True):
    """Has a replica read and check what it holds of [offset, to), as far as it is committed, or the first part of that.
    Answered by `VerifyReply`."""

    topic_id: str
    partition: Int64
    offset: Int64
    to: Int64
    names_batches: bool = False


class DamagedRange(msgspec.Struct, frozen=True, array_like=True):
    """Offsets [start, end) that a disk has lost."""

    start: Natural
    end: Natural
    reason: str


class NamedBatch(msgspec.Struct, frozen=True, array_like=True):
    """A batch by its catalog row."""

    base_offset: Natural
    next_offset: Natural
    leader_epoch: NaturalOrNone
    digest: bytes


class VerifyReply(msgspec.Struct, frozen=True, tag=True):
    """The result of verifying a replica up to `next_offset`."""

    log_start_offset: Natural
    high_watermark: Natural
    next_offset: Int64
    size: Natural
    checksum: bytes
    """XXH3, 128 bits, over the digests of the batches that the catalog names there."""
    damaged: tuple[DamagedRange, ...]
    batches: tuple[NamedBatch, ...] = ()
    """The batches of the range, if they were asked for."""


class VerifyFilesQuery(msgspec.Struct, frozen=True, tag=True):
    """Has a broker read and check what it keeps besides logs, from the first name behind `after` on, or the first part
    of that. Answered by `VerifyFilesReply`."""

    after: str = ""


SUSPECTS_MAX: Final = 512
"""Batches that one answer names."""


class DamageQuery(msgspec.Struct, frozen=True, tag=True):
    """Asks a replica what of the offsets [start, end) it knows to be damaged. Answered by `DamageReply`."""

    topic_id: str
    partition: Int64
    start: Int64
    end: Int64


class Suspect(msgspec.Struct, frozen=True, array_like=True):
    """Tells of a damaged batch what its catalog row says; where that is lost too, of offsets [start, end)."""

    start: Natural
    end: Natural
    epoch: NaturalOrNone = -1
    digest: bytes = b""
    size: Natural = 0
    max_timestamp: Int64 = -1


class DamageReply(msgspec.Struct, frozen=True, tag=True):
    """Tells the first `SUSPECTS_MAX` damaged batches, in order of offsets."""

    log_start_offset: Natural
    high_watermark: Natural
    log_end_offset: Natural
    suspects: tuple[Suspect, ...]


class StandingQuery(msgspec.Struct, frozen=True, tag=True):
    """Asks a replica of a partition that nobody leads what it has, and whether it may vote. Answered by `Standing`."""

    topic_id: str
    partition: Int64


class Standing(msgspec.Struct, frozen=True, tag=True):
    """Tells what a replica has. The fields from `era` to `is_named` are those of one that has a
    journal."""

    log_start_offset: Natural
    log_end_offset: Natural
    epoch: NaturalOrNone
    """The leader epoch of its log's end."""
    partition_epoch: NaturalOrNone = 0
    """The partition's, as far as it has come in the metadata."""
    era: Natural = 0
    engine_ids: tuple[Natural, ...] = ()
    """The ids that it votes under; none if it has forgotten what it promised."""
    is_leading: bool = False
    agreed_end: Natural = 0
    """The end of what is agreed on, by its journal."""
    journal_end: Natural = 0
    """The end of the offsets that values in its journal take, agreed on or not."""
    top_position: Natural = 0
    """The position behind all that its journal has."""
    position: Natural = 0
    """The position behind the last batch of its log that names one, and `birth` is that batch's."""
    birth: Natural = 0
    is_named: bool = True
    """True if its log ends with that batch; a copied batch names no position."""
    awaited: tuple[Natural, ...] = ()
    """The brokers that it asks about the damaged end of its log before it leads; none if it leads, or follows."""
    unsettled: NaturalOrNone = -1
    """The first position of the journal that its election waits for, with the promises of enough voters; -1 if there is
    none."""
    unheard: tuple[Natural, ...] = ()
    """The voters, by their ids, that have not promised to its election yet."""


class CheckedFiles(msgspec.Struct, frozen=True, array_like=True):
    """A journal, a pair of copies, or the snapshots: how many pieces of it were damaged, and how many are."""

    name: str
    size: Natural
    found: Natural
    left: Natural
    error: str = ""


class VerifyFilesReply(msgspec.Struct, frozen=True, tag=True):
    """Tells what was checked, in the order of names."""

    checked: tuple[CheckedFiles, ...]
    is_last: bool


REPAIR_MESSAGES: Final = (
    RecoverQuery,
    RecoverReply,
    VerifyQuery,
    VerifyReply,
    DamageQuery,
    DamageReply,
    StandingQuery,
    Standing,
    VerifyFilesQuery,
    VerifyFilesReply,
)
"""All messages of this page: a peer node has to know them."""
