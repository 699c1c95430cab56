"""Decides whether a follower has stalled: it is behind its leader, and has acknowledged nothing new for too long.

`replica.lag.time.max.ms` (Kafka's rule) allows a follower half a minute behind, and until then `acks=all` waits for it.
A process that hangs, or whose disk hangs, is recognised much earlier: it makes no progress at all, where a slow
follower makes little. So a *stall* is a time without progress, not a distance.

- A stall is counted in the leader's ticks, each for no more than one tick's time: time in which the leader itself does
  not run (its event loop is busy, its process was stopped) does not count as a follower's stall.
- The limit adapts. It is never less than `RECENT_FACTOR` times the longest recent stall of this follower: a disk that
  hangs for 300 ms now and then is slow, not lost. A stall counts at most as the configured limit, and is forgotten
  after one to two times `RECENT_STALLS` limits. A stall for which the follower was removed does not raise the limit,
  so that the next one is noticed as early; it counts for probation instead.
- A follower that was removed from the in-sync set is *on probation*: it may come back when it has kept up for a while,
  without a stall beyond the limit; shorter stalls are allowed, as they are for members. The probation doubles with each
  removal, up to `PROBATION_STALLS_MAX` limits, and its length is forgotten after as long a time in the set. So a
  follower that hangs every few seconds does not flap, and one whose disk hesitates now and then is not kept out.

All times are multiples of the configured limit: with the default of 500 ms a stall is remembered for 30 to 60 s, and
probation lasts 1 to 60 s.

Pure; called by `IsrLeader` alone, once a tick.
"""

from __future__ import annotations

RECENT_STALLS = 60
RECENT_FACTOR = 3
PROBATION_STALLS = 2
PROBATION_STALLS_MAX = 120


class Stall:
    """The time for which one follower has acknowledged nothing new, and its probation."""

    def __init__(self, stall_ms_max: int, tick_ms: int, now_ms: int) -> None:
        """`stall_ms_max`: the configured limit in milliseconds. `tick_ms`: the interval at which `observe` is called
        while a producer waits."""
        self._stall_ms_max = stall_ms_max
        self._tick_ms = tick_ms
        self._observed_ms = now_ms
        self._acknowledged = -1
        self._silent_ms = 0
        self._recent = [0, 0]
        """The longest stall, in milliseconds, in the present period and in the one before it. A period lasts
        `RECENT_STALLS` times the configured limit."""
        self._period_ends_ms = now_ms + RECENT_STALLS * stall_ms_max
        self._probation_ms = 0
        """The length of the latest probation, in milliseconds; 0 if none is remembered."""
        self._is_out = False
        self._steady_ms = 0

    @property
    def limit_ms(self) -> int:
        """Returns the longest stall, in milliseconds, that a member may have and stay in the in-sync set."""
        return max(self._stall_ms_max, RECENT_FACTOR * max(self._recent))

    @property
    def is_stalled(self) -> bool:
        return self._silent_ms > self.limit_ms

    @property
    def keeps_up(self) -> bool:
        """True if the follower has the whole log, or has acknowledged something within half the configured limit."""
        return self._silent_ms <= self._stall_ms_max // 2

    @property
    def is_on_probation(self) -> bool:
        """True if the follower was removed from the in-sync set for a stall, and has not kept up for long
        enough since."""
        return self._is_out

    def observe(self, acknowledged: int, leader_end: int, now_ms: int) -> None:
        """Updates the stall at a tick: the follower has acknowledged everything below `acknowledged`, of a leader's log
        that ends at `leader_end`."""
        passed_ms, had_stalled = max(now_ms - self._observed_ms, 0), self.is_stalled
        self._observed_ms = now_ms
        if now_ms >= self._period_ends_ms:
            # The stalls of the period before count no more if a whole period has passed without a tick.
            is_long_over = now_ms >= self._period_ends_ms + RECENT_STALLS * self._stall_ms_max
            self._recent = [0, 0 if is_long_over else self._recent[0]]
            self._period_ends_ms = now_ms + RECENT_STALLS * self._stall_ms_max
        if acknowledged > self._acknowledged or acknowledged >= leader_end:
            # A stall counts for at most the configured limit: else one long hang would raise the limit to three times
            # as long. One that put the follower out does not count: the next such is to be noticed as early.
            if not self._is_out:
                self._recent[0] = max(self._recent[0], min(self._silent_ms, self._stall_ms_max))
            self._silent_ms = 0
        else:
            # Time in which the leader's own process did not run is nobody's stall.
            self._silent_ms += min(passed_ms, self._tick_ms)
        # It may be less than before: reports of an earlier process of the follower count no more.
        self._acknowledged = acknowledged
        self._steady_ms = 0 if had_stalled or self.is_stalled else self._steady_ms + passed_ms
        self._serve_probation()

    def _serve_probation(self) -> None:
        if self._is_out and self.keeps_up and self._steady_ms >= self._probation_ms:
            self._is_out, self._steady_ms = False, 0
        # The doubling is forgotten only after a long time in the set, so that a follower which hangs every few seconds
        # does not come and go with it.
        elif not self._is_out and self._steady_ms >= PROBATION_STALLS_MAX * self._stall_ms_max:
            self._probation_ms = 0

    def put_out(self) -> None:
        """Begins the follower's probation, because the leader asks the controller to remove it. Repeated calls before
        the removal change nothing."""
        if not self._is_out:
            least_ms, most_ms = (stalls * self._stall_ms_max for stalls in (PROBATION_STALLS, PROBATION_STALLS_MAX))
            # It doubles once for each time that it is put out, however often that is said before the controller acts.
            self._probation_ms = min(max(2 * self._probation_ms, least_ms), most_ms)
        self._is_out = True
        self._steady_ms = 0
