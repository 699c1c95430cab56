"""A consumer's rebalance when its partitions change: finish, commit, tell the listener, give up; and begin.

    lost      read no more, tell the listener; nothing can be committed
    revoked   read no more, finish what handlers are at, commit what is processed, tell the listener, give up: only then
              it is another's
    assigned  fetch the group's committed offset, go there, tell the listener, read

Runs inside the consumer's calls: when somebody asks for records, all that was handed out before is processed. It is a
task of its own all the same, so that a call may end before it is done, and the next one finds it further on; meanwhile
nothing is handed out. One step is taken at a time, and what is to be done is looked up anew after each, because the
assignment goes on changing while listeners and brokers take their time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field

from tidelog.consumer.commits import Commits
from tidelog.consumer.cursor import Cursor, ResetPolicy
from tidelog.consumer.fetcher import Fetcher
from tidelog.consumer.group_member import GroupMember
from tidelog.consumer.intervals import ProcessedOffsets, decode_processed
from tidelog.consumer.membership import EXPELLED
from tidelog.consumer.rebalance_listener import ConsumerRebalanceListener, told
from tidelog.consumer.records import OffsetAndMetadata
from tidelog.consumer.subscription import Subscription
from tidelog.model.errors import InvalidRequest, TidelogError
from tidelog.model.ids import TopicPartition
from tidelog.transport.backoff import Backoff

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class Rebalancing:
    """The rebalances of one consumer, which change `subscription` to the partitions that the member owns."""

    _member: GroupMember
    _commits: Commits
    _subscription: Subscription
    _fetcher: Fetcher
    _backoff: Backoff
    _: KW_ONLY
    reset: ResetPolicy | None
    commits_itself: bool
    has_intervals: bool
    """True if records are processed out of order, and commits say which."""
    give_up: Callable[[Sequence[TopicPartition]], Awaitable[None]]
    """Waits until the records of these partitions that are being processed are finished."""
    on_settled: Callable[[], None]
    _begun: dict[TopicPartition, None] = field(default_factory=dict, init=False)
    """The partitions that the listener was called with as assigned."""
    _uncommitted: dict[Cursor, None] = field(default_factory=dict, init=False)
    """The cursors of partitions that the program assigned and that still have to move to the group's committed
    offsets."""
    _task: asyncio.Task[None] | None = field(default=None, init=False)
    _is_settled: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _may_be_due: bool = field(default=True, init=False)
    listener: ConsumerRebalanceListener = field(default_factory=ConsumerRebalanceListener, init=False)

    def look_again(self) -> None:
        """Makes the next `is_due` check whether the group has assigned, revoked or taken away partitions. Called when
        the membership may have changed."""
        self._may_be_due = True

    @property
    def is_due(self) -> bool:
        """True if a rebalance step is pending before more records may be returned."""
        if self._may_be_due and self._task is None:
            self._may_be_due = bool(self._uncommitted or self._member.has_lost or self._revoked() or self._new())
        return self._may_be_due

    def _revoked(self) -> list[TopicPartition]:
        return self._member.membership.to_give_up

    def _new(self) -> list[TopicPartition]:
        to_give_up = self._revoked()
        return [at for at in self._member.membership.owned if at not in self._begun and at not in to_give_up]

    def give_up_unbegun(self) -> None:
        """Gives up at once the revoked partitions that were never read."""
        unbegun = [partition for partition in self._revoked() if partition not in self._begun]
        if unbegun and self._task is None:
            self._member.membership.gave_up(unbegun)
            self._member.hurry()

    async def settled(self, deadline_s: float | None) -> bool:
        """Performs the pending rebalance. Returns False if it is unfinished at `deadline_s`; it continues in the
        background. Raises the listener's exceptions, and the error that ended the membership."""
        if self._task is None:
            self._is_settled.clear()
            self._task = asyncio.get_running_loop().create_task(self._settle())
            self._task.add_done_callback(self._ended)
        task = self._task
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline_s):
                await self._is_settled.wait()
        if not task.done():
            return False
        if self._task is task:
            self._task = None
        if task.cancelled():  # the consumer is closing
            return False
        task.result()
        return True

    def _ended(self, _: asyncio.Task[None]) -> None:
        self._is_settled.set()
        self.on_settled()

    async def _settle(self) -> None:
        while True:
            if self._member.has_lost:
                await self._lose()
            elif self._revoked():
                await self._give_up()
            elif self._new() or self._uncommitted:
                await self._begin_in_time()
            else:
                return

    # -- the steps -------------------------------------------------------------------------------------------------

    async def _lose(self) -> None:
        lost = [partition for partition in self._member.take_lost() if partition in self._begun]
        self._drop(lost)
        await told(self.listener.on_partitions_lost, lost)
        error = self._member.take_error()
        if error is not None:
            raise error

    async def _give_up(self) -> None:
        going = self._revoked()
        await self._finish([partition for partition in going if partition in self._begun])
        # Only after the commit: the next heartbeat gives the partition to another member, which begins at its committed
        # offset, and would read again what was processed here.
        self._member.membership.gave_up(going)
        self._member.hurry()

    async def _finish(self, going: Sequence[TopicPartition]) -> None:
        for cursor in self._subscription.cursors(going) if going else ():
            self._fetcher.end(cursor)
        if going:
            await self.give_up(going)
        if self.commits_itself:
            await self._commits.commit_processed(going)
        try:
            await told(self.listener.on_partitions_revoked, going)
        finally:
            self._drop(going)

    def _drop(self, partitions: Sequence[TopicPartition]) -> None:
        for cursor in self._subscription.remove(partitions):
            self._fetcher.end(cursor)
        self._commits.forget(partitions)
        for partition in partitions:
            self._begun.pop(partition, None)

    async def _begin_in_time(self) -> None:
        """Starts to read new partitions, or retries later if the coordinator is not available or does not know this
        member yet."""
        try:
            await self._begin()
            self._backoff.reset()
        except TidelogError as error:
            if error.definite and not error.retriable and not isinstance(error, EXPELLED):
                raise
            logger.info("the group's committed offsets are asked for again: %s", error.message)
            await asyncio.sleep(self._backoff.next_s())

    async def _begin(self) -> None:
        owner = self._member.membership.member_id
        uncommitted = list(self._uncommitted)
        fresh = self._new()
        offsets = await self._commits.fetch([*fresh, *(cursor.partition for cursor in uncommitted)])
        for cursor in uncommitted:
            if cursor in self._uncommitted:
                del self._uncommitted[cursor]
                if not cursor.has_position:
                    self._seek(cursor, offsets)
                    self._fetcher.wake(cursor)
        still_new = self._new() if self._member.membership.member_id == owner else []
        begun = [partition for partition in fresh if partition in still_new]
        cursors = self._subscription.add(begun, None)
        for cursor in cursors:
            self._begun[cursor.partition] = None
            self._seek(cursor, offsets)
        await told(self.listener.on_partitions_assigned, begun)
        for cursor in cursors:
            if cursor.partition in self._begun:
                self._fetcher.begin(cursor)

    def _seek(self, cursor: Cursor, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        """Moves a cursor to the group's committed offset; else to where `auto_offset_reset` says, if anywhere."""
        committed = offsets.get(cursor.partition)
        if committed is not None:
            cursor.seek(committed.offset)
            if self.has_intervals:
                cursor.processed = _processed(cursor.partition, committed)
                committed = OffsetAndMetadata(committed.offset, cursor.processed.encode())
            self._commits.found(cursor.partition, committed)
        elif self.reset is not None:
            cursor.request_reset(self.reset)

    # -- what the program does ---------------------------------------------------------------------------------------

    def assigned_by_hand(self, cursors: Sequence[Cursor]) -> None:
        """Makes these cursors (the read positions of all partitions that the program has assigned itself) start at the
        group's committed offsets, unless a `seek` comes first."""
        self._uncommitted = dict.fromkeys(cursors)
        self.look_again()

    async def end(self) -> None:
        """Gives up all remaining partitions: commits, and calls the listener."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._uncommitted.clear()
        lost = [partition for partition in self._member.take_lost() if partition in self._begun]
        self._drop(lost)
        await told(self.listener.on_partitions_lost, lost)
        await self._finish(sorted(self._begun))


def _processed(partition: TopicPartition, committed: OffsetAndMetadata) -> ProcessedOffsets:
    """Returns what is processed by a commit, as far as it says so: the metadata of other programs is left alone."""
    try:
        return decode_processed(*committed)
    except InvalidRequest as error:
        logger.info("%s: all records from offset %d on are processed: %s", partition, committed.offset, error.message)
        return ProcessedOffsets(committed.offset)
