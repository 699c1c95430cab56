"""A leader's record of one follower: the end of its log, when it was last caught up, and its broker epoch (Kafka's
`Replica`).

A follower is *caught up as of t* if it has acknowledged all that the leader's log held at time t. The leader keeps a
*mark*: a log end offset, and the time when its log ended there. Once the follower has passed the mark's offset, it was
caught up as of the mark's time, and the next mark is set.
"""

from __future__ import annotations

from tidelog.replication.isr.events import NO_BROKER_EPOCH, FollowerFlushed, FollowerReport

NOTHING = -1
NEVER_MS = -(1 << 62)


class RemoteReplica:
    """A leader's record of one follower within one leader epoch.

    Invariant: the reported part of the follower's log is a prefix of the leader's. Within one process of the follower
    it only grows, because a follower truncates before its first fetch that counts, and never truncates the common
    prefix of the two logs.
    """

    def __init__(self, leader_end: int, now_ms: int, *, is_member: bool) -> None:
        self.log_end_offset = NOTHING
        self.durable_offset = NOTHING
        self.log_start_offset = NOTHING
        self.broker_epoch = NO_BROKER_EPOCH
        """The broker epoch of the follower's process that sent the reports held here; NO_BROKER_EPOCH before its first
        fetch in this leader epoch."""
        # Without the credit a new leader's first tick would find all members lagging.
        self.caught_up_ms = now_ms if is_member else NEVER_MS
        """The latest time, in milliseconds, as of which the follower was caught up. A member of the ISR counts as
        caught up at the epoch's start, until it reports."""
        self.awaits_repair = False
        """True if the follower's log has a damaged batch that the leader may have intact."""
        self._mark = (leader_end, now_ms)
        self._had_all = False
        """True if the follower had the whole log of the leader at the last report or tick."""

    @property
    def has_reported(self) -> bool:
        return self.broker_epoch != NO_BROKER_EPOCH

    def hear(self, report: FollowerReport) -> None:
        """Takes over the offsets of a follower's report. The caller has checked that the follower's last batch is in
        the leader's log."""
        assert 0 <= report.durable_offset <= report.fetch_offset and report.broker_epoch >= self.broker_epoch
        # Another process: the crash between the two may have taken what was acknowledged from memory.
        if report.broker_epoch > self.broker_epoch:
            self.broker_epoch = report.broker_epoch
            self.log_end_offset = self.durable_offset = self.log_start_offset = NOTHING
        # Reports may come out of order. An older one of the same process is still true, and says less.
        self.log_end_offset = max(self.log_end_offset, report.fetch_offset)
        self.durable_offset = max(self.durable_offset, report.durable_offset)
        self.log_start_offset = max(self.log_start_offset, report.log_start_offset)
        # Only a fetch clears it: the next one is sent when the last is answered, while a report between two may come
        # late, from before the damage was found, and would let a copy join that lacks a batch.
        self.awaits_repair = report.awaits_repair or (self.awaits_repair and isinstance(report, FollowerFlushed))

    def acknowledged(self, *, is_fsynced: bool) -> int:
        """Returns the end of what the follower has promised to keep: on its disk if `is_fsynced`, else in memory."""
        return self.durable_offset if is_fsynced else self.log_end_offset

    def follow(self, leader_end: int, now_ms: int, *, is_fsynced: bool) -> None:
        """Updates, after a report, the time as of which the follower was caught up. If it has reached the mark (an
        earlier log end of the leader), the leader's present log end becomes the next mark."""
        end = self.acknowledged(is_fsynced=is_fsynced)
        marked_end, marked_ms = self._mark
        # The leader's very end is no measure: under steady load a follower never stands there, least of all with its
        # fsyncs. The mark is one that it can pass.
        if end >= leader_end:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
            self._had_all = True
        elif end >= marked_end:
            self.caught_up_ms = max(self.caught_up_ms, marked_ms)
        else:
            return
        self._mark = (leader_end, now_ms)

    def observe(self, leader_end: int, now_ms: int, *, is_fsynced: bool) -> None:
        """Updates the caught-up time at a tick: a follower that has the whole log sends no reports while nothing is
        written, and still counts as caught up. It falls behind from the first tick that finds records which it lacks.
        """
        # Without this, the first batch after a pause would find an idle follower lagging since its last report.
        if self._had_all:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
            self._had_all = self.acknowledged(is_fsynced=is_fsynced) >= leader_end

    def is_lagging(self, leader_end: int, now_ms: int, lag_ms_max: int, *, is_fsynced: bool) -> bool:
        """Returns True if the follower lacks records and has been behind for longer than `lag_ms_max` milliseconds. A
        follower that has the whole log never lags."""
        return self.acknowledged(is_fsynced=is_fsynced) < leader_end and now_ms - self.caught_up_ms > lag_ms_max
