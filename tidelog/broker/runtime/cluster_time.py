"""The wall clock of a broker, compared with those of the other brokers.

No acknowledgement depends on wall clocks. But retention deletes by them, and records without a timestamp
get the broker's; so one clock that is an hour ahead, for a dead battery or a wrong zone, would delete what should be
kept.
- With each heartbeat a broker sends its wall time. The active controller compares it with the median of the live
  brokers' and answers how far it is from that. Up to `clock.skew.ms.max` nothing happens. A clock that differs by more
  is *off*: this broker uses the median's time instead, and deletes nothing by age until its clock is right again.
- Between two readings, wall clock and monotonic clock advance alike. If they do not, the wall clock was set: until a
  heartbeat that was sent after that is answered, the broker continues the time from before, and deletes nothing.

Of two clocks that differ nobody can tell which one is right: both use the middle. A broker that is alone has only
itself to compare with, and trusts its clock.
"""

from __future__ import annotations

import structlog

from tidelog.model.ports import Clock

logger = structlog.get_logger("tidelog.clock")


class ClusterTime:
    """A `Clock` whose wall time is the cluster's: corrected while this broker's own clock is off."""

    def __init__(self, clock: Clock, skew_ms_max: int) -> None:
        self._clock = clock
        self.monotonic_s = clock.monotonic_s
        """Function that returns the seconds of the process's monotonic clock."""
        self._skew_ms_max = skew_ms_max
        self._correction_ms = 0
        self._looked = clock.wall_ms(), clock.monotonic_s()
        self._set_s = clock.monotonic_s()
        """Monotonic time at which the wall clock was last set; at first, the start of this process."""
        self._is_compared = False
        self.offset_ms = 0
        """Milliseconds by which this broker's own clock is ahead of the other brokers', from the last heartbeat."""
        self.is_off = False
        """True while that difference is larger than `clock.skew.ms.max`."""

    def wall_ms(self) -> int:
        """Returns the cluster's time, in milliseconds since the Unix epoch."""
        return self._look() + self._correction_ms

    @property
    def own_ms(self) -> int:
        """This broker's own wall time in milliseconds, right or wrong."""
        return self._look()

    @property
    def may_delete(self) -> bool:
        """True if the time is good enough to delete by: it was compared with the other brokers', and agrees."""
        self._look()
        return self._is_compared and not self.is_off

    def _look(self) -> int:
        wall_ms, now_s = self._clock.wall_ms(), self._clock.monotonic_s()
        set_by_ms = wall_ms - self._looked[0] - int((now_s - self._looked[1]) * 1000)
        self._looked = wall_ms, now_s
        if abs(set_by_ms) > self._skew_ms_max:
            self._correction_ms -= set_by_ms
            self._is_compared, self._set_s = False, now_s
            logger.warning("the clock was set; its old time goes on until the others are asked", by_ms=set_by_ms)
        return wall_ms

    def compared(self, sent_s: float, offset_ms: int) -> None:
        """Takes the answer to a heartbeat that was sent at `sent_s` (monotonic): the own clock is `offset_ms` ahead of
        the median."""
        self._look()
        if sent_s < self._set_s:
            return
        was_off, self.is_off = self.is_off, abs(offset_ms) > self._skew_ms_max
        self.offset_ms, self._is_compared = offset_ms, True
        self._correction_ms = -offset_ms if self.is_off else 0
        if self.is_off and not was_off:
            logger.error(
                "the clock is off: it differs from the other brokers'; records get their time, and nothing is deleted "
                "by age until it is right; check this machine's time service",
                offset_ms=offset_ms,
            )
        elif was_off and not self.is_off:
            logger.info("the clock is right again", offset_ms=offset_ms)
