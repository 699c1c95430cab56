"""Load shedding: which requests a listener refuses because there is more work than the broker can do.

Each request class has its own `DelayGate`, so that a flood of one class leaves the others served; in addition the
`Brake` refuses whole classes while the event loop runs late. Requests that keep the cluster working have no class and
are always served: replication (which uses other connections anyway), the heartbeats and commits of groups, and the
metadata by which a client finds a less busy broker.

A long poll is refused instead of being answered at once without records: a client that gets an empty answer asks again
at once, while a client that gets an error with a delay waits.
"""

from __future__ import annotations

import enum
from typing import Final

from tidelog.broker.face.brake import Brake
from tidelog.broker.face.delay_gate import DelayGate
from tidelog.model.errors import Overloaded


class RequestClass(enum.StrEnum):
    """The classes of requests, each of which is shed by itself."""

    PRODUCE = "produce"
    READ = "read"
    LONG_POLL = "long poll"
    """A read that waits for records if there are none yet."""
    ADMIN = "admin"


BRAKED_FROM: Final = {
    RequestClass.LONG_POLL: 1,
    RequestClass.READ: 2,
    RequestClass.ADMIN: 2,
    RequestClass.PRODUCE: 3,
}
"""The level of the `Brake` from which each class is refused."""


class Shedding:
    """The delay gates and the brake of one listener."""

    def __init__(self, wait_s_max: float, interval_s: float, lag_s_max: float) -> None:
        self._wait_s_max = wait_s_max
        self._lag_s_max = lag_s_max
        self._gates = {kind: DelayGate(wait_s_max, interval_s) for kind in RequestClass}
        self.brake = Brake(lag_s_max)
        self.shed = {(kind, cause): 0 for kind in RequestClass for cause in ("wait", "lag")}
        """Number of refused requests by class and cause: its own wait, or the lag of the event loop."""

    def refuse_late(self, kind: RequestClass, waited_s: float, now_s: float) -> None:
        """Raises `Overloaded` if a request that has waited `waited_s` in its queue must not be served."""
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
