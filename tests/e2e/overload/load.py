"""Small produces with acks=all: in an open loop, at a pace, or from clients that go on when they are answered.

The open loop (`paced`) sends at its pace whether or not answers come, over many connections, each with one request
under way, as many clients would. A request that finds none free is not sent, but counted: more clients than that there
are not. Time is the machine's monotonic clock, the same in all processes.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.e2e.overload.books import JOB_SHIFT, Ledger, Numbered, Target
from tests.e2e.overload.wire import ANSWER_S_MAX, Ended, Link, Place

SMALL_BYTES: Final = 200
TICK_S: Final = 0.002
BEHIND_S_MAX: Final = 0.1
"""If the generator itself comes late by more, what it should have sent meanwhile is left out."""
OPENED_AT_ONCE: Final = 50
REOPEN_S: Final = 0.05
AWAY_S: Final = 2.0


@dataclass(slots=True)
class Report:
    """Counts the requests of a load by how they ended."""

    ledger: Ledger = field(default_factory=Ledger)
    begun_s: array[float] = field(default_factory=lambda: array("d"))
    """When each request was sent that was answered 200."""
    took_s: array[float] = field(default_factory=lambda: array("d"))
    """How long that took."""
    longest_s: float = 0.0
    """The longest wait for an answer, whatever it was."""
    seconds: float = 0.0
    cpu_s: float = 0.0
    sent: int = 0
    held_back: int = 0
    last_ok_s: array[float] = field(default_factory=lambda: array("d"))
    """For each client that goes on when it is answered: when it first was, after it was told of an outage."""

    def note(self, number: int, outcome: int, begun_s: float, seconds: float) -> None:
        """Counts a request that is over."""
        self.ledger.add(number, outcome)
        self.longest_s = max(self.longest_s, seconds)
        if outcome == 200:
            self.begun_s.append(begun_s)
            self.took_s.append(seconds)

    def durations(self, from_s: float = 0.0, to_s: float = float("inf")) -> list[float]:
        """Returns how long what was admitted took, if it began in that time."""
        return [took for begun, took in zip(self.begun_s, self.took_s, strict=True) if from_s <= begun < to_s]

    def rate(self, from_s: float, to_s: float) -> float:
        """Returns the goodput in a time: what was acknowledged in it, per second."""
        ends = (begun + took for begun, took in zip(self.begun_s, self.took_s, strict=True))
        return sum(from_s <= end < to_s for end in ends) / (to_s - from_s)


def percentile(values: Sequence[float], share: float) -> float:
    """Returns a percentile; infinite if there is nothing, since nothing was served."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("inf")


@dataclass(frozen=True, slots=True)
class Pace:
    """A load in an open loop, from `begin_s` on. `links` are for each broker."""

    targets: Sequence[Target]
    rate: float
    seconds: float
    begin_s: float
    job: int
    links: int = 20
    client_id: str = ""


async def paced(pace: Pace) -> Report:
    """Job: sends at a pace, then waits until all is answered."""
    return await _Paced(pace).run()


class _Paced:
    def __init__(self, pace: Pace) -> None:
        self._pace, self._report, self._is_over = pace, Report(), False
        self._batches = Numbered(SMALL_BYTES)
        length = f"Content-Length: {self._batches.size}"
        name = f"\r\nX-Client-Id: {pace.client_id}" if pace.client_id else ""
        self._heads = [target.head(length + name) for target in pace.targets]
        self._free: dict[Place, deque[Link]] = {target.place: deque() for target in pace.targets}
        self._under_way: dict[Link, int] = {}
        self._opening: set[asyncio.Task[None]] = set()

    async def run(self) -> Report:
        pace, report = self._pace, self._report
        places = [place for place in self._free for _ in range(pace.links)]
        for at in range(0, len(places), OPENED_AT_ONCE):
            await asyncio.gather(*map(self._open, places[at : at + OPENED_AT_ONCE]))
        await asyncio.sleep(max(0.0, pace.begin_s - time.monotonic()))
        cpu_s, begun_s, skipped_s = time.process_time(), time.monotonic(), 0.0
        while (passed_s := time.monotonic() - begun_s) < pace.seconds:
            due = int((passed_s - skipped_s) * pace.rate) - report.sent - report.held_back
            if due > (allowed := max(1, int(BEHIND_S_MAX * pace.rate))):
                skipped_s += (due - allowed) / pace.rate
                due = allowed
            for _ in range(due):
                self._send()
            await asyncio.sleep(TICK_S)
        report.seconds, report.cpu_s = time.monotonic() - begun_s, time.process_time() - cpu_s
        await self._end()
        return report

    def _send(self) -> None:
        report, pace = self._report, self._pace
        turn = report.sent + report.held_back
        at = turn % len(self._heads)
        free = self._free[pace.targets[at].place]
        if not free:
            report.held_back += 1
            return
        report.sent += 1
        link, number = free.popleft(), (pace.job << JOB_SHIFT) + turn
        self._under_way[link] = number
        link.ask(self._heads[at] + self._batches.whole(number), self._told)

    def _told(self, link: Link, outcome: int, seconds: float) -> None:
        self._report.note(self._under_way.pop(link), outcome, link.sent_s, seconds)
        if not link.is_lost:
            self._free[link.place].append(link)

    def _lost(self, link: Link) -> None:
        free = self._free[link.place]
        if link in free:
            free.remove(link)
        if not self._is_over:
            task = asyncio.create_task(self._open(link.place, REOPEN_S))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def _open(self, place: Place, after_s: float = 0.0) -> None:
        await asyncio.sleep(after_s)
        link = Link(place, self._lost)
        if await link.open():
            self._free[place].append(link)
        elif not self._is_over:
            self._lost(link)

    async def _end(self) -> None:
        self._is_over = True
        deadline_s = time.monotonic() + ANSWER_S_MAX
        while self._under_way and time.monotonic() < deadline_s:
            await asyncio.sleep(TICK_S)
        for number in self._under_way.values():
            self._report.note(number, Ended.UNANSWERED, 0.0, ANSWER_S_MAX)
        self._under_way.clear()
        for task in self._opening:
            task.cancel()
        for link in [link for free in self._free.values() for link in free]:
            link.close()


@dataclass(frozen=True, slots=True)
class Crowd:
    """Clients that send when they are answered, `think_s` later, or at once if they were not: without back-off.

    A client whose broker is away goes to the next one of `places`, and after `AWAY_S` there looks for its own again: to
    write by way of another broker costs both. From `outage_s` on it is noted when each was answered for the first time.
    """

    targets: Sequence[Target]
    places: Sequence[Place]
    clients: int
    seconds: float
    begin_s: float
    job: int
    think_s: float = 0.0
    outage_s: float = float("inf")


async def crowded(crowd: Crowd) -> Report:
    """Job: as many clients as that, for as long as that."""
    report, batches, cpu_s = Report(), Numbered(SMALL_BYTES), time.process_time()
    await asyncio.sleep(max(0.0, crowd.begin_s - time.monotonic()))
    begun_s = time.monotonic()
    await asyncio.gather(*(_Client(crowd, report, batches, number).run() for number in range(crowd.clients)))
    report.seconds, report.cpu_s = time.monotonic() - begun_s, time.process_time() - cpu_s
    return report


class _Client:
    def __init__(self, crowd: Crowd, report: Report, batches: Numbered, number: int) -> None:
        self._crowd, self._report, self._batches = crowd, report, batches
        self._target = crowd.targets[number % len(crowd.targets)]
        self._home = crowd.places.index(self._target.place) if self._target.place in crowd.places else number
        self._turn = self._home
        self._think_s = crowd.think_s * (1 + (number % 16) / 16) / 1.5
        self._was_heard = False

    async def run(self) -> None:
        end_s = self._crowd.begin_s + self._crowd.seconds
        await asyncio.sleep(self._think_s * (self._turn % 7) / 7)
        while time.monotonic() < end_s:
            place = self._crowd.places[self._turn % len(self._crowd.places)]
            link = Link(place)
            if await link.open():
                await self._use(link, end_s)
            self._turn = self._turn + 1 if link.is_lost else self._home
            link.close()
            await asyncio.sleep(TICK_S)  # this is a loop's turn, not a back-off

    async def _use(self, link: Link, end_s: float) -> None:
        path = Target(self._target.topic, self._target.partition, link.place)
        start = path.head(f"Content-Length: {self._batches.size}")
        back_s = end_s if link.place == self._target.place else min(end_s, time.monotonic() + AWAY_S)
        while time.monotonic() < back_s and not link.is_lost:
            number = (self._crowd.job << JOB_SHIFT) + self._report.sent
            self._report.sent += 1
            outcome, seconds = await link.asked(start + self._batches.whole(number))
            self._report.note(number, outcome, link.sent_s, seconds)
            if outcome == 200:
                self._heard()
                if self._think_s:
                    await asyncio.sleep(min(self._think_s, max(0.0, end_s - time.monotonic())))

    def _heard(self) -> None:
        now_s = time.monotonic()
        if not self._was_heard and now_s >= self._crowd.outage_s:
            self._was_heard = True
            self._report.last_ok_s.append(now_s)
