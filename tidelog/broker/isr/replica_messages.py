"""Messages between followers and leaders: Kafka's Fetch with its incremental sessions (KIP-227).

One fetch between two brokers carries all partitions that the one follows and the other leads. A fetch names only the
partitions that have changed since the last one; the leader remembers the others, in a *session* of the two processes.
After any failure of a session (a lost answer, a restart on either side) the follower opens another and names all
partitions again.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec

from tidelog.model.errors import ImplausibleNumber
from tidelog.model.wire_numbers import Int64, Natural, NaturalOrNone


class FollowerState(msgspec.Struct, frozen=True, array_like=True):
    """A follower's state of one partition: the offsets and leader epoch of its log, which decide what it needs next."""

    topic_id: str
    partition: Natural
    leader_epoch: Natural
    fetch_offset: Natural
    """The follower's log end offset, from which on it fetches."""
    last_epoch: NaturalOrNone
    """The leader epoch of the follower's last batch; -1 if it has none."""
    durable_offset: Natural
    """The end of the part of the follower's log that is on its disk."""
    log_start_offset: Natural
    damaged: tuple[Natural, ...] = ()
    """The start offsets of the damaged ranges in the follower's log; only the first ones if there are many."""


def check_state(state: FollowerState) -> None:
    """Raises `ImplausibleNumber` if no log can be in this state: its flushed end, or its start, is beyond its end."""
    # Taken for true, such a report could move the high watermark beyond what the follower has.
    if state.durable_offset > state.fetch_offset or state.log_start_offset > state.fetch_offset:
        raise ImplausibleNumber(
            f"a log of partition {state.topic_id}/{state.partition} that ends at {state.fetch_offset} is said to begin "
            f"at {state.log_start_offset}, and to be durable up to {state.durable_offset}"
        )


class FetchReplicas(msgspec.Struct, frozen=True, tag=True):
    """A follower's fetch from a leader. Answered by `ReplicasFetched`, as soon as there are batches, or without any
    after `wait_ms`."""

    replica: Natural
    broker_epoch: NaturalOrNone
    session: str
    """The random name of the fetch session, drawn by the follower; a new name begins a new session."""
    number: Natural
    """The sequence number of the fetch in its session, from 0 on; a fetch out of order is refused."""
    changed: tuple[FollowerState, ...]
    forgotten: tuple[tuple[str, Int64], ...]
    """The partitions that the follower does not follow any more."""
    wait_ms: Natural
    bytes_max: Natural
    throttled_bytes_max: Natural = 1 << 62
    """The most bytes of the answer that may belong to replicas under the reassignment throttle; 0 for none now."""


class FetchStatus(Enum):
    """The outcome of a fetch for one partition."""

    OK = "ok"
    DIVERGING = "diverging"
    """The follower's log is not a prefix of the leader's; `PartitionFetched.epoch` and `end_offset` say where they
    diverge."""
    OUT_OF_RANGE = "out_of_range"
    """The leader's log begins behind the fetch offset, or ends before it. The data are not batches but PRODUCER rows
    (docs/data-files.md): the states of idempotent producers at the leader's log start."""
    FENCED_EPOCH = "fenced_epoch"
    """The follower has an older leader epoch, and has to wait for newer metadata."""
    UNKNOWN_EPOCH = "unknown_epoch"
    """The leader does not know this leader epoch, or this partition, yet; the follower tries again."""
    DAMAGED = "damaged"
    """The leader's own copy is damaged at the fetch offset; a later fetch may find it repaired. The follower's log is a
    prefix of the leader's, and the high watermark in the answer is valid, unless it is -1."""


class PartitionFetched(msgspec.Struct, frozen=True, array_like=True):
    """The answer for one partition; `size` is the number of data bytes that belong to it."""

    topic_id: str
    partition: Natural
    leader_epoch: NaturalOrNone
    fetch_offset: Natural
    """The fetch offset of the follower; the answer is valid only while the follower's log still ends there."""
    last_epoch: NaturalOrNone
    status: FetchStatus
    size: Natural
    high_watermark: NaturalOrNone
    log_start_offset: NaturalOrNone
    epoch: NaturalOrNone = -1
    """In a divergence, the leader's largest epoch that is not larger than the follower's last one."""
    end_offset: NaturalOrNone = -1
    """In a divergence, the end offset of that epoch in the leader's log."""


class ReplicasFetched(msgspec.Struct, frozen=True, tag=True):
    """The answer to `FetchReplicas`. The data of the partitions follow the message, in the order of their entries."""

    partitions: tuple[PartitionFetched, ...]
    is_session_lost: bool = False
    """True if the leader does not know this session, or expected another number; the follower begins a new session."""


class ReplicasFlushed(msgspec.Struct, frozen=True, tag=True):
    """A follower's report, while its fetch waits at the leader, that logs are flushed further than the fetch said. It
    is not answered."""

    replica: Natural
    broker_epoch: NaturalOrNone
    states: tuple[FollowerState, ...]
    has_questions: bool = False
    """True if the follower has further partitions to fetch, so that the waiting fetch is to be answered now."""


REPLICA_MESSAGES: Final = (FetchReplicas, ReplicasFetched, ReplicasFlushed)
"""All messages of this module, for registration with the peer connections."""
