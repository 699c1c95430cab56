"""Logs that are being opened: the queue of partitions, and the task that opens a few at a time on the disk threads.

A broker that is assigned thousands of partitions, or starts with them, does everything else meanwhile: heartbeats, and
the partitions that are open. Between two groups the disk threads do other work, fsyncs above all. A partition
that a request waits for is opened before the others. New logs are made in larger groups (`new_logs`), then opened like
any other.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from typing import Final, Protocol

from tidelog.broker.runtime.log_writer import LogWriter
from tidelog.broker.runtime.purgatory import Watchers
from tidelog.model.errors import TidelogError
from tidelog.model.ids import PartitionId
from tidelog.model.ports import Clock
from tidelog.storage.load_report import LoadReport
from tidelog.storage.log_manager import LogManager
from tidelog.storage.log_opener import LogOpener
from tidelog.storage.new_logs import NewLog
from tidelog.storage.partition_log import PartitionLog

AT_ONCE: Final = 8
"""Logs that are opened together. An fsync waits at most for this many."""
IN_PARALLEL: Final = 2
"""Disk threads that open logs. More would wait for the interpreter, not for the disk: a log takes some hundred lines of
Python for each fsync."""
MADE_AT_ONCE: Final = 64
"""New logs that are made together, and share the fsyncs of their topics' directories."""


class OpenedFiles(Protocol):
    """An opened log, alone or together with other files of its replica."""

    @property
    def log(self) -> PartitionLog:
        """The replica's log."""

    @property
    def report(self) -> LoadReport:
        """The findings of the log's opening."""

    @property
    def is_offline(self) -> bool:
        """True if one of the files cannot be written to, so that the replica must not take part."""


@dataclass(frozen=True, slots=True)
class Opening:
    """A replica's log that is to be opened, or made and opened."""

    partition_id: PartitionId
    topic: str
    since: int
    """Metadata log position since which this broker is assigned the replica."""
    open: Callable[[LogOpener, int], OpenedFiles]
    """Function that opens the files, given the wall time in ms. Blocking. Raises `OSError`, `TidelogError`."""
    new: NewLog | None = None
    """New log to be made first, if it does not exist; None for a log that must exist."""


Outcome = OpenedFiles | OSError | TidelogError


@dataclass(eq=False)
class Openings:
    """The logs that one broker is opening. `run` is the task; `close` ends it. `ended` is called after each opening,
    with the `LogOpener` that opened the files, and with the files or an error."""

    manager: LogManager
    clock: Clock
    log_writer: LogWriter
    ended: Callable[[Opening, LogOpener, Outcome], None]
    progress: Watchers = field(init=False, default_factory=Watchers)
    """Watchers that are woken when openings have ended."""
    _queue: dict[PartitionId, Opening] = field(init=False, default_factory=dict)
    _hurried: dict[PartitionId, None] = field(init=False, default_factory=dict)
    _under_way: dict[PartitionId, Opening] = field(init=False, default_factory=dict)
    _since: Counter[int] = field(init=False, default_factory=Counter)
    """Number of queued and running openings by `Opening.since`, a metadata log position."""
    _wake: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    _is_closed: bool = field(init=False, default=False)

    def __contains__(self, partition_id: PartitionId) -> bool:
        return partition_id in self._queue or partition_id in self._under_way

    @property
    def pending(self) -> list[PartitionId]:
        """The partitions whose opening is queued or under way."""
        return [*self._under_way, *self._queue]

    def first_since(self, held_position: int) -> int | None:
        """Returns the lowest `since` of all openings that is at least `held_position`; None if there is none."""
        return min((since for since in self._since if since >= held_position), default=None)

    def ask(self, opening: Opening) -> None:
        """Queues an opening, or replaces the partition's queued one. Does nothing if one is under way."""
        if opening.partition_id in self._under_way:
            return
        self._forget(self._queue.get(opening.partition_id))
        self._queue[opening.partition_id] = opening
        self._since[opening.since] += 1
        self._wake.set()

    def hurry(self, partition_id: PartitionId) -> None:
        """Moves a queued partition before others, since a request waits for it."""
        if partition_id in self._queue:
            self._hurried[partition_id] = None

    async def withdraw(self, partition_ids: Collection[PartitionId]) -> None:
        """Removes partitions from the queue; returns when none of them is being opened any more."""
        for partition_id in partition_ids:
            self._forget(self._queue.pop(partition_id, None))
            self._hurried.pop(partition_id, None)
        while any(partition_id in self._under_way for partition_id in partition_ids):
            await self.progress.wait()

    async def run(self) -> None:
        """Opens queued logs until cancelled; `close` has to be called before that."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._queue and not self._is_closed:
                await self._open_some()

    async def close(self) -> None:
        """Begins no more openings; returns when none is under way."""
        self._is_closed = True
        await self.withdraw(self.pending)

    async def _open_some(self) -> None:
        group = self._take()
        try:
            error = await self._make([opening for opening in group if opening.new is not None])
            for part in _in_parts(group):
                await self._open(part, error)
        finally:
            for partition_id in list(self._under_way):
                self._end(partition_id)

    async def _open(self, group: Sequence[Opening], error: OSError | None) -> None:
        """Opens a group of logs, on several disk threads, and calls `ended` for each. `error` is why the new logs among
        them could not be made; None if they were."""
        now_ms = self.clock.wall_ms()
        parts = [part for first in range(IN_PARALLEL) if (part := group[first::IN_PARALLEL])]
        calls = [partial(_attempt_all, part, self.manager.apart, now_ms, error) for part in parts]
        outcomes = await self.log_writer.perform_all(calls)
        ended = dict(zip((opening.partition_id for opening in chain(*parts)), chain(*outcomes), strict=True))
        for opening in group:
            self.ended(opening, *ended[opening.partition_id])
            self._end(opening.partition_id)

    def _end(self, partition_id: PartitionId) -> None:
        self._forget(self._under_way.pop(partition_id))
        self.progress.wake_all()

    async def _make(self, group: Sequence[Opening]) -> OSError | None:
        """Makes the new logs of a group. Returns the error that stopped all of them, or None; an error of a single log
        is found again when it is opened."""
        names = [opening.partition_id for opening in group]
        if not names:
            return None
        prepared: list[PartitionId] = []
        try:
            await self.log_writer.perform(partial(self.manager.make_topics, names))
            for part in _in_parts(group):
                outcomes = await self.log_writer.perform_all(
                    [partial(_prepare, self.manager, opening) for opening in part]
                )
                prepared += [opening.partition_id for opening, is_made in zip(part, outcomes, strict=True) if is_made]
            await self.log_writer.perform(partial(self.manager.publish, prepared, names))
        except OSError as error:
            return error
        return None

    def _take(self) -> list[Opening]:
        """Takes the next group from the queue: partitions that requests wait for first; more of them if they
        are new."""
        names: list[PartitionId] = []
        for partition_id in dict.fromkeys((*self._hurried, *islice(self._queue, MADE_AT_ONCE))):
            opening = self._queue[partition_id]
            if len(names) >= (AT_ONCE if opening.new is None else MADE_AT_ONCE):
                break
            names.append(partition_id)
        for partition_id in names:
            self._hurried.pop(partition_id, None)
            self._under_way[partition_id] = self._queue.pop(partition_id)
        return list(self._under_way.values())

    def _forget(self, opening: Opening | None) -> None:
        if opening is not None:
            self._since[opening.since] -= 1
            if not self._since[opening.since]:
                del self._since[opening.since]


def _in_parts(group: Sequence[Opening]) -> Iterator[Sequence[Opening]]:
    for first in range(0, len(group), AT_ONCE):
        yield group[first : first + AT_ONCE]


def _prepare(manager: LogManager, opening: Opening) -> bool:
    """Makes a new log's files, on a disk thread. Returns False if an error prevents it."""
    assert opening.new is not None
    try:
        return manager.prepare(opening.new)
    except (OSError, TidelogError):
        return False


def _attempt_all(
    group: Sequence[Opening], opener: Callable[[], LogOpener], now_ms: int, not_made: OSError | None
) -> list[tuple[LogOpener, Outcome]]:
    """Opens logs, on a disk thread. Each gets a `LogOpener` of its own, so that an error of one does not affect the
    others."""
    return [_attempt(opening, opener(), now_ms, not_made) for opening in group]


def _attempt(opening: Opening, opener: LogOpener, now_ms: int, not_made: OSError | None) -> tuple[LogOpener, Outcome]:
    """Opens one log, on a disk thread; returns the files or the error. `not_made` is why new logs could not be made, or
    None."""
    if opening.new is not None and not_made is not None:
        return opener, not_made
    try:
        return opener, opening.open(opener, now_ms)
    except (OSError, TidelogError) as error:
        with suppress(OSError, TidelogError):
            opener.abandon()
        return opener, error
