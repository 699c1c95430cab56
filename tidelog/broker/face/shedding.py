"""Shedding: what a listener does not begin because there is more to do than can be done.

Requests are of classes, each with its own `DelayGate`, so that a flood of one kind leaves the others served; beside
these the `Brake` refuses whole classes while the event loop runs late. What holds the cluster together is of no class
and always served: replication, which comes over other connections anyway, the heartbeats and commits of groups, and the
metadata by which a client finds a broker that has less to do.

A read that would wait for data is refused rather than answered at once with nothing: whoever is told that there is
nothing asks again at once, whoever is told to come later does not.
"""

from __future__ import annotations

import enum
from typing import Final

from tidelog.broker.face.brake import Brake
from tidelog.broker.face.delay_gate import DelayGate
from tidelog.model.errors import Overloaded


class RequestClass(enum.StrEnum):
    """The classes of requests: each is shed by itself."""

    PRODUCE = "produce"
    READ = "read"
    LONG_POLL = "long poll"
    """A read that waits if there is nothing yet."""
    ADMIN = "admin"


BRAKED_FROM: Final = {
    RequestClass.LONG_POLL: 1,
    RequestClass.READ: 2,
    RequestClass.ADMIN: 2,
    RequestClass.PRODUCE: 3,
}
"""The level of the brake at which a class is refused."""


class Shedding:
    """The gates and the brake of one listener."""

    def __init__(self, wait_s_max: float, interval_s: float, lag_s_max: float) -> None:
        self._wait_s_max = wait_s_max
        self._lag_s_max = lag_s_max
        self._gates = {kind: DelayGate(wait_s_max, interval_s) for kind in RequestClass}
        self.brake = Brake(lag_s_max)
        self.shed = {(kind, cause): 0 for kind in RequestClass for cause in ("wait", "lag")}
        """The number of requests that were refused, by class and cause."""

    def refuse_late(self, kind: RequestClass, waited_s: float, now_s: float) -> None:
        """Raises `Overloaded` if a request that has waited `waited_s` for its turn must not be begun."""
        if self.brake.level >= BRAKED_FROM[kind]:
            self.shed[kind, "lag"] += 1
            raise Overloaded(
                f"this broker is busy: its event loop runs {1000 * self.brake.lag_s:.0f} ms late, and from "
                f"{1000 * self._lag_s_max:.0f} ms on (loop.lag.ms.max) less is served; nothing was done, try again in "
                "a moment"
            )
        if not self._gates[kind].admits(waited_s, now_s):
            self.shed[kind, "wait"] += 1
            raise Overloaded(
                f"this broker is busy: {kind} requests wait for longer than {1000 * self._wait_s_max:.0f} ms "
                "(request.queue.wait.ms.max); nothing was done, try again in a moment"
            )
