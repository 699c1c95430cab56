"""The group's committed offsets of what a consumer reads: fetched where reading begins, committed as it goes on.

**What is processed.** A record counts as processed when its reader calls again: what the last call has returned may
still be in work, although the position is behind it already. Automatic commits, at any moment, take `processed`: the
position, or where the last handout of the partition began. A `commit()` by the program says that the caller has done
with everything, and takes the positions. Where records are processed by a handler (`run`), both take the low offset and
the intervals that are processed above it (`intervals.py`).

Commits go out one after the other. So of two that are under way none can overtake the other, and an answer that says
that a later one is kept already means that a copy of this one was.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from tidelog.consumer.errors import CommitFailed
from tidelog.consumer.group_calls import GroupCalls
from tidelog.consumer.group_member import GroupMember
from tidelog.consumer.intervals import PREFIX, TEXT_BYTES_MAX
from tidelog.consumer.membership import EXPELLED, Membership
from tidelog.consumer.records import OffsetAndMetadata
from tidelog.consumer.subscription import Subscription
from tidelog.model.errors import MetadataTooLong, StaleCommit, TidelogError, UnknownMember
from tidelog.model.groups import JOIN, NO_OFFSET, CommitOffsets, CommittedOffset, FetchOffsets, grouped
from tidelog.model.ids import TopicPartition

logger = logging.getLogger(__name__)

OFFSETS_MAX: Final = 1_000
"""Maximum committed offsets per request."""


@dataclass(eq=False)
class Commits:
    """The offset commits of one consumer. `handed_out` returns, by partition, the first offset of the records that the
    last call returned."""

    _group: str
    _calls: GroupCalls
    _member: GroupMember
    _subscription: Subscription
    _handed_out: Callable[[], Mapping[TopicPartition, int]]
    _kept: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict, init=False)
    """The group's committed offsets, as last committed or fetched by this consumer."""
    _takes_intervals: bool = field(default=True, init=False)
    """False when a broker has refused the text of the processed intervals as too long."""
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    # -- fetching ------------------------------------------------------------------------------------------------

    async def fetch(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Fetches the group's committed offsets of partitions; those without one are left out. Raises `UnknownMember`
        or `FencedMember` if this member is no longer in the group; `CoordinatorNotAvailable` or another error after the
        request timeout."""
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

    def found(self, partition: TopicPartition, committed: OffsetAndMetadata) -> None:
        """Notes that reading begins at this committed offset of the group; its metadata is what this consumer has read
        from it."""
        self._kept[partition] = committed

    # -- committing ----------------------------------------------------------------------------------------------

    def processed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns what has to be committed for these partitions: the offset below which all records are processed, with
        the processed intervals above it as metadata. Partitions where that is committed already are left out."""
        handed_out = self._handed_out()
        offsets = dict[TopicPartition, OffsetAndMetadata]()
        for cursor in self._subscription.cursors(partitions) if partitions else ():
            kept = self._kept.get(cursor.partition)
            if (committable := cursor.committable) is not None:
                metadata = committable.encode() if self._takes_intervals else ""
                committed = OffsetAndMetadata(committable.low, metadata)
                if committed != kept:
                    offsets[cursor.partition] = committed
                continue
            offset = handed_out.get(cursor.partition, cursor.position)
            if offset is not None and (kept is None or offset != kept.offset):
                offsets[cursor.partition] = OffsetAndMetadata(offset)
        return offsets

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commits offsets. Raises `CommitFailed` for rejected ones; `CoordinatorNotAvailable` or another error after
        the request timeout."""
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
        too_long = list[CommittedOffset]()
        for entry, verdict in zip(entries, verdicts, strict=True):
            at = TopicPartition(entry.topic, entry.partition)
            # A later commit is kept already. Commits go out one after the other, so that one is a repetition of this
            # one.
            if verdict.code in (0, StaleCommit.code):
                self._kept[at] = OffsetAndMetadata(entry.offset, entry.metadata)
            elif verdict.code == MetadataTooLong.code and entry.metadata.startswith(PREFIX):
                too_long.append(msgspec.structs.replace(entry, metadata=""))
            else:
                refused[at] = verdict.message
        return refused | await self._commit_without_intervals(too_long) if too_long else refused

    async def _commit_without_intervals(self, entries: list[CommittedOffset]) -> dict[TopicPartition, str]:
        """Commits the low offsets alone, now and from now on: records that are processed above them come again after a
        rebalance or a restart."""
        if self._takes_intervals:
            self._takes_intervals = False
            logger.warning(
                "group %s: the brokers take no processed intervals with a commit, which need an "
                "offset.metadata.max.bytes of %d; only low offsets are committed",
                self._group,
                TEXT_BYTES_MAX,
            )
        return await self._commit(entries)

    def _request(self, entries: list[CommittedOffset]) -> CommitOffsets:
        membership = self._joined()
        if membership is None:
            return CommitOffsets(group=self._group, offsets=tuple(entries))
        return membership.commit(entries)

    def _joined(self) -> Membership | None:
        """Returns the group membership; None if the consumer has not subscribed. Raises `UnknownMember` if it has
        subscribed and is not in the group now."""
        if not self._member.is_subscribed:
            return None
        membership = self._member.membership
        # A commit in nobody's name is not fenced by the member's epoch: it could undo what the members have committed.
        if membership.member_epoch <= JOIN:
            raise UnknownMember("this consumer is no member of the group at the moment")
        return membership

    async def commit_processed(self, partitions: Sequence[TopicPartition]) -> None:
        """Commits the processed offsets automatically. A failure is only logged: the records are read again, by this or
        another consumer."""
        offsets = self.processed(partitions)
        if offsets:
            try:
                await self.commit(offsets)
            except TidelogError as error:
                logger.warning("group %s: the automatic commit failed: %s", self._group, error.message)

    async def commit_at_intervals(self, interval_s: float) -> None:
        """Commits the processed offsets at intervals, until cancelled."""
        while True:
            await asyncio.sleep(interval_s)
            await self.commit_processed(self._subscription.partitions)

    def forget(self, partitions: Sequence[TopicPartition]) -> None:
        """Forgets the committed offsets of partitions that are no longer assigned, since other members may
        change them."""
        for partition in partitions:
            self._kept.pop(partition, None)
