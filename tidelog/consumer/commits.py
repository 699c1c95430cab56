"""The group's committed offsets of what a consumer reads: fetched where reading begins, committed as it goes on.

**What is processed.** A record counts as processed when its reader comes back: what the last call has handed out is
still in the caller's hands, whatever the position says. Automatic commits, at any moment, take `processed`: the
position, or where the last handout of the partition began. A `commit()` by the program says that the caller has done
with everything, and takes the positions.

Commits go out one after the other. So of two that are under way none can overtake the other, and an answer that says
that a later one is kept already means that a copy of this one was.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from tidelog.consumer.errors import CommitFailed
from tidelog.consumer.group_calls import GroupCalls
from tidelog.consumer.group_member import GroupMember
from tidelog.consumer.membership import EXPELLED, Membership
from tidelog.consumer.records import OffsetAndMetadata
from tidelog.consumer.subscription import Subscription
from tidelog.model.errors import StaleCommit, TidelogError, UnknownMember
from tidelog.model.groups import JOIN, NO_OFFSET, CommitOffsets, CommittedOffset, FetchOffsets, grouped
from tidelog.model.ids import TopicPartition

logger = logging.getLogger(__name__)

OFFSETS_MAX: Final = 1_000
"""The number of committed offsets that one request may carry."""


class Commits:
    """The committed offsets of one consumer. `handed_out` returns, by partition, the first offset that the caller has
    in hand."""

    def __init__(
        self,
        group: str,
        calls: GroupCalls,
        member: GroupMember,
        subscription: Subscription,
        handed_out: Callable[[], Mapping[TopicPartition, int]],
    ) -> None:
        self._group = group
        self._calls = calls
        self._member = member
        self._subscription = subscription
        self._handed_out = handed_out
        self._kept: dict[TopicPartition, int] = {}
        """The group's committed offsets, as far as this consumer has set or found them."""
        self._turn = asyncio.Lock()

    # -- fetching ------------------------------------------------------------------------------------------------

    async def fetch(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns the committed offsets of these, as far as there are any. Raises what the coordinator answered
        with."""
        offsets = dict[TopicPartition, OffsetAndMetadata]()
        for start in range(0, len(partitions), OFFSETS_MAX):
            group_partitions = grouped(partitions[start : start + OFFSETS_MAX])
            membership = self._joined()
            if membership is None:
                request = FetchOffsets(group=self._group, partitions=group_partitions)
            else:
                request = membership.fetch(group_partitions)
            for committed in (await self._calls.fetch(request)).offsets:
                if committed.offset != NO_OFFSET:
                    at = TopicPartition(committed.topic, committed.partition)
                    offsets[at] = OffsetAndMetadata(committed.offset, committed.metadata)
        return offsets

    def found(self, partition: TopicPartition, offset: int) -> None:
        """Notes that reading begins at this committed offset of the group."""
        self._kept[partition] = offset

    # -- committing ----------------------------------------------------------------------------------------------

    def processed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns the offsets up to which these are processed, where that is not the group's committed offset
        already."""
        handed_out = self._handed_out()
        offsets = dict[TopicPartition, OffsetAndMetadata]()
        for cursor in self._subscription.cursors(partitions) if partitions else ():
            offset = handed_out.get(cursor.partition, cursor.position)
            if offset is not None and offset != self._kept.get(cursor.partition):
                offsets[cursor.partition] = OffsetAndMetadata(offset)
        return offsets

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commits offsets. Raises `CommitFailed` for what was refused; `CoordinatorNotAvailable` and the like if the
        time is up."""
        refused = dict[TopicPartition, str]()
        entries = [
            CommittedOffset(*at, committed.offset, metadata=committed.metadata)
            for at, committed in sorted(offsets.items())
        ]
        async with self._turn:
            for start in range(0, len(entries), OFFSETS_MAX):
                refused |= await self._commit(entries[start : start + OFFSETS_MAX])
        if refused:
            raise CommitFailed(refused)

    async def _commit(self, entries: list[CommittedOffset]) -> dict[TopicPartition, str]:
        try:
            verdicts = (await self._calls.commit(self._request(entries))).verdicts
        except EXPELLED as error:
            return {TopicPartition(entry.topic, entry.partition): error.message for entry in entries}
        refused = dict[TopicPartition, str]()
        for entry, verdict in zip(entries, verdicts, strict=True):
            at = TopicPartition(entry.topic, entry.partition)
            # A later commit is kept already. Commits go out one after the other, so that one is a repetition of this
            # one.
            if verdict.code in (0, StaleCommit.code):
                self._kept[at] = entry.offset
            else:
                refused[at] = verdict.message
        return refused

    def _request(self, entries: list[CommittedOffset]) -> CommitOffsets:
        membership = self._joined()
        if membership is None:
            return CommitOffsets(group=self._group, offsets=tuple(entries))
        return membership.commit(entries)

    def _joined(self) -> Membership | None:
        """Returns the membership; None for a consumer that has not subscribed. Raises `UnknownMember` for one that has,
        and is in the group no longer, or not yet."""
        if not self._member.is_subscribed:
            return None
        membership = self._member.membership
        # A commit in nobody's name is not fenced by the member's epoch: it could undo what the members have committed.
        if membership.member_epoch <= JOIN:
            raise UnknownMember("this consumer is no member of the group at the moment")
        return membership

    async def commit_processed(self, partitions: Sequence[TopicPartition]) -> None:
        """Commits automatically. A failure is logged, and no more: the records come again, to this consumer or to
        another."""
        offsets = self.processed(partitions)
        if offsets:
            try:
                await self.commit(offsets)
            except TidelogError as error:
                logger.warning("group %s: the automatic commit failed: %s", self._group, error.message)

    async def commit_at_intervals(self, interval_s: float) -> None:
        """Commits what is processed, for ever."""
        while True:
            await asyncio.sleep(interval_s)
            await self.commit_processed(self._subscription.partitions)

    def forget(self, partitions: Sequence[TopicPartition]) -> None:
        """Forgets the committed offsets of partitions that are not read any more: others may move them."""
        for partition in partitions:
            self._kept.pop(partition, None)
