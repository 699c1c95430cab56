"""A delay gate: whether the requests of one class have waited too long, for too long. Pure: time comes in.

Controlled delay (Nichols and Jacobson, "Controlling Queue Delay", 2012; RFC 8289). A queue's length says nothing about
whether there is too much to do, since a burst makes a long queue that empties. Its shortest wait does: if for a whole
*interval* everybody waited for longer than a *target*, the queue stands, and all it gives is delay.

CoDel then drops a packet now and then, faster and faster, until the senders slow down. Requests come from many clients
that know nothing of each other, so here, as in Maurer's "Fail at Scale" (2015), whoever has waited over the target is
refused until nobody was for an interval. The first in the queue is always the one that waited longest: what is served
then has waited for about the target, and the rest costs no more than its refusal.
"""

from __future__ import annotations

import math


class DelayGate:
    """The gate of one class; it is told of each request as its wait ends, in order of time."""

    def __init__(self, target_s: float, interval_s: float) -> None:
        assert target_s > 0 < interval_s
        self._target_s = target_s
        self._interval_s = interval_s
        self._heard_s = -math.inf
        """The time at which a wait ended last (s)."""
        self._over_since_s: float | None = None
        """The first of the waits over the target without one under it between; None if the last was under it."""
        self._refused_s = -math.inf
        self.is_shedding = False

    def admits(self, waited_s: float, now_s: float) -> bool:
        """Judges a request whose wait ends now; one that waited for less than the target is always let in."""
        if now_s - waited_s > self._heard_s:  # it came when nobody waited any more: the queue was empty
            self._over_since_s, self.is_shedding = None, False
        self._heard_s = now_s
        if waited_s < self._target_s:
            self._over_since_s = None
            self.is_shedding = self.is_shedding and now_s - self._refused_s < self._interval_s
            return True
        if self._over_since_s is None:
            self._over_since_s = now_s
        self.is_shedding = self.is_shedding or now_s - self._over_since_s >= self._interval_s
        if self.is_shedding:
            self._refused_s = now_s
        return not self.is_shedding
