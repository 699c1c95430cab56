"""A delay gate: detects that the requests of one class have queued too long (CoDel). Pure: callers pass the time.

Controlled delay (Nichols and Jacobson, "Controlling Queue Delay", 2012; RFC 8289). A queue's length does not show
overload, since a burst makes a long queue that empties. Its shortest wait does: if for a whole *interval* all requests
waited longer than a *target*, the queue is a standing one that only adds delay.

CoDel then drops a packet now and then, ever more often, until the senders slow down. Requests come from many clients
that know nothing of each other, so here, as in Maurer's "Fail at Scale" (2015), every request that waited longer than
the target is refused, until none was refused for an interval. The first in the queue is always the one that waited
longest: requests that are served then have waited for about the target, and the others cost no more than a refusal.
"""

from __future__ import annotations

import math


class DelayGate:
    """The delay gate of one request class. It is called once per request when its wait ends, in order of time."""

    def __init__(self, target_s: float, interval_s: float) -> None:
        assert target_s > 0 < interval_s
        self._target_s = target_s
        self._interval_s = interval_s
        self._heard_s = -math.inf
        """Time at which the last wait ended (s)."""
        self._over_since_s: float | None = None
        """Time of the first wait over the target since the last one under it; None if the last wait was under the
        target.
        """
        self._refused_s = -math.inf
        self.is_shedding = False

    def admits(self, waited_s: float, now_s: float) -> bool:
        """Returns True if a request whose wait ends now may be served; always for a wait below the target."""
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
