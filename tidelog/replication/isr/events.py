"""Events and effects of the leader and the follower of a primary-backup partition.

Events of the replica's own log are in `log_events`. All times are milliseconds of one monotonic clock. Epochs of
brokers and of leaders are the controller's.

Kafka's terms throughout. "Acknowledged" is what a replica has promised to keep: with `ack.durability=fsynced` what is
on its disk, with `replicated` what it holds in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from tidelog.replication.isr.log_events import Appended, AppendRefused, Effect, Flushed

NO_BROKER_EPOCH = -1
"""The broker epoch of a member whose epoch is not known, so the controller is not to compare it."""


class LogState(NamedTuple):
    """A replica's own log, as a core finds it. `log_start_offset <= durable_offset <= log_end_offset`."""

    log_start_offset: int
    durable_offset: int
    log_end_offset: int
    lineage: tuple[tuple[int, int], ...] = ()
    """(leader epoch, first offset), as the log's trails keep it."""


# -- to the leader -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class IsrSettings:
    """The settings of the topic and the broker that a partition's leader needs. All times are milliseconds."""

    lag_ms_max: int = 30_000
    """`replica.lag.time.max.ms`: a member that is behind for longer leaves the set."""
    # A longer wait would stop producers for as long as it takes to copy so much.
    join_ms_max: int = 3_000
    """A replica outside the set that is behind by no longer than this, nor than `lag_ms_max`, holds back the high
    watermark, so that it can join."""
    stall_ms_max: int = 500
    """`replica.stall.ms.max`: a member that acknowledges nothing for longer, while others do, leaves the set."""
    tick_ms: int = 100
    """The time between two `Tick`s while a producer waits; no tick counts for more time than this."""
    retry_ms: int = 100
    """The time from an answer that changed nothing to the next attempt at an `AlterPartition`."""


@dataclass(frozen=True, slots=True)
class FollowerFetched:
    """A fetch of a follower that names this leader epoch (the caller has checked), and how far its log goes."""

    replica: int
    broker_epoch: int
    fetch_offset: int
    """The follower's log end."""
    durable_offset: int
    """The end of what its disk holds; at most `fetch_offset`."""
    # The tail makes the report checkable: one whose tail is not in the leader's log counts for nothing.
    last_fetched_epoch: int | None
    """The leader epoch of the batch before `fetch_offset`; None if the log is empty, whatever it held before."""
    now_ms: int
    awaits_repair: bool = False
    """True if a batch in its log is damaged that the leader may have whole."""
    log_start_offset: int = 0
    """The first offset of the follower's log."""


@dataclass(frozen=True, slots=True)
class FollowerFlushed:
    """A report with the fields of `FollowerFetched` between two fetches, because a flush has ended at the follower. It
    is not answered."""

    replica: int
    broker_epoch: int
    fetch_offset: int
    durable_offset: int
    last_fetched_epoch: int | None
    now_ms: int
    awaits_repair: bool = False
    log_start_offset: int = 0


@dataclass(frozen=True, slots=True)
class IsrChanged:
    """The metadata was applied: the partition as the controller has it, within this leader epoch.

    The caller tells it also when only a broker was registered, fenced or unfenced. An older partition epoch than the
    known one is ignored.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    partition_epoch: int
    broker_epochs: Mapping[int, int]
    """The broker epochs of the replicas that may join the set: registered, not fenced, not about to stop."""
    # Minimum and durability are of the same moment as the set. With a set of before, a lower minimum would let be
    # committed what the replicas lack that may be elected; and a member would count with what it held in memory, and
    # has lost in a crash when only its disk was promised.
    min_isr: int = 1
    """`min.insync.replicas`, but never more than there are replicas: below it the high watermark stands still."""
    is_fsynced: bool = True
    """True for `ack.durability=fsynced`."""
    min_racks: int = 1
    """`min.insync.racks`, but never more than the replicas' racks: below it the high watermark stands still, too."""
    racks: Mapping[int, str] = field(default_factory=dict)
    """The rack of each replica. Replicas without one count as one rack together."""

    def is_enough(self, members: Sequence[int]) -> bool:
        """Returns True if these are as many in-sync replicas, in as many racks, as the topic asks for."""
        are_enough = len(members) >= self.min_isr
        return are_enough and (
            self.min_racks <= 1 or len({self.racks.get(node, "") for node in members}) >= self.min_racks
        )


class Outcome(Enum):
    """The result of an `AlterPartition` attempt, as its answer tells it."""

    APPLIED = auto()
    PROVEN_NOT_APPLIED = auto()
    """Refused for its members (INELIGIBLE_REPLICA), and under a new partition epoch: no earlier attempt can win."""
    AMBIGUOUS = auto()
    """Any other result: not sent, no answer, a stale epoch (of which an earlier attempt may be the cause)."""


@dataclass(frozen=True, slots=True)
class AlterPartitionAnswered:
    """The result of one `AlterPartition` attempt. Each attempt is answered once, after a deadline by `AMBIGUOUS`."""

    attempt: int
    outcome: Outcome
    now_ms: int
    partition_epoch: int = -1
    """The partition epoch that the controller has now; it counts for nothing if the outcome is ambiguous."""
    isr: tuple[int, ...] = ()
    """The in-sync set that the controller has now."""


@dataclass(frozen=True, slots=True)
class RecordsDeleted:
    """The leader's log start offset has risen to this."""

    log_start_offset: int


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed: the leader drops members that lag or have stalled, and repeats its request.

    It comes every `tick_ms` while something is not committed, and else some ten times per `lag_ms_max`.
    """

    now_ms: int


LeaderEvent = FollowerFlushed | IsrChanged | AlterPartitionAnswered | RecordsDeleted | Tick

# -- from the leader ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AlterPartition:
    """Ask the controller for this in-sync set, if the partition's epoch is still this one.

    Its answer is `AlterPartitionAnswered(attempt)`; there is never a second request before that.
    """

    attempt: int
    isr: tuple[tuple[int, int], ...]
    """(node, broker epoch or `NO_BROKER_EPOCH`)."""
    partition_epoch: int


LeaderEffect = Effect | AlterPartition


@dataclass(frozen=True, slots=True)
class Serve:
    """Answer with the batches from `from_offset` on, as soon as there are any."""

    from_offset: int


@dataclass(frozen=True, slots=True)
class Diverging:
    """The follower's log is not a prefix of the leader's: answer with this, and no data."""

    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class OutOfRange:
    """The follower's log ends outside the leader's, so the two cannot be compared: no batch of it is of use."""

    log_start_offset: int
    log_end_offset: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The fetch counts for nothing: its sender is an earlier process of its broker, or no replica of the partition, or
    has followed a later leader."""

    reason: str


FetchVerdict = Serve | Diverging | OutOfRange | Refused

# -- to the follower ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FetchDue:
    """The next request to the leader is to be made. Its correlation is never used twice; the newest one counts."""

    correlation: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """The leader's answer: batches, perhaps none, that are whole and verified."""

    correlation: int
    base_offset: int
    """The base offset of the first batch; the fetch offset if there is none."""
    end_offset: int
    """The end of the last batch; `base_offset` if there is none."""
    epochs: tuple[tuple[int, int], ...]
    """The lineage of the batches: (leader epoch, first offset) wherever the epoch changes, and of the first batch."""
    high_watermark: int
    log_start_offset: int


@dataclass(frozen=True, slots=True)
class DivergingAt:
    """The leader's answer: in its log everything of epochs up to `epoch` ends at `end_offset`."""

    correlation: int
    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class FetchOutOfRange:
    """The leader's answer: this log ends outside the leader's, which has these bounds."""

    correlation: int
    log_start_offset: int
    log_end_offset: int


@dataclass(frozen=True, slots=True)
class Truncated:
    """A `Truncate` or `StartOver` was carried out, durably: the log ends here."""

    log_end_offset: int
    acknowledged_end: int
    """The end of what the follower may acknowledge: a batch that is left may have been torn by a power cut."""


@dataclass(frozen=True, slots=True)
class LeaderChanged:
    """Another leader epoch has begun, of the same leader or another. Answers to earlier fetches count no more."""

    leader_epoch: int


FollowerEvent = (
    FetchDue | Fetched | DivergingAt | FetchOutOfRange | Appended | AppendRefused | Flushed | Truncated | LeaderChanged
)

# -- from the follower -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fetch:
    """Fetch from the leader, and report how far this log goes (`FollowerFetched`)."""

    correlation: int
    fetch_offset: int
    durable_offset: int
    last_fetched_epoch: int | None


@dataclass(frozen=True, slots=True)
class ReportFlushed:
    """Tell the leader that the disk has caught up (`FollowerFlushed`), while it still holds the fetch.

    With `ack.durability=replicated` the leader has no use for it.
    """

    fetch_offset: int
    durable_offset: int
    last_fetched_epoch: int | None


@dataclass(frozen=True, slots=True)
class AppendFetched:
    """Append the answer's batches at the log's end, and report `Appended(end)` or `AppendRefused(end)` at once."""

    end_offset: int


@dataclass(frozen=True, slots=True)
class Truncate:
    """Truncate the log, durably; then `Truncated`. Nothing is fetched meanwhile."""

    to: int


@dataclass(frozen=True, slots=True)
class StartOver:
    """Drop the whole log and begin an empty one at this offset, durably; then `Truncated`."""

    at: int


@dataclass(frozen=True, slots=True)
class FollowHighWatermark:
    """Take over the leader's high watermark, as far as this log goes. Under a new leader it may fall."""

    to: int


@dataclass(frozen=True, slots=True)
class DeleteRecords:
    """Delete the records below this offset, as the leader has. They are committed, and on this disk."""

    to: int


@dataclass(frozen=True, slots=True)
class Distrust:
    """Report that the leader contradicts itself within its epoch. The follower fetches nothing until the next one."""

    reason: str


FollowerEffect = (
    Fetch | ReportFlushed | AppendFetched | Truncate | StartOver | FollowHighWatermark | DeleteRecords | Distrust
)
