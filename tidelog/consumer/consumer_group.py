"""The group of a consumer: its membership, commits and rebalances, behind one interface for the consumer's calls."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from tidelog.consumer.commits import Commits
from tidelog.consumer.cursor import Cursor, ResetPolicy
from tidelog.consumer.fetcher import Fetcher
from tidelog.consumer.group_calls import GroupCalls
from tidelog.consumer.group_member import GroupMember
from tidelog.consumer.options import GroupOptions
from tidelog.consumer.rebalance_listener import ConsumerRebalanceListener
from tidelog.consumer.rebalancing import Rebalancing
from tidelog.consumer.records import OffsetAndMetadata
from tidelog.consumer.subscription import Subscription
from tidelog.model.errors import InvalidRequest
from tidelog.model.groups import FetchOffsets, grouped
from tidelog.model.ids import TopicPartition
from tidelog.model.names import check_topic_name
from tidelog.model.ports import Entropy
from tidelog.transport.session import ClusterSession

STRIDE_S: Final = 0.05
"""Seconds for which `getone` may return already fetched records without checking for a rebalance again (`is_ready`),
which would yield to the event loop."""


class ConsumerGroup:
    """The group of one consumer. `handed_out` returns, by partition, the first offset of the records that the last call
    returned; `on_news` wakes the waiting calls; `give_up` waits until the records of these partitions that are being
    processed are finished; with `has_intervals` commits say which records are processed out of order."""

    def __init__(
        self,
        options: GroupOptions,
        session: ClusterSession,
        subscription: Subscription,
        fetcher: Fetcher,
        entropy: Entropy,
        handed_out: Callable[[], Mapping[TopicPartition, int]],
        on_news: Callable[[], None],
        give_up: Callable[[Sequence[TopicPartition]], Awaitable[None]],
        *,
        reset: ResetPolicy | None,
        has_intervals: bool,
    ) -> None:
        self._options = options
        self._subscription = subscription
        self._on_news = on_news
        self._calls = GroupCalls(session, options.group)
        self._member = GroupMember(session, self._calls, options, entropy, self._changed)
        self.commits = Commits(options.group, self._calls, self._member, subscription, handed_out)
        self._rebalancing = Rebalancing(
            self._member,
            self.commits,
            subscription,
            fetcher,
            session.backoff(),
            reset=reset,
            commits_itself=options.auto_commit_interval_ms is not None,
            has_intervals=has_intervals,
            give_up=give_up,
            on_settled=on_news,
        )
        self._auto_commit: asyncio.Task[None] | None = None
        self._stride_end_s = -math.inf
        self._is_open = False
        self.topics: tuple[str, ...] = ()
        self.pattern = ""

    # -- life ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Joins the group if there is a subscription, and starts the automatic commits."""
        self._is_open = True
        if self.is_subscribed:
            self._member.start(self.topics, self.pattern)
        interval_ms = self._options.auto_commit_interval_ms
        if interval_ms is not None:
            committing = self.commits.commit_at_intervals(interval_ms / 1000)
            self._auto_commit = asyncio.get_running_loop().create_task(committing)

    async def stop(self) -> None:
        """Commits, gives up all partitions, and leaves the group."""
        self._is_open = False
        if self._auto_commit is not None:
            self._auto_commit.cancel()
            await asyncio.gather(self._auto_commit, return_exceptions=True)
            self._auto_commit = None
        await self._leave()

    async def _leave(self) -> None:
        try:
            await self._rebalancing.end()
        finally:
            await self._member.stop()

    # -- the subscription ------------------------------------------------------------------------------------------

    @property
    def is_subscribed(self) -> bool:
        """True if the group assigns the partitions; False if the program does."""
        return bool(self.topics or self.pattern)

    def subscribe(self, topics: Sequence[str], pattern: str | None, listener: ConsumerRebalanceListener | None) -> None:
        """Replaces the subscription."""
        if isinstance(topics, str):
            raise InvalidRequest(f"topics must be a list of names, not the text {topics!r}")
        if not topics and not pattern:
            raise InvalidRequest("subscribe to something: give topics, or a pattern (`unsubscribe` ends it)")
        for topic in topics:
            check_topic_name(topic)
        self.topics, self.pattern = tuple(topics), pattern or ""
        if listener is not None:
            self._rebalancing.listener = listener
        if self._is_open:
            self._member.start(self.topics, self.pattern)

    def check_unsubscribed(self) -> None:
        """Raises `InvalidRequest` if there is a subscription, so that the program cannot assign partitions."""
        if self.is_subscribed:
            raise InvalidRequest("this consumer has subscribed, and its group assigns; `unsubscribe` first")

    async def unsubscribe(self) -> None:
        """Commits, gives up all partitions, and leaves the group."""
        self.topics, self.pattern = (), ""
        self._disturb()
        await self._leave()

    def assigned_by_hand(self, cursors: Sequence[Cursor]) -> None:
        """Moves these cursors (the read positions of partitions that the program has assigned itself) to the group's
        committed offsets before their first record is returned, unless a `seek` comes first."""
        self._rebalancing.assigned_by_hand(cursors)
        self._disturb()

    # -- the consumer's calls ----------------------------------------------------------------------------------------

    @contextmanager
    def call(self) -> Iterator[None]:
        """The context of every call for records. `max_poll_interval_ms`, after which a consumer that is not called
        leaves the group, counts only between these calls."""
        self._member.call_began()
        try:
            yield
        finally:
            self._member.call_ended()

    def may_go_on(self) -> bool:
        """Returns True if the next record may be returned at once: the last `is_ready` returned True at most `STRIDE_S`
        seconds ago, and the partitions are certainly still this member's."""
        return asyncio.get_running_loop().time() < self._stride_end_s

    async def is_ready(self, deadline_s: float | None) -> bool:
        """Performs a pending rebalance. Returns False if no record may be returned: the rebalance is not finished at
        `deadline_s`, or the member's heartbeats failed for so long that its partitions may be reassigned. Raises the
        exceptions of the program's rebalance listener, and the error that ended the membership."""
        self._check_tasks()
        if self.is_subscribed and not self._member.is_running and not self._member.has_lost:
            self._member.start(self.topics, self.pattern)
        while self._rebalancing.is_due:
            if not await self._rebalancing.settled(deadline_s):
                return False
        now_s = asyncio.get_running_loop().time()
        lease_end_s = self._member.membership.lease_end_s if self.is_subscribed else math.inf
        self._stride_end_s = min(now_s + STRIDE_S, lease_end_s)
        return now_s < lease_end_s

    def may_process(self, partition: TopicPartition) -> bool:
        """Returns True if a record of this partition may be handed out while others are being given up: it is this
        member's, will stay so as far as is known, and nobody else can have it."""
        if not self.is_subscribed:
            return True
        keeps = not self._member.has_lost and self._member.membership.keeps(partition)
        return keeps and self._member.membership.may_deliver(asyncio.get_running_loop().time())

    @property
    def give_up_s(self) -> float:
        """The seconds for which records that are being processed are waited for before their partition is given up:
        half of `max_poll_interval_ms`."""
        return self._options.max_poll_interval_ms / 2000

    async def commit_processed(self) -> None:
        """Commits what is processed, unless commits are left to the program; a failure is logged."""
        if self._options.auto_commit_interval_ms is not None:
            await self.commits.commit_processed(self._subscription.partitions)

    def _check_tasks(self) -> None:
        if self._member.failure is not None:
            raise RuntimeError("the heartbeats died of a bug") from self._member.failure
        if self._auto_commit is not None and self._auto_commit.done():
            self._auto_commit.result()

    def _changed(self) -> None:
        """Called after each heartbeat response: gives up revoked partitions that were never read, finds out whether a
        rebalance is due, and wakes the consumer's waiting calls."""
        self._rebalancing.give_up_unbegun()
        self._rebalancing.look_again()
        if self._rebalancing.is_due:
            self._disturb()
        self._on_news()

    def _disturb(self) -> None:
        self._stride_end_s = -math.inf

    async def committed(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """Returns the group's committed offset of a partition; None if there is none."""
        request = FetchOffsets(group=self._options.group, partitions=grouped([partition]))
        (committed,) = (await self._calls.fetch(request)).offsets
        return None if committed.offset < 0 else OffsetAndMetadata(committed.offset, committed.metadata)
