"""A follower of a primary-backup partition: makes its log equal to the leader's, and keeps it so.

It asks for what stands behind its log's end, and says of which epoch its last batch is. As long as the leader finds
that tail in its own log, the answers are appended as they are. Else the answer says where the leader's epochs up to
that one end, and the follower truncates its log there, or where its own epochs up to the leader's end if that is less,
and asks again (KIP-101, 279, truncate-on-fetch). What two logs have in common is never truncated, so nothing that is
committed is: its holder was in sync, and whoever leads holds it too.

Two things must not be trusted. A **high watermark** says nothing about which log is right: it is one round trip old,
and truncating to it loses batches that were committed. An **answer** counts only if it is the one to the newest
question, and the log's tail is still what it was then: an old "diverging", come twice, would truncate what was fetched
since.

A log of which nothing is of use starts over. Where the leader's begins is said by its answer "out of range", together
with what it knew of producers there. So a follower that has not been told starts over at 0, and asks from there.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.replication.isr.events import (
    AppendFetched,
    DeleteRecords,
    Distrust,
    DivergingAt,
    Fetch,
    FetchDue,
    Fetched,
    FetchOutOfRange,
    FollowerEffect,
    FollowerEvent,
    FollowHighWatermark,
    LeaderChanged,
    LogState,
    ReportFlushed,
    StartOver,
    Truncate,
    Truncated,
)
from tidelog.replication.isr.lineage import Lineage
from tidelog.replication.isr.log_events import Appended, AppendRefused, Flushed


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question under way."""

    correlation: int
    fetch_offset: int
    last_epoch: int | None


class IsrFollower:
    """The follower of one partition, over changes of leader.

    Invariant: log_start <= high_watermark <= log_end, durable <= log_end. While the log is being changed
    (`AppendFetched`, `Truncate`, `StartOver`), nothing is under way, and nothing is asked for.
    """

    def __init__(self, leader_epoch: int, log: LogState, high_watermark: int) -> None:
        """`high_watermark` is what this replica knew before."""
        self.leader_epoch = leader_epoch
        self._log_start_offset, self._durable_offset, self._log_end_offset = log[:3]
        self._lineage = Lineage(log.lineage)
        self._high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        self._leader_start_offset = log.log_start_offset
        self._asked: _Asked | None = None
        self._appending: Fetched | None = None
        self._truncating: Truncate | StartOver | None = None
        self._is_aligned = False
        self._is_distrusting = False

    @property
    def log_start_offset(self) -> int:
        """Returns where the log is to begin: what lies below was to be deleted."""
        return self._log_start_offset

    @property
    def high_watermark(self) -> int:
        """The end of what is known to be committed, and is here."""
        return self._high_watermark

    @property
    def is_aligned(self) -> bool:
        """The log is a prefix of the leader's: there has been an answer with no divergence in this epoch."""
        return self._is_aligned

    def step(self, event: FollowerEvent) -> list[FollowerEffect]:
        match event:
            case FetchDue(correlation):
                return self._fetch(correlation)
            case Fetched() | DivergingAt() | FetchOutOfRange():
                return self._on_answer(event)
            case Appended(end):
                return self._on_appended(end)
            case AppendRefused():
                self._appending = None
                return []
            case Flushed(end):
                return self._on_flushed(end)
            case Truncated(end, acknowledged):
                return self._on_truncated(end, acknowledged)
            case LeaderChanged(leader_epoch):
                assert leader_epoch > self.leader_epoch
                self.leader_epoch = leader_epoch
                self._asked = None
                self._is_aligned = self._is_distrusting = False
                return []

    # -- asking ------------------------------------------------------------------------------------------------------

    def _fetch(self, correlation: int) -> list[FollowerEffect]:
        if self._appending is not None or self._truncating is not None or self._is_distrusting:
            return []
        asked = _Asked(correlation, self._log_end_offset, self._tail_epoch)
        self._asked = asked
        return [Fetch(correlation, asked.fetch_offset, self._durable_offset, asked.last_epoch)]

    @property
    def _tail_epoch(self) -> int | None:
        """Returns the leader epoch of the last batch; None if the log is empty."""
        return self._lineage.last_epoch if self._log_end_offset > self._log_start_offset else None

    def _on_flushed(self, end: int) -> list[FollowerEffect]:
        assert end <= self._log_end_offset and self._truncating is None, (
            "no flush is under way while the log is truncated"
        )
        if end <= self._durable_offset:
            return []
        self._durable_offset = end
        effects = self._delete_records()
        if self._asked is not None:
            effects.append(ReportFlushed(self._log_end_offset, end, self._tail_epoch))
        return effects

    # -- answers -----------------------------------------------------------------------------------------------------

    def _on_answer(self, answer: Fetched | DivergingAt | FetchOutOfRange) -> list[FollowerEffect]:
        if not self._is_awaited(answer.correlation):
            return []
        self._asked = None
        match answer:
            case Fetched():
                return self._on_fetched(answer)
            case DivergingAt(_, epoch, end_offset):
                return self._on_diverging(epoch, end_offset)
            case FetchOutOfRange(_, log_start, log_end):
                return self._on_out_of_range(log_start, log_end)

    def _is_awaited(self, correlation: int) -> bool:
        """It answers the newest question, and the log's tail is what it was asked for."""
        asked = self._asked
        return (
            asked is not None
            and asked.correlation == correlation
            and asked.fetch_offset == self._log_end_offset
            and asked.last_epoch == self._tail_epoch
        )

    def _on_fetched(self, answer: Fetched) -> list[FollowerEffect]:
        if self._is_of_another_past(answer):
            return self._truncate(StartOver(0))
        if (contradiction := self._contradiction(answer)) is not None:
            return self._distrust(contradiction)
        self._is_aligned = True
        if answer.end_offset == answer.base_offset:
            return self._take_marks(answer)
        self._appending = answer
        return [AppendFetched(answer.end_offset)]

    def _is_of_another_past(self, answer: Fetched) -> bool:
        """Nothing is left of this log but the epoch of what was deleted last, and that is newer than what the leader
        has behind it: the two had parted before, and there is nothing left to compare."""
        known = self._lineage.last_epoch
        return self._tail_epoch is None and known is not None and bool(answer.epochs) and answer.epochs[0][0] < known

    def _contradiction(self, answer: Fetched) -> str | None:
        if answer.base_offset != self._log_end_offset or answer.end_offset < answer.base_offset:
            return f"asked for {self._log_end_offset}, was given {answer.base_offset} to {answer.end_offset}"
        epochs = [epoch for epoch, _ in answer.epochs]
        oldest = self._lineage.last_epoch
        if oldest is not None:
            epochs.insert(0, oldest)
        if epochs != sorted(epochs) or any(epoch > self.leader_epoch for epoch in epochs):
            return f"was given batches of epochs {epochs} in epoch {self.leader_epoch}"
        return None

    def _distrust(self, reason: str) -> list[FollowerEffect]:
        self._is_distrusting = True
        return [Distrust(reason)]

    def _on_appended(self, end: int) -> list[FollowerEffect]:
        answer = self._appending
        assert answer is not None and end == answer.end_offset, "a follower appends what it was given, and all of it"
        self._appending = None
        self._log_end_offset = end
        for epoch, offset in answer.epochs:
            self._lineage.begin(epoch, offset)
        return self._take_marks(answer)

    def _take_marks(self, answer: Fetched) -> list[FollowerEffect]:
        self._leader_start_offset = answer.log_start_offset
        effects = self._follow(min(max(answer.high_watermark, self._log_start_offset), self._log_end_offset))
        return [*effects, *self._delete_records()]

    def _follow(self, high_watermark: int) -> list[FollowerEffect]:
        if high_watermark == self._high_watermark:
            return []
        self._high_watermark = high_watermark
        return [FollowHighWatermark(high_watermark)]

    def _delete_records(self) -> list[FollowerEffect]:
        to = min(self._leader_start_offset, self._high_watermark, self._durable_offset)
        if to <= self._log_start_offset or not self._is_aligned:
            return []
        self._log_start_offset = to
        self._lineage.delete_records(to)
        return [DeleteRecords(to)]

    # -- truncating ----------------------------------------------------------------------------------------------------

    def _on_diverging(self, epoch: int, end_offset: int) -> list[FollowerEffect]:
        if self._is_aligned:
            return self._distrust(
                f"epoch {self.leader_epoch} had this log's tail, and now its epochs end at {end_offset}"
            )
        own = self._lineage.end_of(epoch, self._log_end_offset)
        to = min(end_offset, self._log_end_offset if own is None else own.offset)
        if to >= self._log_end_offset:
            return self._distrust(f"calls a log diverging that ends at {self._log_end_offset}, where its own goes on")
        if to < self._log_start_offset:
            return self._truncate(StartOver(0))
        return self._truncate(Truncate(to))

    def _on_out_of_range(self, log_start: int, log_end: int) -> list[FollowerEffect]:
        if log_start < self._log_end_offset <= log_end:
            return self._distrust(f"has {log_start} to {log_end}, and nothing at {self._log_end_offset}")
        return self._truncate(StartOver(log_start))

    def _truncate(self, truncation: Truncate | StartOver) -> list[FollowerEffect]:
        self._truncating = truncation
        return [truncation]

    def _on_truncated(self, end: int, acknowledged: int) -> list[FollowerEffect]:
        match self._truncating:
            case Truncate(to):
                assert self._log_start_offset <= end <= to
                self._lineage.truncate(end)
            case StartOver(at):
                assert end == at
                self._log_start_offset = self._leader_start_offset = end
                self._lineage.clear()
            case None:
                raise AssertionError("nothing was to be truncated")
        self._truncating = None
        assert acknowledged <= end
        self._log_end_offset, self._durable_offset = end, acknowledged
        return self._follow(min(max(self._high_watermark, self._log_start_offset), end))
