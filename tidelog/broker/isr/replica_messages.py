"""Messages between followers and leaders: Kafka's Fetch with its incremental sessions (KIP-227), and no more.

One fetch between two brokers carries all partitions that the one follows and the other leads. Only what has changed
since the last one is named; the leader remembers the rest, in a *session* of the two processes. Whatever goes wrong
with a session, a lost answer or a restart on either side, the follower opens another and names everything again.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec

from tidelog.model.errors import ImplausibleNumber
from tidelog.model.wire_numbers import Int64, Natural, NaturalOrNone


class FollowerState(msgspec.Struct, frozen=True, array_like=True):
    """A follower's side of one partition: what it has, and so what it needs next."""

    topic_id: str
    partition: Natural
    leader_epoch: Natural
    fetch_offset: Natural
    """The follower's log end: the offset where it wants to read on."""
    last_epoch: NaturalOrNone
    """The leader epoch of the follower's last batch; -1 if it has none."""
    durable_offset: Natural
    """The follower holds everything below this offset on its disk."""
    log_start_offset: Natural
    damaged: tuple[Natural, ...] = ()
    """The damaged ranges of its log begin here; the first of them are named."""


def check_state(state: FollowerState) -> None:
    """Raises `ImplausibleNumber` if no log is so: what is on its disk, or its beginning, is beyond its end."""
    # Taken for true, such a report could move the high watermark beyond what the follower has.
    if state.durable_offset > state.fetch_offset or state.log_start_offset > state.fetch_offset:
        raise ImplausibleNumber(
            f"a log of partition {state.topic_id}/{state.partition} that ends at {state.fetch_offset} is said to begin "
            f"at {state.log_start_offset}, and to be durable up to {state.durable_offset}"
        )


class FetchReplicas(msgspec.Struct, frozen=True, tag=True):
    """Asks for what follows. Answered by `ReplicasFetched`, as soon as there is something, or empty after `wait_ms`."""

    replica: Natural
    broker_epoch: NaturalOrNone
    session: str
    """Drawn by the follower for each session; another one than before begins anew."""
    number: Natural
    """Counts the session's fetches, from 0 on: one out of turn is refused."""
    changed: tuple[FollowerState, ...]
    forgotten: tuple[tuple[str, Int64], ...]
    """Partitions that it follows no more."""
    wait_ms: Natural
    bytes_max: Natural
    throttled_bytes_max: Natural = 1 << 62
    """The bytes, of those, that may belong to replicas which the leader holds to the throttle of moves; 0: none of them
    now.
    """


class FetchStatus(Enum):
    """The outcome of a fetch for one partition."""

    OK = "ok"
    DIVERGING = "diverging"
    """The follower's log is not the beginning of the leader's: see `PartitionFetched.epoch` and `.end_offset`."""
    OUT_OF_RANGE = "out_of_range"
    """The leader's log begins behind what it asked for, or ends before. What follows is no batches, but PRODUCER rows
    (docs/data-files.md): what the leader knew of producers where its log begins."""
    FENCED_EPOCH = "fenced_epoch"
    """It follows an older leader epoch: wait for the metadata."""
    UNKNOWN_EPOCH = "unknown_epoch"
    """The leader has not heard of this epoch, or of this partition, yet: try again."""
    DAMAGED = "damaged"
    """The leader's own copy is damaged there; another fetch may find it repaired. The follower has the beginning of the
    leader's log, and the high watermark counts, unless it is -1."""


class PartitionFetched(msgspec.Struct, frozen=True, array_like=True):
    """Answers for one partition; `size` bytes of batches, or of rows, belong to it."""

    topic_id: str
    partition: Natural
    leader_epoch: NaturalOrNone
    fetch_offset: Natural
    """The fetch offset of the question: the answer is of use only while the follower's log still ends there."""
    last_epoch: NaturalOrNone
    status: FetchStatus
    size: Natural
    high_watermark: NaturalOrNone
    log_start_offset: NaturalOrNone
    epoch: NaturalOrNone = -1
    """If it diverges: the largest epoch of the leader's that is not larger than the follower's last, ..."""
    end_offset: NaturalOrNone = -1
    """... and where that ends."""


class ReplicasFetched(msgspec.Struct, frozen=True, tag=True):
    """The batches, or rows, follow, partition after partition."""

    partitions: tuple[PartitionFetched, ...]
    is_session_lost: bool = False
    """The leader does not know this session, or expected another number: begin a new one."""


class ReplicasFlushed(msgspec.Struct, frozen=True, tag=True):
    """A one-way message of a follower whose fetch is parked at the leader: these logs are durable further
    than it said.
    """

    replica: Natural
    broker_epoch: NaturalOrNone
    states: tuple[FollowerState, ...]
    has_questions: bool = False
    """The follower has more to ask: the fetch that waits is to be answered now."""


REPLICA_MESSAGES: Final = (FetchReplicas, ReplicasFetched, ReplicasFlushed)
"""All messages of this page: a peer node has to know them."""
