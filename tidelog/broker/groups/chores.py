"""What a coordinator does of its own accord: by the clock, and when the cluster's topics change.

Members that were not heard of are expelled at their time; groups get a new target when a topic of theirs has changed;
committed offsets that nobody needs any more are looked for every `offsets.retention.check.interval.ms`, and not before
that has passed once: a broker that has just taken over may not know yet of the newest topics. What finds no room in the
outbox is done a little later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from itertools import groupby, islice
from typing import Final

import structlog

from tidelog.broker.groups.tenure import Surroundings, Tenure
from tidelog.groups.records import GroupLogRecord
from tidelog.groups.upkeep import expelled, expired, with_topics
from tidelog.model.errors import TidelogError

PAUSE_S_MIN: Final = 0.01
PAUSE_S_MAX: Final = 0.5
AGAIN_MS: Final = 1_000
"""After a refusal by the outbox."""
TOMBSTONES_AT_ONCE: Final = 500

logger = structlog.get_logger("tidelog.groups")


class Chores:
    """Of one tenure. `run` is its task."""

    def __init__(self, tenure: Tenure, surroundings: Surroundings) -> None:
        self._tenure = tenure
        self._surroundings = surroundings
        self._has_news = asyncio.Event()
        self._has_news.set()
        now_s = surroundings.clock.monotonic_s()
        self._expire_at_s = now_s + surroundings.retention_check_s

    def topics_changed(self) -> None:
        """Groups that subscribe to them are to be looked at."""
        self._has_news.set()

    async def run(self) -> None:
        """Does what is due, until cancelled."""
        clock = self._surroundings.clock
        while True:
            if self._has_news.is_set():
                self._has_news.clear()
                self._follow_topics()
            self._expel()
            if clock.monotonic_s() >= self._expire_at_s:
                self._expire_at_s = clock.monotonic_s() + self._surroundings.retention_check_s
                await self._expire()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pause_s()):
                    await self._has_news.wait()

    def _pause_s(self) -> float:
        """Not for long, since whoever joins meanwhile may have a shorter session than anybody before."""
        next_s = self._tenure.sessions.next_s()
        due_s = self._expire_at_s if next_s is None else min(next_s, self._expire_at_s)
        return min(max(due_s - self._surroundings.clock.monotonic_s(), PAUSE_S_MIN), PAUSE_S_MAX)

    def _follow_topics(self) -> None:
        tenure = self._tenure
        if not self._write_groups(with_topics(tenure.shard, self._surroundings.view(), tenure.now())):
            asyncio.get_running_loop().call_later(AGAIN_MS / 1000, self._has_news.set)

    def _expel(self) -> None:
        tenure = self._tenure
        now = tenure.now()
        overdue = tenure.sessions.expired(now.monotonic_s)
        if overdue and not self._write_groups(expelled(tenure.shard, overdue, self._surroundings.view(), now)):
            for group, member_id in overdue:
                tenure.sessions.heard(group, member_id, AGAIN_MS, now.monotonic_s)

    def _write_groups(self, records: Sequence[GroupLogRecord]) -> bool:
        """The records of each group together. False if the outbox took not all of them."""
        try:
            for _, of_group in groupby(records, key=lambda record: record.group):
                self._tenure.write(tuple(of_group))
        except TidelogError as error:
            logger.warning("groups are looked after a little later", error=error.message)
            return False
        return True

    async def _expire(self) -> None:
        """Committed offsets that are over; each by itself, since none depends on another. Only by who leads for sure,
        and so knows of the newest topics."""
        tenure, around = self._tenure, self._surroundings
        try:
            await tenure.partition.extent()
            over = iter(expired(tenure.shard, around.view(), around.settings, tenure.now()))
            while piece := tuple(islice(over, TOMBSTONES_AT_ONCE)):
                tenure.write(piece)
        except TidelogError as error:
            logger.warning("old committed offsets are looked for again later", error=error.message)
