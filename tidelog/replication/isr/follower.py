"""The follower of a primary-backup partition: makes its log equal to the leader's, and keeps it so.

The follower fetches from its log end offset, and names the leader epoch of its last batch. As long as the leader finds
that last batch in its own log, the follower appends the batches that it gets. Otherwise the leader answers with the end
offset of its epochs up to that one; the follower truncates its log there, or at the end of its own epochs up to that
one if that is less, and fetches again (KIP-101, KIP-279, truncate-on-fetch). The common prefix of the two logs is never
truncated, so no committed record is: the follower that holds it was in sync, and every leader holds it too.

Two things must not be trusted. A **high watermark** does not show which log is right: it is one round trip old, and
truncating to it would lose committed batches. An **answer** counts only if it belongs to the newest fetch, and the end
of the log has not changed since.

A log that has nothing in common with the leader's is dropped and begun anew.
"""

from __future__ import annotations

import msgspec

from tidelog.replication.isr import events
from tidelog.replication.isr.lineage import Lineage
from tidelog.replication.isr.log_events import Appended, AppendRefused, Flushed


class _FetchInFlight(msgspec.Struct, frozen=True):
    """A fetch that the leader has not answered, with the end of the log and the epoch of its last batch when it was
    sent."""

    correlation: int
    fetch_offset: int
    last_epoch: int | None


class IsrFollower:
    """The follower's state machine of one partition, over changes of leader.

    Invariant: log_start <= high_watermark <= log_end, durable <= log_end. While the log is being changed
    (`AppendFetched`, `Truncate`, `StartOver`), no fetch is in flight, and none is sent.
    """

    def __init__(self, leader_epoch: int, log: events.LogState, high_watermark: int) -> None:
        """Begins with the high watermark that this replica knew before, limited to its log's range."""
        self.leader_epoch = leader_epoch
        self._log_start_offset, self._durable_offset, self._log_end_offset = log[:3]
        self._lineage = Lineage(log.lineage)
        self._high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        self._leader_start_offset = log.log_start_offset
        self._in_flight: _FetchInFlight | None = None
        self._appending: events.Fetched | None = None
        self._truncating: events.Truncate | events.StartOver | None = None
        self._is_aligned = False
        self._is_distrusting = False

    @property
    def log_start_offset(self) -> int:
        """Returns the log start offset, counting a `DeleteRecords` that is not carried out yet."""
        return self._log_start_offset

    @property
    def high_watermark(self) -> int:
        """Returns the leader's high watermark, at most this log's end."""
        return self._high_watermark

    @property
    def is_aligned(self) -> bool:
        """True if the log is known to be a prefix of the leader's: the leader has answered a fetch in this epoch
        without divergence."""
        return self._is_aligned

    def step(self, event: events.FollowerEvent) -> list[events.FollowerEffect]:
        match event:
            case events.FetchDue(correlation):
                return self._fetch(correlation)
            case events.Fetched() | events.DivergingAt() | events.FetchOutOfRange():
                return self._on_answer(event)
            case Appended(end):
                return self._on_appended(end)
            case AppendRefused():
                self._appending = None
                return []
            case Flushed(end):
                return self._on_flushed(end)
            case events.Truncated(end, acknowledged):
                return self._on_truncated(end, acknowledged)
            case events.LeaderChanged(leader_epoch):
                assert leader_epoch > self.leader_epoch
                self.leader_epoch = leader_epoch
                self._in_flight = None
                self._is_aligned = self._is_distrusting = False
                return []

    # -- asking ------------------------------------------------------------------------------------------------------

    def _fetch(self, correlation: int) -> list[events.FollowerEffect]:
        if self._appending is not None or self._truncating is not None or self._is_distrusting:
            return []
        fetch = _FetchInFlight(correlation, self._log_end_offset, self._tail_epoch)
        self._in_flight = fetch
        return [events.Fetch(correlation, fetch.fetch_offset, self._durable_offset, fetch.last_epoch)]

    @property
    def _tail_epoch(self) -> int | None:
        """Returns the leader epoch of the last batch; None if the log is empty."""
        # The lineage keeps the epoch of what was deleted last, but there is no batch of it left to compare.
        return self._lineage.last_epoch if self._log_end_offset > self._log_start_offset else None

    def _on_flushed(self, end: int) -> list[events.FollowerEffect]:
        assert end <= self._log_end_offset and self._truncating is None, (
            "no flush is under way while the log is truncated"
        )
        if end <= self._durable_offset:
            return []
        self._durable_offset = end
        effects = self._delete_records()
        # A fetch that waits at the leader has the old durable offset; without one, the next fetch tells the new.
        if self._in_flight is not None:
            effects.append(events.ReportFlushed(self._log_end_offset, end, self._tail_epoch))
        return effects

    # -- answers -----------------------------------------------------------------------------------------------------

    def _on_answer(
        self, answer: events.Fetched | events.DivergingAt | events.FetchOutOfRange
    ) -> list[events.FollowerEffect]:
        if not self._is_awaited(answer.correlation):
            return []
        # Answers of the old leader count no more: it may be deposed, and its log another. A truncation under way goes
        # on; whoever leads, the disk will report its end.
        self._in_flight = None
        match answer:
            case events.Fetched():
                return self._on_fetched(answer)
            case events.DivergingAt(_, epoch, end_offset):
                return self._on_diverging(epoch, end_offset)
            case events.FetchOutOfRange(_, log_start, log_end):
                return self._on_out_of_range(log_start, log_end)

    def _is_awaited(self, correlation: int) -> bool:
        """Returns True if the answer belongs to the newest fetch, and the end of the log has not changed since that
        fetch."""
        # The offset alone proves nothing. An old answer of divergence, come twice, may find a log that ends where it
        # did before, and would truncate what was fetched since. (Kafka has one request in flight on a connection.)
        fetch = self._in_flight
        return (
            fetch is not None
            and fetch.correlation == correlation
            and fetch.fetch_offset == self._log_end_offset
            and fetch.last_epoch == self._tail_epoch
        )

    def _on_fetched(self, answer: events.Fetched) -> list[events.FollowerEffect]:
        if self._is_of_another_past(answer):
            # The next fetch is from 0. If the leader's log begins later, it answers "out of range", with its start and
            # what it knew of producers there.
            return self._truncate(events.StartOver(0))
        if (contradiction := self._contradiction(answer)) is not None:
            return self._distrust(contradiction)
        # The leader has found this log's tail in its own: for the rest of the epoch nothing here can diverge.
        self._is_aligned = True
        if answer.end_offset == answer.base_offset:
            return self._take_marks(answer)
        self._appending = answer
        return [events.AppendFetched(answer.end_offset)]

    def _is_of_another_past(self, answer: events.Fetched) -> bool:
        """Returns True if this log is empty, and the epoch of its last deleted batch is newer than that of the leader's
        batch at the same offset, so that the two logs had diverged."""
        # Epochs never fall along a log: so the two had parted before the deleted end, and no batch is left to compare.
        last_epoch = self._lineage.last_epoch
        return (
            self._tail_epoch is None
            and last_epoch is not None
            and bool(answer.epochs)
            and answer.epochs[0][0] < last_epoch
        )

    def _contradiction(self, answer: events.Fetched) -> str | None:
        # An append anywhere but at the log's end would leave a gap, or overwrite.
        if answer.base_offset != self._log_end_offset or answer.end_offset < answer.base_offset:
            return f"asked for {self._log_end_offset}, was given {answer.base_offset} to {answer.end_offset}"
        epochs = [epoch for epoch, _ in answer.epochs]
        last_epoch = self._lineage.last_epoch
        if last_epoch is not None:
            epochs.insert(0, last_epoch)
        # Epochs never fall along a log, and none is newer than its leader's.
        if epochs != sorted(epochs) or any(epoch > self.leader_epoch for epoch in epochs):
            return f"was given batches of epochs {epochs} in epoch {self.leader_epoch}"
        return None

    def _distrust(self, reason: str) -> list[events.FollowerEffect]:
        self._is_distrusting = True
        return [events.Distrust(reason)]

    def _on_appended(self, end: int) -> list[events.FollowerEffect]:
        answer = self._appending
        assert answer is not None and end == answer.end_offset, "a follower appends what it was given, and all of it"
        self._appending = None
        self._log_end_offset = end
        for epoch, offset in answer.epochs:
            self._lineage.begin(epoch, offset)
        return self._take_marks(answer)

    def _take_marks(self, answer: events.Fetched) -> list[events.FollowerEffect]:
        self._leader_start_offset = answer.log_start_offset
        # Under a new leader the high watermark may fall, as that one's is older. Nothing is truncated by it. It may
        # also be ahead of what was fetched, and this log cannot vouch for batches that it does not have.
        effects = self._follow(min(max(answer.high_watermark, self._log_start_offset), self._log_end_offset))
        return [*effects, *self._delete_records()]

    def _follow(self, high_watermark: int) -> list[events.FollowerEffect]:
        if high_watermark == self._high_watermark:
            return []
        self._high_watermark = high_watermark
        return [events.FollowHighWatermark(high_watermark)]

    def _delete_records(self) -> list[events.FollowerEffect]:
        # What is not committed, or not on this disk, is kept: a log must not begin behind what it is sure to have. Nor
        # is anything deleted before this log is known to be the leader's, for its offsets may name other batches.
        to = min(self._leader_start_offset, self._high_watermark, self._durable_offset)
        if to <= self._log_start_offset or not self._is_aligned:
            return []
        self._log_start_offset = to
        self._lineage.delete_records(to)
        return [events.DeleteRecords(to)]

    # -- truncating ----------------------------------------------------------------------------------------------------

    def _on_diverging(self, epoch: int, end_offset: int) -> list[events.FollowerEffect]:
        if self._is_aligned:
            return self._distrust(
                f"epoch {self.leader_epoch} had this log's tail, and now its epochs end at {end_offset}"
            )
        # Where one log's epochs up to this one end first, the other goes on with batches that it lacks: so they part
        # there at the latest (KIP-279). The leader's word alone could leave batches of a branch that it never saw.
        own_end = self._lineage.end_of(epoch, self._log_end_offset)
        to = min(end_offset, self._log_end_offset if own_end is None else own_end.offset)
        # It would truncate nothing, ask the same, and be told the same for ever.
        if to >= self._log_end_offset:
            return self._distrust(f"calls a log diverging that ends at {self._log_end_offset}, where its own goes on")
        # The logs part below what is left here: nothing of it is the leader's.
        if to < self._log_start_offset:
            return self._truncate(events.StartOver(0))
        return self._truncate(events.Truncate(to))

    def _on_out_of_range(self, log_start: int, log_end: int) -> list[events.FollowerEffect]:
        # A leader that has this offset compares epochs, and does not answer "out of range".
        if log_start < self._log_end_offset <= log_end:
            return self._distrust(f"has {log_start} to {log_end}, and nothing at {self._log_end_offset}")
        return self._truncate(events.StartOver(log_start))

    def _truncate(self, truncation: events.Truncate | events.StartOver) -> list[events.FollowerEffect]:
        self._truncating = truncation
        return [truncation]

    def _on_truncated(self, end: int, acknowledged: int) -> list[events.FollowerEffect]:
        assert self._truncating is not None, "nothing was to be truncated"
        match self._truncating:
            case events.Truncate(to):
                # A batch that holds `to` goes as a whole, so the log may end below it.
                assert self._log_start_offset <= end <= to
                self._lineage.truncate(end)
            case events.StartOver(at):
                assert end == at
                self._log_start_offset = self._leader_start_offset = end
                self._lineage.clear()
        self._truncating = None
        assert acknowledged <= end
        # What is kept was flushed before the truncation, but a batch in it may be torn, and is not acknowledged.
        self._log_end_offset, self._durable_offset = end, acknowledged
        return self._follow(min(max(self._high_watermark, self._log_start_offset), end))
