"""How long a broker may act as a leader without hearing from the controller.

Who is cut off from the controller cannot know whether another leads in its place by now. The controller gives a silent
broker's partitions to others when its session ends, or when others confirm its silence, but never within
`broker.lease.ms` of having heard it; so a broker that has been answered a heartbeat is still the leader for the rest of
the lease that began, at the earliest, when it sent it. After that it takes no writes and answers no reads as a leader,
until it is heard again. A zombie would show an old end of the log, send readers back who have read further elsewhere,
and tell producers of gaps that are in its own log only. (Gray and Cheriton's leases; the controller does its part by
waiting.)

Nothing acknowledged is at stake: that rests on epochs and in-sync sets, whatever the clocks do.
"""

from __future__ import annotations

from tidelog.model.errors import LeaderNotAvailable
from tidelog.model.ports import Clock

SHARE = 0.9
"""The share of a lease that counts: clocks may differ in speed by a tenth."""


class Lease:
    """The lease of one broker."""

    def __init__(self, clock: Clock, lease_ms: int) -> None:
        self._clock = clock
        self._term_s = lease_ms / 1000 * SHARE
        self._until_s = 0.0

    def renew(self, sent_s: float) -> None:
        """A heartbeat sent then (monotonic) was answered: this broker is not fenced. What the controller had decided by
        then must be in force here: it may have been fenced, and others elected, and all that forgiven by this answer.
        """
        self._until_s = max(self._until_s, sent_s + self._term_s)

    @property
    def is_held(self) -> bool:
        return self._clock.monotonic_s() < self._until_s

    def require(self) -> None:
        """Raises `LeaderNotAvailable` if somebody else may lead by now: nothing was done."""
        if not self.is_held:
            raise LeaderNotAvailable(
                "this broker has not heard from the controller for so long that another may lead this partition by "
                "now; nothing was appended or read. Try again; replica=local reads what is here"
            )
