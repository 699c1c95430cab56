"""Detection of brokers that hang: they accept requests and answer none (`Presence`).

The timeout of a request allows for the slowest answer, so it is too long for detecting a broker that hangs (a stopped
process, an event loop that waits for a disk). Instead:

- Every response shows that the broker runs.
- If a response is overdue, and no response at all has come for `QUIET_S`, the broker is sent a cheap probe. It has to
  answer the probe soon, not the overdue request.
- If the probe is not answered either, the broker is *silent*: all waits for its responses end with `Silent`. The time
  allowed for a probe follows from the slowest recent response: under load everything is slow, and clients that gave up
  would resend and add to the load. Between brokers most requests wait by themselves for unknown times, so there only
  the responses to probes count beyond `slow_s_max`.

A request that waits by itself, such as a long poll, is overdue only after its own wait. A client whose process was
stopped reads the responses that arrived meanwhile before it can find a broker silent, since a probe takes at least one
turn of the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass, field
from math import inf

QUIET_S = 0.5
"""Seconds without a response after which the broker is probed."""
PATIENCE_S_MIN, PATIENCE_S_MAX = 0.5, 10.0
"""Bounds, in seconds, of the time allowed for the response to a probe."""
PATIENCE_FACTOR = 2.0
"""Factor from the slowest recent response to the time allowed for a probe."""
LATE_S = 30.0
"""Seconds of the periods over which slow responses are remembered: the present and the previous period count."""


class Silent(TimeoutError):
    """The broker accepts requests and answers none; the outcome of a sent request is unknown."""


GiveUp = Callable[["Silent"], None]


@dataclass(eq=False)
class Presence:
    """Detects whether one broker hangs, for callers that wait for its responses.

    `ask` sends a probe; it returns True if the broker answered within the given seconds. `on_silent` is called when the
    broker turns out to be silent, and repeatedly while it stays so; then probes continue even if no response is
    awaited.
    """

    _name: str
    _ask: Callable[[float], Awaitable[bool]]
    _: KW_ONLY
    quiet_s: float = field(default_factory=lambda: QUIET_S)
    slow_s_max: float = inf
    on_silent: Callable[[], None] | None = None
    _is_silent: bool = field(default=False, init=False)
    _due_s: dict[GiveUp, float] = field(default_factory=dict, init=False)
    """The time at which each awaited response is overdue, by the function that ends its wait."""
    _missed_s: float = field(default=inf, init=False)
    """The earliest due time of responses that timed out since the last response; infinite if none has."""
    _heard_s: float = field(default=0.0, init=False)
    _slowest: list[float] = field(default_factory=lambda: [0.0, 0.0], init=False)
    _period_ends_s: float = field(default=0.0, init=False)
    _watch: asyncio.Task[None] | None = field(default=None, init=False)

    @property
    def is_silent(self) -> bool:
        """True from when the broker turned out to be silent until something is heard of it."""
        return self._is_silent

    @property
    def patience_s(self) -> float:
        """Seconds allowed for the response to a probe."""
        return min(max(PATIENCE_FACTOR * max(self._slowest), PATIENCE_S_MIN), PATIENCE_S_MAX)

    @asynccontextmanager
    async def required(self, expects_s: float) -> AsyncIterator[None]:
        """A context in which the caller waits for a response that usually takes at most `expects_s` seconds.

        Raises `Silent` inside as soon as the broker turns out to be silent.
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
        """Registers the wait for a response that usually takes at most `expects_s` seconds.

        `give_up` is called as soon as the broker turns out to be silent, unless `answered` or `forget` was called
        before.
        """
        self._due_s[give_up] = asyncio.get_running_loop().time() + expects_s
        # Not by a flag that the task clears: cancelled before its first step, it would clear none.
        if self._watch is None or self._watch.done():
            self._watch = asyncio.create_task(self._look())

    def answered(self, give_up: GiveUp) -> None:
        """Ends the wait, since the response has arrived."""
        due_s = self._due_s.pop(give_up, None)
        if due_s is not None:
            self._heard(min(asyncio.get_running_loop().time() - due_s, self.slow_s_max))

    def forget(self, give_up: GiveUp) -> None:
        """Ends the wait for a response, if there is one."""
        self._due_s.pop(give_up, None)

    def missed(self, give_up: GiveUp) -> None:
        """Ends the wait for a response that timed out. The broker still owes it, so it counts as overdue until
        something is heard of the broker."""
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
        """Probes the broker whenever it is quiet, for as long as responses are awaited."""
        loop = asyncio.get_running_loop()
        while self._due_s or self._missed_s < inf or (self._is_silent and self.on_silent is not None):
            owed_s = min(self._missed_s, min(self._due_s.values(), default=inf))
            quiet_at_s = max(0.0 if owed_s == inf else owed_s, self._heard_s) + self.quiet_s
            if loop.time() < quiet_at_s:  # what is due earlier may be sent meanwhile
                await asyncio.sleep(min(quiet_at_s - loop.time(), self.quiet_s))
            elif not await self._is_there():
                self._fall_silent()
                await asyncio.sleep(self.quiet_s)  # a connection that is refused would be asked without end

    async def _is_there(self) -> bool:
        sent_s = asyncio.get_running_loop().time()
        if await self._ask(self.patience_s):
            self._heard(asyncio.get_running_loop().time() - sent_s)
        return self._heard_s >= sent_s

    def _fall_silent(self) -> None:
        self._is_silent, self._missed_s = True, inf
        given_up, self._due_s = self._due_s, {}
        for give_up in given_up:
            give_up(Silent(f"{self._name} is silent: it takes requests, and answers none"))
        if self.on_silent is not None:
            self.on_silent()

    def close(self) -> list[asyncio.Task[None]]:
        """Cancels the probes. Returns their task, if it runs, for the caller to await. Idempotent."""
        tasks = [] if self._watch is None or self._watch.done() else [self._watch]
        for task in tasks:
            task.cancel()
        return tasks
