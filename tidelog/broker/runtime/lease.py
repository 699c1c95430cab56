"""The lease of a broker: how long it may act as a leader without an answer from the controller.

A broker that is cut off from the controller cannot know whether another leads in its place by now. The controller gives
a silent broker's partitions to others when its session ends, or when others confirm its silence, but never within
`broker.lease.ms` of its last heartbeat; so a broker whose heartbeat was answered is still the leader for the rest of
the lease, which began, at the earliest, when it sent the heartbeat. After that it takes no writes and answers no reads
as a leader, until a heartbeat is answered again. A deposed leader would otherwise show an old end of the log, send
readers back who have read further elsewhere, and report sequence gaps that are in its own log only. (Gray and
Cheriton's leases; the controller does its part by waiting.)

No acknowledged record depends on it: these rest on epochs and in-sync sets, whatever the clocks do.
"""

from __future__ import annotations

from tidelog.model.errors import LeaderNotAvailable
from tidelog.model.ports import Clock

SHARE = 0.9
"""Share of a lease that a broker uses: clocks may differ in speed by a tenth."""


class Lease:
    """The lease of one broker, during which it may act as a leader."""

    def __init__(self, clock: Clock, lease_ms: int) -> None:
        self._clock = clock
        self._term_s = lease_ms / 1000 * SHARE
        self._until_s = 0.0

    def renew(self, sent_s: float) -> None:
        """Renews the lease after an answered heartbeat that was sent at `sent_s` (monotonic). The caller has made sure
        that everything the controller had decided by then is in force here: this broker may have been fenced, and
        others elected."""
        self._until_s = max(self._until_s, sent_s + self._term_s)

    @property
    def is_held(self) -> bool:
        return self._clock.monotonic_s() < self._until_s

    def require(self) -> None:
        """Raises `LeaderNotAvailable` if another broker may lead by now: nothing was done."""
        if self._clock.monotonic_s() >= self._until_s:
            raise LeaderNotAvailable(
                "this broker has not heard from the controller for so long that another may lead this partition by "
                "now; nothing was appended or read. Try again; replica=local reads what is here"
            )
