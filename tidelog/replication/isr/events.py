"""Events and effects of the leader and the follower of a primary-backup partition.

Events of the replica's own log are in `log_events`. All times are milliseconds of one monotonic clock. Broker epochs
and leader epochs are assigned by the controller.

The terms are Kafka's. "Acknowledged" is the part of the log that a replica has promised to keep: with
`ack.durability=fsynced` the part on its disk, with `replicated` also the part in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import NamedTuple

import msgspec

from tidelog.replication.isr.log_events import Appended, AppendRefused, Effect, Flushed

NO_BROKER_EPOCH = -1
"""The broker epoch of an ISR member whose epoch is not known; the controller does not compare it."""


class LogState(NamedTuple):
    """The offsets and leader epochs of a replica's own log when its leader or follower state machine starts.
    `log_start_offset <= durable_offset <= log_end_offset`."""

    log_start_offset: int
    durable_offset: int
    log_end_offset: int
    lineage: tuple[tuple[int, int], ...] = ()
    """(leader epoch, first offset) for each leader epoch of the log."""


# -- to the leader -----------------------------------------------------------------------------------------------------


class IsrSettings(msgspec.Struct, frozen=True):
    """The settings of the topic and the broker that a partition's leader needs. All times are milliseconds."""

    lag_ms_max: int = 30_000
    """Milliseconds for which a member may be behind before it leaves the ISR (`replica.lag.time.max.ms`)."""
    # A longer wait would stop producers for as long as it takes to copy so much.
    join_ms_max: int = 3_000
    """Milliseconds: a replica outside the ISR that is behind by no longer than this, nor than `lag_ms_max`, holds back
    the high watermark, so that it can join the ISR."""
    stall_ms_max: int = 500
    """Milliseconds for which a member may acknowledge nothing while other members do, before it leaves the ISR
    (`replica.stall.ms.max`)."""
    tick_ms: int = 100
    """Milliseconds between two `Tick`s while a producer waits; in a follower's stall, a tick counts as at most this
    much time."""
    retry_ms: int = 100
    """Milliseconds from a failed `AlterPartition` to the next attempt."""


class FollowerReport(msgspec.Struct, frozen=True):
    """A follower's log offsets, as it reports them to the leader."""

    replica: int
    broker_epoch: int
    fetch_offset: int
    """The follower's log end offset."""
    durable_offset: int
    """The end of the part of the follower's log that is on its disk; at most `fetch_offset`."""
    # The tail makes the report checkable: one whose tail is not in the leader's log counts for nothing.
    last_fetched_epoch: int | None
    """The leader epoch of the batch before `fetch_offset`; None if the follower's log is empty, even if records were
    deleted from it."""
    now_ms: int
    awaits_repair: bool = False
    """True if the follower's log has a damaged batch that the leader may have intact."""
    log_start_offset: int = 0
    """The first offset of the follower's log."""


class FollowerFetched(FollowerReport, frozen=True):
    """Event: a follower's fetch, whose leader epoch the caller has compared with the current one, and the follower's
    log offsets."""


class FollowerFlushed(FollowerReport, frozen=True):
    """Event: a report that a follower sends between two fetches because a flush has ended there. It is not answered."""


class IsrChanged(msgspec.Struct, frozen=True):
    """Event: the metadata was applied. The fields are the state of the partition at the controller, within this leader
    epoch.

    The event also comes when only a broker was registered, fenced or unfenced. An event with an older partition epoch
    than the known one is ignored.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    partition_epoch: int
    broker_epochs: Mapping[int, int]
    """The broker epochs of the replicas that may join the ISR: registered, not fenced, not about to stop."""
    # Minimum and durability are of the same moment as the set. With a set of before, a lower minimum would let be
    # committed what the replicas lack that may be elected; and a member would count with what it held in memory, and
    # has lost in a crash when only its disk was promised.
    min_isr: int = 1
    """`min.insync.replicas`, but at most the number of replicas: with fewer in-sync replicas the high watermark stands
    still."""
    is_fsynced: bool = True
    """True if the topic has `ack.durability=fsynced`: only records on disk count as acknowledged."""
    min_racks: int = 1
    """`min.insync.racks`, but at most the number of racks of the replicas: with fewer racks in sync the high watermark
    stands still."""
    racks: Mapping[int, str] = msgspec.field(default_factory=dict)
    """The rack of each replica. Replicas without one count as one rack together."""

    def is_enough(self, members: Sequence[int]) -> bool:
        """Returns True if `members` has at least the in-sync replicas and racks that the topic requires."""
        are_enough = len(members) >= self.min_isr
        return are_enough and (
            self.min_racks <= 1 or len({self.racks.get(node, "") for node in members}) >= self.min_racks
        )


class Outcome(Enum):
    """The result of one `AlterPartition` attempt."""

    APPLIED = auto()
    PROVEN_NOT_APPLIED = auto()
    """The controller refused the members (INELIGIBLE_REPLICA) and the partition epoch is new: no earlier attempt can be
    applied any more."""
    AMBIGUOUS = auto()
    """Any other result: the request was not sent, or got no answer, or named a stale epoch (perhaps because an earlier
    attempt was applied)."""


class AlterPartitionAnswered(msgspec.Struct, frozen=True):
    """Event: the result of one `AlterPartition` attempt. Each attempt gets one such event; after a deadline the outcome
    is `AMBIGUOUS`."""

    attempt: int
    outcome: Outcome
    now_ms: int
    partition_epoch: int = -1
    """The controller's present partition epoch; to be ignored if the outcome is ambiguous."""
    isr: tuple[int, ...] = ()
    """The controller's present ISR."""


class RecordsDeleted(msgspec.Struct, frozen=True):
    """Event: the leader's log start offset has risen to `log_start_offset`."""

    log_start_offset: int


class Tick(msgspec.Struct, frozen=True):
    """Event: time has passed. The leader drops ISR members that lag or have stalled, and repeats its `AlterPartition`
    request if one is due.

    It comes every `tick_ms` while something is not committed, and else some ten times per `lag_ms_max`.
    """

    now_ms: int


LeaderEvent = FollowerFlushed | IsrChanged | AlterPartitionAnswered | RecordsDeleted | Tick

# -- from the leader ---------------------------------------------------------------------------------------------------


class AlterPartition(msgspec.Struct, frozen=True):
    """Effect: ask the controller to set this ISR if the partition's epoch is still `partition_epoch`.

    The answer is the event `AlterPartitionAnswered` with the same attempt; there is never a second request before that.
    """

    attempt: int
    isr: tuple[tuple[int, int], ...]
    """The members: pairs of node id and broker epoch, which is `NO_BROKER_EPOCH` if it is not known."""
    partition_epoch: int


LeaderEffect = Effect | AlterPartition


class Serve(msgspec.Struct, frozen=True):
    """Answer to a follower's fetch: the batches from `from_offset` on, as soon as there are any."""

    from_offset: int


class Diverging(msgspec.Struct, frozen=True):
    """Answer to a follower's fetch: its log is not a prefix of the leader's. It gets these fields, and no data."""

    epoch: int
    end_offset: int


class OutOfRange(msgspec.Struct, frozen=True):
    """Answer to a follower's fetch: its log ends outside the range of the leader's log, so the two cannot be compared,
    and no batch of the follower's is of use."""

    log_start_offset: int
    log_end_offset: int


class Refused(msgspec.Struct, frozen=True):
    """Answer to a follower's fetch that is ignored: the sender is an earlier process of its broker, or no replica of
    the partition, or has followed a later leader."""

    reason: str


FetchVerdict = Serve | Diverging | OutOfRange | Refused

# -- to the follower ---------------------------------------------------------------------------------------------------


class FetchDue(msgspec.Struct, frozen=True):
    """Event: the follower is to make its next fetch. `correlation` numbers the fetches, and is never used twice; only
    the answer to the newest fetch counts."""

    correlation: int


class Fetched(msgspec.Struct, frozen=True):
    """Event: the leader answered a fetch with batches, perhaps none, that are intact and verified."""

    correlation: int
    base_offset: int
    """The base offset of the first batch; the fetch offset if there is no batch."""
    end_offset: int
    """The offset behind the last batch; `base_offset` if there is no batch."""
    epochs: tuple[tuple[int, int], ...]
    """(leader epoch, first offset) for the first batch and for each batch where the leader epoch changes."""
    high_watermark: int
    log_start_offset: int


class DivergingAt(msgspec.Struct, frozen=True):
    """Event: the leader answered a fetch with a divergence: in the leader's log, the batches of epochs up to `epoch`
    end at `end_offset`."""

    correlation: int
    epoch: int
    end_offset: int


class FetchOutOfRange(msgspec.Struct, frozen=True):
    """Event: the leader answered that this follower's log ends outside the leader's, and gave the start and end of the
    leader's log."""

    correlation: int
    log_start_offset: int
    log_end_offset: int


class Truncated(msgspec.Struct, frozen=True):
    """Event: a `Truncate` or `StartOver` was carried out durably; the log ends at `end`."""

    log_end_offset: int
    acknowledged_end: int
    """The end of the part of the log that the follower may acknowledge; less than the log's end if a remaining batch
    may have been torn by a power cut."""


class LeaderChanged(msgspec.Struct, frozen=True):
    """Event: another leader epoch has begun, under the same leader or another. Answers to earlier fetches are
    ignored."""

    leader_epoch: int


FollowerEvent = (
    FetchDue | Fetched | DivergingAt | FetchOutOfRange | Appended | AppendRefused | Flushed | Truncated | LeaderChanged
)

# -- from the follower -------------------------------------------------------------------------------------------------


class Fetch(msgspec.Struct, frozen=True):
    """Effect: fetch from the leader, and report this log's offsets to it (`FollowerFetched`)."""

    correlation: int
    fetch_offset: int
    durable_offset: int
    last_fetched_epoch: int | None


class ReportFlushed(msgspec.Struct, frozen=True):
    """Effect: report to the leader that a flush has ended (`FollowerFlushed`), while the leader still holds the fetch.

    With `ack.durability=replicated` the leader does not need the report.
    """

    fetch_offset: int
    durable_offset: int
    last_fetched_epoch: int | None


class AppendFetched(msgspec.Struct, frozen=True):
    """Effect: append the batches of the leader's answer at the log's end, and report `Appended(end)` or
    `AppendRefused(end)` at once."""

    end_offset: int


class Truncate(msgspec.Struct, frozen=True):
    """Effect: truncate the log durably, then report `Truncated`. Nothing is fetched meanwhile."""

    to: int


class StartOver(msgspec.Struct, frozen=True):
    """Effect: drop the whole log durably and begin an empty one at this offset, then report `Truncated`."""

    at: int


class FollowHighWatermark(msgspec.Struct, frozen=True):
    """Effect: take over the leader's high watermark, as far as this log goes. Under a new leader it may fall."""

    to: int


class DeleteRecords(msgspec.Struct, frozen=True):
    """Effect: delete the records below this offset, as the leader has done. They are committed and on this replica's
    disk."""

    to: int


class Distrust(msgspec.Struct, frozen=True):
    """Effect: report that the leader's answers contradict each other or this log within one leader epoch. The follower
    fetches nothing until the next epoch."""

    reason: str


FollowerEffect = (
    Fetch | ReportFlushed | AppendFetched | Truncate | StartOver | FollowHighWatermark | DeleteRecords | Distrust
)
