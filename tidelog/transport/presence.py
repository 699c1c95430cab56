"""The presence of a broker, for as long as a client or another broker waits for its answers.

A broker that hangs (its process is stopped, its event loop waits for a disk) takes what it is sent, and says nothing.
A request's own timeout allows for the slowest answer, so it is the wrong measure for that. Instead:

- Every answer shows that the broker is there.
- If an answer is overdue, and none at all has come for `QUIET_S`, the broker is asked for what costs it nothing. It
  need not be quick with the answer that it owes, only with this one.
- If that is not answered either, it is *silent*: whatever waits for it ends with `Silent`. How long is long enough
  follows from what the broker has lately taken to answer: under load all is slow, and a client that gave up then would
  send the same again, and add to the load. Between brokers most requests wait for something by themselves, and nobody
  knows for how long; so there only an answer to the question says more than `slow_s_max` of how slow a broker is.

A request that waits by itself, such as a long poll, is overdue only when it has waited as long as it asked to. A client
that did not run itself (its process was stopped) finds the answers that came meanwhile before it may call the broker
silent, since its question takes a turn of the loop at the least.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from math import inf

QUIET_S = 0.5
"""The seconds without an answer after which the broker is asked whether it is there."""
PATIENCE_S_MIN, PATIENCE_S_MAX = 0.5, 10.0
"""Bounds of how long it may take to say that it is."""
PATIENCE_FACTOR = 2.0
"""The patience is this many times the slowest answer of late."""
LATE_S = 30.0
"""An answer's slowness is remembered for one to two of these."""


class Silent(TimeoutError):
    """The broker takes requests and answers none; whether it will do what it was sent is unknown."""


GiveUp = Callable[["Silent"], None]


class Presence:
    """The presence of one broker, for somebody who waits for its answers."""

    def __init__(
        self,
        name: str,
        ask: Callable[[float], Awaitable[bool]],
        *,
        quiet_s: float | None = None,
        slow_s_max: float = inf,
        on_silent: Callable[[], None] | None = None,
    ) -> None:
        """`ask` asks it for something cheap; True if it has answered within the seconds that are given.

        `on_silent` is called when it turns out to be silent, and again for as long as it stays so: then it is asked on,
        whether anything waits for it or not.
        """
        self._name = name
        self._ask = ask
        self._quiet_s = QUIET_S if quiet_s is None else quiet_s
        self._slow_s_max = slow_s_max
        self._on_silent = on_silent
        self._is_silent = False
        self._due_s: dict[GiveUp, float] = {}
        """When each answer that is waited for is overdue, by what gives it up."""
        self._missed_s = inf
        """When the first was overdue of those that were not waited for any longer, since anything was heard."""
        self._heard_s = 0.0
        self._slowest = [0.0, 0.0]
        self._period_ends_s = 0.0
        self._watch: asyncio.Task[None] | None = None

    @property
    def is_silent(self) -> bool:
        """True from when the broker turned out to be silent until something is heard of it."""
        return self._is_silent

    @property
    def patience_s(self) -> float:
        """How long the broker may take to say that it is there."""
        return min(max(PATIENCE_FACTOR * max(self._slowest), PATIENCE_S_MIN), PATIENCE_S_MAX)

    @asynccontextmanager
    async def required(self, expects_s: float) -> AsyncIterator[None]:
        """Waits inside for an answer, which usually takes no longer than `expects_s`.

        Raises `Silent` as soon as the broker turns out to be silent.
        """
        scope = asyncio.timeout(None)
        silence: list[Silent] = []

        def give_up(silent: Silent) -> None:
            silence.append(silent)
            scope.reschedule(asyncio.get_running_loop().time())

        self.expect(give_up, expects_s)
        try:
            async with scope:
                yield
                self.answered(give_up)
        except TimeoutError as error:
            if not scope.expired():
                raise
            raise silence[0] from error
        finally:
            self.forget(give_up)

    def expect(self, give_up: GiveUp, expects_s: float) -> None:
        """Begins to wait for an answer, which usually takes no longer than `expects_s`.

        `give_up` is called as soon as the broker turns out to be silent, unless `answered` or `forget` was before.
        """
        self._due_s[give_up] = asyncio.get_running_loop().time() + expects_s
        if self._watch is None:
            self._watch = asyncio.create_task(self._look())

    def answered(self, give_up: GiveUp) -> None:
        """Notes that the answer is there."""
        due_s = self._due_s.pop(give_up, None)
        if due_s is not None:
            self._heard(min(asyncio.get_running_loop().time() - due_s, self._slow_s_max))

    def forget(self, give_up: GiveUp) -> None:
        """Ends the wait for the answer, if there is one."""
        self._due_s.pop(give_up, None)

    def missed(self, give_up: GiveUp) -> None:
        """Notes that the answer did not come in the time that there was for it."""
        # It is still owed: a broker that is asked again and again, with little time for each answer, would never turn
        # out to be silent otherwise.
        due_s = self._due_s.pop(give_up, inf)
        if due_s >= self._heard_s:
            self._missed_s = min(self._missed_s, due_s)

    def _heard(self, late_s: float) -> None:
        self._is_silent = False
        self._missed_s = inf
        self._heard_s = now_s = asyncio.get_running_loop().time()
        if now_s >= self._period_ends_s:
            self._slowest = [0.0, self._slowest[0]]
            self._period_ends_s = now_s + LATE_S
        self._slowest[0] = max(self._slowest[0], late_s)

    async def _look(self) -> None:
        """Asks the broker when it is quiet, for as long as something is waited for."""
        loop = asyncio.get_running_loop()
        try:
            while self._due_s or self._missed_s < inf or (self._is_silent and self._on_silent is not None):
                owed_s = min(self._missed_s, min(self._due_s.values(), default=inf))
                quiet_at_s = max(0.0 if owed_s == inf else owed_s, self._heard_s) + self._quiet_s
                if loop.time() < quiet_at_s:  # what is due earlier may be sent meanwhile
                    await asyncio.sleep(min(quiet_at_s - loop.time(), self._quiet_s))
                elif not await self._is_there():
                    self._fall_silent()
                    await asyncio.sleep(self._quiet_s)  # a connection that is refused would be asked without end
        finally:
            self._watch = None

    async def _is_there(self) -> bool:
        asked_s = asyncio.get_running_loop().time()
        if await self._ask(self.patience_s):
            self._heard(asyncio.get_running_loop().time() - asked_s)
        return self._heard_s >= asked_s

    def _fall_silent(self) -> None:
        self._is_silent, self._missed_s = True, inf
        given_up, self._due_s = self._due_s, {}
        for give_up in given_up:
            give_up(Silent(f"{self._name} is silent: it takes requests, and answers none"))
        if self._on_silent is not None:
            self._on_silent()

    def close(self) -> None:
        """Asks no more. Idempotent."""
        if self._watch is not None:
            self._watch.cancel()
