"""The REST responses about offsets whose records are lost on every replica (REST v3, `losses`)."""

from __future__ import annotations

import msgspec


class Statement(msgspec.Struct, frozen=True):
    """What one replica reports about a lost range: `damaged`, `missing`, `deleted`, `unreachable`, `unknown`, or `good
    copy`. If an operator gave up lost replicas instead (`--votes`): the state of the replica's log."""

    broker_id: int
    status: str


class AcceptedLoss(msgspec.Struct, frozen=True):
    """A lost range that an operator has given up; `end_offset` is exclusive.

    If `given_up` is `records`, these offsets were given up. If it is `votes`, the partition continued without a
    majority, from replicas whose logs ended at `start_offset`, or at -1 if none answered.
    """

    topic_name: str
    partition_id: int
    given_up: str
    start_offset: int
    end_offset: int
    accepted_at_ms: int
    accepted_by: str
    accepted_via: int
    """The id of the broker that received the request."""
    statements: tuple[Statement, ...]
    digests: tuple[str, ...]
    """Digests of the lost batches, as far as a replica's catalog still lists them."""


class DamagedPiece(msgspec.Struct, frozen=True):
    """A damaged batch, or a range of offsets without a row in the catalog of batches."""

    start_offset: int
    end_offset: int
    kept_because: str | None
    """The reason why the batch cannot be given up; None if it can."""
    statements: tuple[Statement, ...]
    digest: str | None
    bytes: int | None
    max_timestamp: int | None


class Remains(msgspec.Struct, frozen=True):
    """The surviving replicas of a partition that has lost its majority and can elect no leader."""

    brokers: tuple[int, ...]
    """Ids of the brokers with which the partition would continue."""
    source: int | None
    """Id of the broker whose log the others would copy; None if no survivor has one."""
    end_offset: int
    statements: tuple[Statement, ...]


class LossesJudged(msgspec.Struct, frozen=True):
    """The result of a request to give up lost offsets of a partition: what is lost, and whether it was given up."""

    accepted: bool
    pieces: tuple[DamagedPiece, ...]
    refusals: tuple[str, ...]
    """Reasons why nothing is given up."""
    accepted_before: tuple[AcceptedLoss, ...]
    is_whole: bool
    """False if the partition has more damaged offsets than one request examines."""
    remains: Remains | None = None
    """The surviving replicas, if the request was to give up lost replicas (`--votes`); else None."""
