"""The answers of a broker about offsets that are lost on every disk, and were given up (REST v3, `losses`)."""

from __future__ import annotations

import msgspec


class Statement(msgspec.Struct, frozen=True):
    """The answer of one replica: `damaged`, `missing`, `deleted`, `unreachable`, `unknown`, or `good copy`; of `votes`
    what it has."""

    broker_id: int
    status: str


class AcceptedLoss(msgspec.Struct, frozen=True):
    """A range that was given up; `end_offset` is exclusive. If `given_up` is `votes`, not `records`, the partition went
    on from replicas that ended at `start_offset`, or -1 if none was asked; more is not known of what was lost."""

    topic_name: str
    partition_id: int
    given_up: str
    start_offset: int
    end_offset: int
    accepted_at_ms: int
    accepted_by: str
    accepted_via: int
    """The broker that was asked."""
    statements: tuple[Statement, ...]
    digests: tuple[str, ...]
    """The batches that lay there, as far as a catalog still named them."""


class DamagedPiece(msgspec.Struct, frozen=True):
    """A damaged batch, or offsets of which no catalog row is left."""

    start_offset: int
    end_offset: int
    kept_because: str | None
    """Why it cannot be given up; None if it can."""
    statements: tuple[Statement, ...]
    digest: str | None
    bytes: int | None
    max_timestamp: int | None


class Remains(msgspec.Struct, frozen=True):
    """The remains of a partition that nobody can lead."""

    brokers: tuple[int, ...]
    """The partition goes on with these."""
    source: int | None
    """The one that the others follow; None if that is none of them."""
    end_offset: int
    statements: tuple[Statement, ...]


class LossesJudged(msgspec.Struct, frozen=True):
    """The judgement of a partition, and whether what is lost was given up."""

    accepted: bool
    pieces: tuple[DamagedPiece, ...]
    refusals: tuple[str, ...]
    """Why nothing is given up."""
    accepted_before: tuple[AcceptedLoss, ...]
    is_whole: bool
    """False if there is more than one request judges."""
    remains: Remains | None = None
    """If votes were to be given up."""
