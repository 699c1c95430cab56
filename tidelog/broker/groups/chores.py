"""Background work of a group coordinator: session timeouts, changes of topics, expiry of offsets.

Members whose session has expired are removed; groups get a new target assignment when a topic of theirs has changed;
expired committed offsets are deleted every `offsets.retention.check.interval.ms`. The first deletion waits for one
whole interval, because a broker that has just taken over may not know the newest topics yet. Records that do not fit
into the outbox (the queue of records to append) are written a little later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from itertools import groupby, islice
from typing import Final

import structlog

from tidelog.broker.groups.coordinator_state import CoordinatorContext, CoordinatorState
from tidelog.groups.records import GroupLogRecord
from tidelog.groups.upkeep import expelled, expired, with_topics
from tidelog.model.errors import TidelogError

PAUSE_S_MIN: Final = 0.01
PAUSE_S_MAX: Final = 0.5
AGAIN_MS: Final = 1_000
"""Milliseconds until background work is tried again after the outbox (the queue of records to append) was full."""
TOMBSTONES_AT_ONCE: Final = 500

logger = structlog.get_logger("tidelog.groups")


class Chores:
    """The background work of one `CoordinatorState`. `run` is its task."""

    def __init__(self, state: CoordinatorState, context: CoordinatorContext) -> None:
        self._state = state
        self._context = context
        self._has_news = asyncio.Event()
        # Topics may have changed while nobody coordinated these groups, so the first look is due at once.
        self._has_news.set()
        now_s = context.clock.monotonic_s()
        # Not before a whole interval has passed: a broker that has just taken over may have an older image, and would
        # take the offsets of a new topic for those of a deleted one.
        self._expire_at_s = now_s + context.retention_check_s

    def topics_changed(self) -> None:
        """Makes `run` check the subscriptions of all groups against the changed topics."""
        self._has_news.set()

    async def run(self) -> None:
        """Removes members whose session has expired, checks subscriptions after changes of topics, and deletes expired
        offsets, each when it is due, until cancelled."""
        clock = self._context.clock
        while True:
            if self._has_news.is_set():
                self._has_news.clear()
                self._follow_topics()
            self._expel()
            if clock.monotonic_s() >= self._expire_at_s:
                # The next time is set first: a look that fails waits for it as well, since old offsets are in no hurry.
                self._expire_at_s = clock.monotonic_s() + self._context.retention_check_s
                await self._expire()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pause_s()):
                    await self._has_news.wait()

    def _pause_s(self) -> float:
        """Returns the seconds to sleep: until the next deadline, but no longer than `PAUSE_S_MAX`, since a member that
        joins meanwhile may have a shorter session."""
        next_s = self._state.sessions.next_s()
        due_s = self._expire_at_s if next_s is None else min(next_s, self._expire_at_s)
        return min(max(due_s - self._context.clock.monotonic_s(), PAUSE_S_MIN), PAUSE_S_MAX)

    def _follow_topics(self) -> None:
        state = self._state
        if not self._write_groups(with_topics(state.shard, self._context.view(), state.now())):
            # Nothing has to be remembered: the digest in a group's record is still that of the old topics, so the next
            # look finds the same groups.
            asyncio.get_running_loop().call_later(AGAIN_MS / 1000, self._has_news.set)

    def _expel(self) -> None:
        state = self._state
        now = state.now()
        overdue = state.sessions.expired(now.monotonic_s)
        if overdue and not self._write_groups(expelled(state.shard, overdue, self._context.view(), now)):
            # `expired` has forgotten these deadlines. Without new ones a member that is silent would keep its
            # partitions for ever.
            for group, member_id in overdue:
                state.sessions.heard(group, member_id, AGAIN_MS, now.monotonic_s)

    def _write_groups(self, records: Sequence[GroupLogRecord]) -> bool:
        """Writes the records, those of each group in one batch. Returns False if the outbox (the queue of records to
        append) was full before all were in it."""
        try:
            # A group's records go into one batch: a log that ends between its new epoch and its targets would tell of a
            # state that nobody decided. The groups need not share one. `groupby` relies on a group's records standing
            # together.
            for _, of_group in groupby(records, key=lambda record: record.group):
                self._state.write(tuple(of_group))
        except TidelogError as error:
            logger.warning("groups are looked after a little later", error=error.message)
            return False
        return True

    async def _expire(self) -> None:
        """Writes tombstones for expired committed offsets; each is independent of the others."""
        state, context = self._state, self._context
        try:
            # This raises if the broker's lease has run out: one that is cut off knows neither the newest topics nor its
            # successor's commits.
            await state.partition.extent()
            outdated = iter(expired(state.shard, context.view(), context.settings, state.now()))
            # In pieces: all of them at once might be more than one batch can have (`TooLarge`), today and at each later
            # try.
            while piece := tuple(islice(outdated, TOMBSTONES_AT_ONCE)):
                state.write(piece)
        except TidelogError as error:
            logger.warning("old committed offsets are looked for again later", error=error.message)
