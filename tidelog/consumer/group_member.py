"""`GroupMember`: the task that keeps a consumer in its group by successive heartbeats, each a long poll.

`Membership` decides the content and time of heartbeats and the effect of the responses. This module adds the clock, the
requests and new member ids. It also enforces `max_poll_interval_ms`: a consumer that is not called for so long leaves
the group, and the next call raises an error.

Failed brokers are bypassed; transient errors are retried indefinitely. A lasting error ends the task and is raised by
the next call; the call after that joins again.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from tidelog.consumer.errors import PollIntervalExceeded
from tidelog.consumer.group_calls import GroupCalls
from tidelog.consumer.membership import EXPELLED, Membership
from tidelog.consumer.options import GroupOptions
from tidelog.model.errors import TidelogError
from tidelog.model.groups import Heartbeat
from tidelog.model.ids import TopicPartition
from tidelog.model.ports import Entropy
from tidelog.transport.session import ClusterSession

logger = logging.getLogger(__name__)

PATIENCE_SHARE: Final = 0.2
"""Fraction of the session timeout to wait for a due response before another broker is asked."""
FAREWELL_S: Final = 5.0
ID_BYTES: Final = 16
SHOWN_MAX: Final = 8
"""Maximum partitions in a log line."""


class GroupMember:
    """The member of a group, from `start` to `stop`, possibly several times; each time with a new member id."""

    def __init__(
        self,
        session: ClusterSession,
        calls: GroupCalls,
        options: GroupOptions,
        entropy: Entropy,
        on_news: Callable[[], None],
    ) -> None:
        self._session = session
        self._calls = calls
        self._options = options
        self._entropy = entropy
        self._on_news = on_news
        self.membership = Membership(
            options.group,
            self._new_id(),
            instance_id=options.instance_id,
            client_id=options.client_id,
            rack=options.rack,
            assignor=options.assignor,
            session_timeout_ms=options.session_timeout_ms,
            rebalance_timeout_ms=options.max_poll_interval_ms,
        )
        self._task: asyncio.Task[None] | None = None
        self._is_wanted = asyncio.Event()
        self._interval_s = options.session_timeout_ms / 3000
        """Seconds that a heartbeat's long poll lasts: before the first response, the longest that any coordinator asks
        for."""
        self._calls_now = 0
        self._asked_s = 0.0
        self._lost: dict[TopicPartition, None] = {}
        self._error: TidelogError | None = None
        self.failure: BaseException | None = None
        """The unexpected exception that ended the task, a bug, to be raised to the caller."""

    # -- life ----------------------------------------------------------------------------------------------------

    @property
    def is_subscribed(self) -> bool:
        """True from `start` to `stop`, in or out of the group."""
        return self._task is not None

    @property
    def is_running(self) -> bool:
        """True while the task runs: not before `start`, after `stop`, or after an error that has to be raised first."""
        return self._task is not None and not self._task.done()

    def start(self, topics: Sequence[str], pattern: str) -> None:
        """Joins with this subscription; changes the subscription if already started."""
        if not self.is_running:
            self._asked_s = self._now_s()
        self._cancel()
        self._error = None
        if self.membership.is_out:
            self.membership.rejoin(self._new_id())
        self.membership.subscribe(topics, pattern)
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """Leaves the group. Idempotent; no records of its partitions may be returned afterwards."""
        task, last = self._task, self.membership.leave()
        self._cancel()
        self._lost.clear()
        self._error = None
        if task is not None:
            await asyncio.gather(task, return_exceptions=True)
        await self._say_farewell(last)

    def hurry(self) -> None:
        """Sends the next heartbeat at once."""
        self._is_wanted.set()

    def _cancel(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self.failure = task.exception()
            self._on_news()

    def _new_id(self) -> str:
        return self._entropy.token_hex(ID_BYTES)

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()

    # -- what the consumer's calls say and see ---------------------------------------------------------------------

    def call_began(self) -> None:
        """Notes the start of a call for records; the poll interval does not run during calls."""
        self._calls_now += 1

    def call_ended(self) -> None:
        """Notes the end of a call: `max_poll_interval_ms` counts from here."""
        self._calls_now -= 1
        self._asked_s = self._now_s()

    @property
    def has_lost(self) -> bool:
        """True if there are lost partitions or an error to report."""
        return bool(self._lost) or self._error is not None

    def take_lost(self) -> list[TopicPartition]:
        """Returns the partitions that were lost to other members since the last call, sorted."""
        lost, self._lost = sorted(self._lost), {}
        return lost

    def take_error(self) -> TidelogError | None:
        """Returns the error that ended the membership, once; None if there is none."""
        error, self._error = self._error, None
        return error

    # -- the task ------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        backoff = self._session.backoff()
        while True:
            await self._until_due()
            if self._now_s() >= self._idle_end_s:
                await self._expire()
                return
            try:
                await self._beat()
                backoff.reset()
            except TidelogError as error:
                self._failed(error)
                if self.membership.is_out:
                    return
                await asyncio.sleep(backoff.next_s())

    async def _until_due(self) -> None:
        while (until_s := min(self.membership.due_s, self._idle_end_s)) > self._now_s():
            self._is_wanted.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until_s):
                    await self._is_wanted.wait()

    @property
    def _idle_end_s(self) -> float:
        """The time at which `max_poll_interval_ms` ends (event loop time, s)."""
        return math.inf if self._calls_now else self._asked_s + self._options.max_poll_interval_ms / 1000

    async def _beat(self) -> None:
        sent_s = self._now_s()
        wait_s = max(0.0, min(self._interval_s, self._idle_end_s - sent_s))
        heartbeat = self.membership.heartbeat(sent_s, int(wait_s * 1000))
        patience_s = PATIENCE_SHARE * self._options.session_timeout_ms / 1000
        answer = await self._calls.heartbeat(heartbeat, patience_s)
        self._interval_s = answer.heartbeat_interval_ms / 1000
        changes = self.membership.answered(answer, sent_s)
        if changes.assigned:
            logger.debug("group %s: assigned %s", self._options.group, _shown(changes.assigned))
        if changes.revoked:
            logger.debug("group %s: to give up %s", self._options.group, _shown(changes.revoked))
        self._on_news()

    def _failed(self, error: TidelogError) -> None:
        changes = self.membership.failed(error, self._now_s())
        self._lost.update(dict.fromkeys(changes.lost))
        if not self.membership.is_out:
            logger.info("group %s: the heartbeat is sent again: %s", self._options.group, error.message)
            return
        if isinstance(error, EXPELLED):
            logger.warning("group %s: %s; joining anew", self._options.group, error.message)
            self.membership.rejoin(self._new_id())
        else:
            self._error = error
        self._on_news()

    async def _expire(self) -> None:
        self._lost.update(dict.fromkeys(self.membership.owned))
        last = self.membership.leave()
        self._error = PollIntervalExceeded(
            f"nothing was asked of this consumer for {self._options.max_poll_interval_ms} ms, so it has left group "
            f"{self._options.group}, and its partitions are others'; ask again to join again. Where records take so "
            "long, raise max_poll_interval_ms, or take fewer at once (max_records)"
        )
        logger.warning("%s", self._error.message)
        self._on_news()
        await self._say_farewell(last)

    async def _say_farewell(self, last: Heartbeat | None) -> None:
        """Sends the leave heartbeat, once. If it fails, the session expires by itself."""
        if last is not None:
            with suppress(TidelogError):
                await self._calls.heartbeat(last, FAREWELL_S)


def _shown(partitions: Sequence[TopicPartition]) -> str:
    names = ", ".join(map(str, partitions[:SHOWN_MAX]))
    return names if len(partitions) <= SHOWN_MAX else f"{names} and {len(partitions) - SHOWN_MAX} more"
