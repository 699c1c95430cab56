"""The state of a group coordinator, from one load of its log until it loses the partition.

A request is decided on the newest state, which may be ahead of the committed log. Its records are applied at once and
put into the outbox, the queue of records to append. Its answer, an error included, is given when all records that it
depends on are committed: its own, and those in flight when it was decided. So requests do not wait for each other's
fsync, and no answer reveals a change that may be lost.

An append refused for a transient reason (too few in-sync replicas, a full disk, an expired lease) is repeated while the
role lasts. One that fails otherwise, or with an unknown outcome, ends the state, which has run ahead of the log:
waiting requests fail, and the coordinator loads again, which gives every member a full session. An answer also requires
the leader lease at that moment, so a deposed leader answers nothing, not even reads.

OffsetFetch is linearizable. The lease alone is not enough for it, because a planned leader change does not wait for the
lease to expire. So a record whose append began after the request must be committed first, a no-op if nothing else is
pending. Where no other broker can be elected, no leader change can be planned, and nothing is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

from tidelog.broker.groups.loading import Loaded, append, claim_entry
from tidelog.broker.groups.outbox import Outbox, OutgoingBatch
from tidelog.broker.groups.polls import Polls
from tidelog.broker.partitions.led_partition import LedPartition
from tidelog.broker.runtime.stats import Stats
from tidelog.groups.decide import decide, has_news, unchanged
from tidelog.groups.decision import Decision, GroupAnswer
from tidelog.groups.records import GroupLogRecord
from tidelog.groups.sessions import Sessions
from tidelog.groups.settings import GroupSettings, Now, TopicsView
from tidelog.model.errors import (
    CoordinatorLost,
    CoordinatorNotAvailable,
    LeaderNotAvailable,
    Overloaded,
    TidelogError,
)
from tidelog.model.groups import (
    JOIN,
    AnyGroupRequest,
    FetchOffsets,
    GroupDescription,
    GroupsListed,
    Heartbeat,
    HeartbeatAnswer,
)
from tidelog.model.ports import Clock, Entropy

APPEND_S_MAX: Final = 10.0
AGAIN_S: Final = 0.1
"""Seconds between two tries of an append."""
REQUESTS_MAX: Final = 10_000
"""Maximum number of requests waiting for commits at one coordinator."""
POLL_MARGIN_S: Final = 0.25
"""Seconds before its caller's deadline at which a long poll ends."""


@dataclass(frozen=True, slots=True)
class CoordinatorContext:
    """Settings and shared objects of all group coordinators of a broker."""

    node_id: int
    clock: Clock
    stats: Stats
    settings: GroupSettings
    retention_check_s: float
    lease_s: float
    """Leader lease, in seconds: for so long a replaced broker may still take itself for the leader."""
    is_live: Callable[[int], bool]
    """Function that returns True if the broker with this node id is registered and not fenced, by this broker's
    metadata."""
    view: Callable[[], TopicsView]
    """Function that returns the cluster's topics by this broker's metadata."""
    level: Callable[[], int]
    """Function that returns the cluster's feature level."""
    entropy: Entropy


_Outcome: TypeAlias = tuple[GroupAnswer | TidelogError, OutgoingBatch | None, OutgoingBatch | None]
"""The answer of a request, the batch with its own records, and another batch that must be committed before the
answer."""


class CoordinatorState:
    """The state of a group coordinator after one load of its log. `run` is its task, and `end` must be called when the
    task ends. `changed` is called with each group that has changed in more than committed offsets, once the change is
    committed."""

    def __init__(
        self, partition: LedPartition, loaded: Loaded, context: CoordinatorContext, changed: Callable[[str], None]
    ) -> None:
        self.partition = partition
        self.shard = loaded.shard
        self.lost = loaded.lost
        self.end_offset = loaded.end
        """End offset of the committed log, where the next append must begin."""
        self.silent_from_s = _silent_from_s(loaded.predecessor, context)
        """Monotonic time, in seconds, from which members' session timeouts run."""
        self.sessions = Sessions.of(loaded.shard, context.settings, self.silent_from_s)
        self.polls = Polls()
        self.progressed = asyncio.Event()
        """Set whenever a batch is committed."""
        # Asked each time: the topic's `max.message.bytes` may be changed while this coordinator works.
        self._outbox = Outbox(lambda: partition.config.max_message_bytes)
        self._context = context
        self._changed = changed
        self._requests = 0
        self._turn = asyncio.Lock()
        self._over: TidelogError | None = None

    # -- requests ----------------------------------------------------------------------------------------------------

    async def ask(self, request: AnyGroupRequest, deadline_s: float) -> GroupAnswer:
        """Returns the answer by `deadline_s` (loop time). Raises the errors that the docstring of the request's class
        names; `Overloaded`, `TooLarge` or `CoordinatorNotAvailable`, with nothing done; `CoordinatorLost` if the
        outcome is unknown."""
        if self._requests >= REQUESTS_MAX:
            self._context.stats.group_requests_refused += 1
            raise Overloaded(f"{self._requests} requests wait for this coordinator already; try again later")
        answer = await self._settled(request, deadline_s)
        if isinstance(request, Heartbeat) and isinstance(answer, HeartbeatAnswer) and _may_wait(request, answer):
            await self._wait_for_news(request, answer, deadline_s)
            # Without `owned`: it was obeyed when the wait began, and partitions may have been given and taken since.
            # Said again it could pass for the member's answer to those.
            again = msgspec.structs.replace(request, owned=None, wait_ms=0)
            answer = await self._settled(again, deadline_s)
        return answer

    def answer_now(self, request: Heartbeat) -> GroupAnswer | None:
        """Answers a heartbeat at once that changes nothing and brings its member nothing new. Returns None, without a
        change, for any other, and if `ask` would have to wait."""
        answer = unchanged(self.shard, request, self._context.settings) if self.is_true_now else None
        if answer is None:
            return None
        self._hear(request)
        return _signed(answer, self._context.node_id)

    async def _wait_for_news(self, request: Heartbeat, answer: HeartbeatAnswer, deadline_s: float) -> None:
        """Waits for a change of the group, at most a third of the member's session, so that its next heartbeat is in
        time."""
        wait_s = min(request.wait_ms, answer.session_timeout_ms // 3) / 1000
        until_s = min(asyncio.get_running_loop().time() + wait_s, deadline_s - POLL_MARGIN_S)
        heartbeat = msgspec.structs.replace(request, owned=None)
        await self.polls.wait(
            request.group, request.member_id, lambda: self._over is not None or has_news(self.shard, heartbeat), until_s
        )

    async def _settled(self, request: AnyGroupRequest, deadline_s: float) -> GroupAnswer:
        self._requests += 1
        try:
            if isinstance(request, Heartbeat):
                outcome, written, barrier = await self._in_turn(request, deadline_s)
            else:
                outcome, written, barrier = self._act_on(request)
            # A refusal waits as an answer does. An `UnknownMember` that rests on a batch which is lost would send a
            # live member away.
            await self.until_true(written, barrier, deadline_s)
        finally:
            self._requests -= 1
        if isinstance(outcome, TidelogError):
            raise outcome
        return _signed(outcome, self._context.node_id)

    async def _in_turn(self, request: Heartbeat, deadline_s: float) -> _Outcome:
        """Decides a heartbeat while no other one is decided. After one that changed something, yields to other tasks
        before the next."""
        try:
            async with asyncio.timeout_at(deadline_s):
                await self._turn.acquire()
        except TimeoutError:
            raise CoordinatorNotAvailable(
                "the group's coordinator has too much to decide; nothing was done; try again"
            ) from None
        try:
            outcome = self._act_on(request)
            _, written, _ = outcome
            if written is not None:
                # A decision may take milliseconds, and a thousand members may join at once: a broker that did nothing
                # else meanwhile would lose what it leads. The lock is held over this pause, so the next heartbeat in
                # line comes behind everything that became ready meanwhile.
                await asyncio.sleep(0)
        finally:
            self._turn.release()
        return outcome

    def _act_on(self, request: AnyGroupRequest) -> _Outcome:
        self.require_in_force()
        try:
            decision = self._decided(request)
        except TidelogError as error:
            # Without a batch of its own the refusal waits for the newest one (`until_true`), on which it was decided.
            return error, None, None
        written, barrier = self.write(decision.records), None
        # The lease leans on clocks, and an election on purpose does not wait for it. A deposed coordinator that told
        # its last committed offset would have the partition's next owner do again what was done. So an append that
        # began after the question has to be committed first: only who leads now can have one. The only broker that can
        # be elected would commit it alone, which proves nothing.
        if isinstance(request, FetchOffsets) and not self.partition.is_only_candidate:
            barrier = self._outbox.barrier(claim_entry(self.partition, self._context.node_id))
        # After the records were applied: the deadlines follow from where the member stands now, and one that left has
        # none.
        if isinstance(request, Heartbeat):
            # Only a member that was not refused is heard: one that was fenced must not keep its session alive.
            self._hear(request)
        return decision.answer, written, barrier

    def _decided(self, request: AnyGroupRequest) -> Decision:
        context = self._context
        return decide(self.shard, request, context.view(), context.settings, self.now())

    def now(self) -> Now:
        clock = self._context.clock
        return Now(clock.wall_ms(), clock.monotonic_s())

    def _hear(self, request: Heartbeat) -> None:
        context = self._context
        self.polls.heard(request.group, request.member_id)
        self.sessions.follow(
            self.shard, request.group, request.member_id, context.settings, context.clock.monotonic_s()
        )

    def write(self, records: Sequence[GroupLogRecord]) -> OutgoingBatch | None:
        """Applies records to the state and queues them for the log. A caller that waits for the batch calls
        `require_in_force` first. Raises `TooLarge` or `Overloaded`, with nothing done."""
        if not records:
            return None
        try:
            # Into the outbox first, for that may refuse. A shard that is ahead of its log cannot be taken back.
            batch = self._outbox.put(records)
        except TidelogError:
            self._context.stats.group_requests_refused += 1
            raise
        # The records count before they are committed: the next request is decided on them, and its answer waits for
        # them. So no request waits for another one's fsync before it is decided.
        for record in records:
            self.shard.apply(record)
        self._context.stats.group_changes += 1
        return batch

    def rewrite(self, record: GroupLogRecord) -> OutgoingBatch:
        """Queues a copy of a record that is already in the log. Raises the error that ended the state, `TooLarge` or
        `Overloaded`."""
        # Nobody empties the outbox of a state that has ended: whoever waited for this batch would wait for ever.
        self.require_in_force()
        # A copy is no news. Otherwise each round of copying would wake the long polls of all groups.
        return self._outbox.put((record,), is_news=False)

    # -- when is it true? --------------------------------------------------------------------------------------------

    @property
    def newest(self) -> OutgoingBatch | None:
        """The newest batch that is not committed yet; None if all are."""
        return self._outbox.newest

    async def until_true(self, own: OutgoingBatch | None, barrier: OutgoingBatch | None, deadline_s: float) -> None:
        """Returns when an answer may be given: the batch it depends on is committed (`own`, else `barrier`, else the
        newest one) and this broker holds the leader lease. Raises `CoordinatorNotAvailable`, or `CoordinatorLost` if
        there is an `own` batch with an unknown outcome."""
        # Batches are committed in order, so the last one that matters stands for all before it.
        newest = own or barrier or self._outbox.newest
        if newest is not None:
            try:
                async with asyncio.timeout_at(deadline_s):
                    # Shielded: all who wait for the batch share its outcome, and one caller's deadline must not cancel
                    # it for the others.
                    failure = await asyncio.shield(newest.outcome)
            except TimeoutError:
                raise _gave_up(own) from None
            if failure is not None:
                raise _error_to_answer(own, failure)
        try:
            # All may be committed, and yet be old: another coordinator may have decided more since. So the lease has to
            # be in force when the answer is given, not only when it was decided.
            await self.partition.extent()
        except LeaderNotAvailable as error:
            raise _leads_no_more(own, error) from error

    @property
    def is_true_now(self) -> bool:
        """Returns True if an answer from this state may be given at once: everything is committed, and this broker
        holds the leader lease."""
        if self._over is not None or self._outbox.newest is not None:
            return False
        try:
            self.partition.require_leading()
        except TidelogError:
            return False
        return True

    def require_in_force(self) -> None:
        """Raises `CoordinatorNotAvailable` if this coordinator state has ended."""
        if self._over is not None:
            # One error object serves all callers: each raise would add to its traceback.
            raise self._over.with_traceback(None)

    # -- the log -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Appends the batches of the outbox one after the other. Raises the error that ends the state."""
        while True:
            batch = await self._outbox.next()
            base = await self._append(batch)
            # The next append expects the log to end here. If anybody else has written in between, the append is
            # refused, and this state ends: it has not applied what is there.
            self.end_offset = base + len(batch.entries)
            self._context.stats.group_batches += 1
            # Durable before visible: members that wait are told to look only when what they will see is committed.
            self._outbox.done(batch)
            self.progressed.set()
            for group in batch.changed:
                self.polls.changed(group)
                self._changed(group)

    async def _append(self, batch: OutgoingBatch) -> int:
        loop = asyncio.get_running_loop()
        while True:
            now_ms, deadline_s = self._context.clock.wall_ms(), loop.time() + APPEND_S_MAX
            try:
                return await append(self.partition, batch.entries, now_ms, deadline_s, expected_end=self.end_offset)
            except TidelogError as error:
                # Nothing was appended, and the refusal passes: the same batch is tried at the same end. After any other
                # failure the log may have the batch or not, so no further try could be right.
                if not (error.definite and error.retriable):
                    raise
            await asyncio.sleep(AGAIN_S)

    def end(self, reason: str, *, is_definite: bool) -> None:
        """Fails all waiting requests and refuses new ones. With `is_definite` no batch in flight was appended, so that
        requests fail with nothing done; otherwise their outcome is unknown."""
        # A batch that was never sent was not done for sure, and its callers may repeat it without a doubt.
        unsent = CoordinatorNotAvailable(f"{reason}; nothing was done, try again")
        sent = unsent if is_definite else CoordinatorLost(f"{reason}; it may have been done, try again")
        # Before anybody is woken: no request may be decided any more on a state that nobody writes.
        self._over = unsent
        self._outbox.fail(sent, unsent)
        self.polls.end()


def _silent_from_s(predecessor: int | None, context: CoordinatorContext) -> float:
    """Returns the monotonic time, in seconds, from which session timeouts run. Until its lease has expired, or its
    broker is fenced, the previous coordinator may still be receiving members' heartbeats."""
    now_s = context.clock.monotonic_s()
    # The last claim names the coordinator before. If that was this broker, or is fenced, nobody else hears members now;
    # without a claim it has to be taken for alive.
    is_over = predecessor == context.node_id or (predecessor is not None and not context.is_live(predecessor))
    return now_s if is_over else now_s + context.lease_s


def _may_wait(request: Heartbeat, answer: HeartbeatAnswer) -> bool:
    """Returns True if the answer has nothing new for the member, and the heartbeat asks for a long poll."""
    return (
        request.wait_ms > 0
        and request.member_epoch > JOIN
        and answer.assignment is None
        and answer.member_epoch == request.member_epoch
    )


def _signed(answer: GroupAnswer, node_id: int) -> GroupAnswer:
    """Returns the answer with the coordinator's node id filled in, if it has that field."""
    match answer:
        case HeartbeatAnswer() | GroupDescription():
            return msgspec.structs.replace(answer, coordinator=node_id)
        case GroupsListed():
            return GroupsListed(tuple(msgspec.structs.replace(group, coordinator=node_id) for group in answer.groups))
    return answer


def _gave_up(written: OutgoingBatch | None) -> TidelogError:
    if written is None:
        return CoordinatorNotAvailable("what was decided before is not committed in time; try again")
    return CoordinatorLost("it is not committed in time, and may be later; try again")


def _error_to_answer(written: OutgoingBatch | None, failure: TidelogError) -> TidelogError:
    """Returns the error for a request whose commit failed. If the request wrote nothing itself, an uncertain failure
    becomes the definite `CoordinatorNotAvailable`."""
    if written is None and not failure.definite:
        return CoordinatorNotAvailable("what was decided before may be lost; try again")
    return failure.with_traceback(None)


def _leads_no_more(written: OutgoingBatch | None, error: TidelogError) -> TidelogError:
    """Returns the error for a request at a broker whose lease has expired: `CoordinatorNotAvailable` if the request
    wrote nothing, otherwise `CoordinatorLost`."""
    kind = CoordinatorNotAvailable if written is None else CoordinatorLost
    return kind(f"the group may have another coordinator by now: {error.message}")
