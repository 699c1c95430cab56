"""The classic groups of one coordinator: waiting requests, and deadlines.

The core (`tidelog/groups/classic`) decides a request on a copy of the group. If the records are accepted for writing,
the copy replaces the group, and the answers are given when all records that they depend on are committed; otherwise
nothing has happened. Each waiting JoinGroup or SyncGroup has a number by which the core refers to it. If the client
goes away the member stays waiting: it comes again, or its session expires.

When the coordinator ends, waiting requests fail with NOT_COORDINATOR. All of them may be repeated at the next
coordinator, so only commits report an unknown outcome.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, TypeAlias

import structlog

from tidelog.broker.groups.coordinator_state import CoordinatorContext, CoordinatorState
from tidelog.broker.groups.outbox import OutgoingBatch
from tidelog.groups.classic.deadlines import ClassicDeadlines
from tidelog.groups.classic.joins import Joiner
from tidelog.groups.classic.turn import Told, Turn
from tidelog.groups.decide_classic import (
    decide_commit,
    decide_heartbeat,
    decide_join,
    decide_leave,
    decide_silence,
    decide_sync,
)
from tidelog.groups.records import CLASSIC_LEVEL
from tidelog.model import classic_groups
from tidelog.model.errors import (
    CoordinatorLost,
    CoordinatorNotAvailable,
    LeaderNotAvailable,
    NotCoordinator,
    Overloaded,
    RebalanceInProgress,
    TidelogError,
    UnsupportedLevel,
)
from tidelog.model.groups import CommitAnswer

WAITS_MAX: Final = 20_000
"""Maximum number of JoinGroup and SyncGroup requests waiting at one coordinator."""
BYTES_MAX: Final = 64 << 20
"""Maximum bytes of protocols, metadata and assignments of all members at one coordinator."""
PAUSE_S_MIN: Final = 0.001
PAUSE_S_MAX: Final = 60.0
LOOK_S: Final = 1.0
"""Seconds between two checks, while requests wait, that this broker still leads. A broker that is cut off does not hear
of its replacement."""
AGAIN_S: Final = 1.0
"""Seconds until a deadline is handled again whose records could not be written."""
NAME_LENGTH: Final = 128
"""Maximum characters of an instance id or client id used as the prefix of a generated member id."""

_Answered: TypeAlias = tuple[Told, OutgoingBatch | None]
"""An answer, and the outgoing batch that must be committed before the answer is given, or None."""

logger = structlog.get_logger("tidelog.groups")


class Classics:
    """The classic groups of one coordinator, from loading its partition to losing it. `run` is its task; `end` fails
    all waiting requests."""

    def __init__(self, state: CoordinatorState, context: CoordinatorContext) -> None:
        self._state = state
        self._context = context
        # Sessions begin when silence counts: until then the coordinator before may still hear the members.
        self._deadlines = ClassicDeadlines.of(state.shard, state.silent_from_s)
        self._waits: dict[int, asyncio.Future[_Answered]] = {}
        self._waits_begun = 0
        self._bytes = sum(group.classic.size for group in state.shard.groups.values() if group.classic is not None)
        self._is_earlier = asyncio.Event()
        """Set when a deadline is due before `run` would wake up."""
        self._sleeps_until_s = 0.0
        self._is_over = False

    @property
    def waiting(self) -> int:
        """Number of waiting JoinGroup and SyncGroup requests."""
        return len(self._waits)

    # -- requests ----------------------------------------------------------------------------------------------------

    async def join(self, request: classic_groups.JoinGroup, deadline_s: float) -> classic_groups.JoinAnswer:
        """Adds a member to the group and answers when the rebalance has gathered all members. Raises
        `MemberIdRequired`, `UnknownMember`, `FencedInstance`, `InconsistentProtocol`, `GroupFull`,
        `InvalidSessionTimeout`, `InvalidRequest`, `UnsupportedLevel`, `NotCoordinator`, `CoordinatorNotAvailable`;
        `RebalanceInProgress` at the deadline."""
        # A broker of a lower level cannot decode the record of a classic group. If the partition moved there, all of
        # its groups would be without a coordinator.
        if self._context.level() < CLASSIC_LEVEL:
            raise UnsupportedLevel(
                f"classic groups need feature level {CLASSIC_LEVEL}, and the cluster is at {self._context.level()}; "
                "raise it with `tidelog cluster upgrade --finalize` when all brokers are upgraded"
            )
        name = (request.instance_id or request.client_id)[:NAME_LENGTH]
        # The coordinator draws the id of a new member (KIP-394). The client joins again with it, so a join whose answer
        # was lost does not leave a second member behind.
        drawn_id = f"{name}-{self._context.entropy.token_hex(16)}"

        def decide(wait: int) -> Turn:
            joiner = Joiner(request, wait, drawn_id)
            return decide_join(self._state.shard, joiner, self._context.settings, self._state.now())

        with self._told_as_coordinator():
            answer = await self._wait_for(decide, deadline_s)
        assert isinstance(answer, classic_groups.JoinAnswer), "a join is answered as one"
        return answer

    async def sync(self, request: classic_groups.SyncGroup, deadline_s: float) -> classic_groups.SyncAnswer:
        """Answers with the member's assignment, when the leader has sent it; stores the assignments if this member is
        the leader. Raises `UnknownMember`, `FencedInstance`, `IllegalGeneration`, `InconsistentProtocol`,
        `RebalanceInProgress`, `TooLarge`, `NotCoordinator`, `CoordinatorNotAvailable`."""

        def decide(wait: int) -> Turn:
            return decide_sync(self._state.shard, request, wait, self._context.settings, self._state.now())

        with self._told_as_coordinator():
            answer = await self._wait_for(decide, deadline_s)
        assert isinstance(answer, classic_groups.SyncAnswer), "a sync is answered as one"
        return answer

    async def heartbeat(self, request: classic_groups.ClassicHeartbeat, deadline_s: float) -> None:
        """Extends a member's session. Raises `UnknownMember`, `FencedInstance`, `IllegalGeneration`, `NotCoordinator`,
        `CoordinatorNotAvailable`; `RebalanceInProgress` if the member has to join again."""
        with self._told_as_coordinator():
            self._state.require_in_force()
            try:
                refusal = decide_heartbeat(self._state.shard, request)
            except TidelogError as error:
                refusal = error
            else:
                self._hear(request.group, request.member_id)
            # A refusal waits as well. It may rest on a decision that is not committed: told too early, and then lost,
            # an UNKNOWN_MEMBER_ID would make a live member give up its partitions for nothing.
            await self._state.until_true(None, self._state.newest, deadline_s)
        if refusal is not None:
            raise refusal

    def heard_now(self, request: classic_groups.ClassicHeartbeat) -> bool:
        """Extends a member's session at once, if its heartbeat can be answered without an error and without
        waiting. Returns False, without a change, otherwise."""
        # With nothing on its way and the lease in force there is nothing to wait for, and most heartbeats come in such
        # a moment.
        if not self._state.is_true_now:
            return False
        try:
            refusal = decide_heartbeat(self._state.shard, request)
        except TidelogError:
            # `heartbeat` says the error, once what it rests on is committed.
            return False
        if refusal is None:
            self._hear(request.group, request.member_id)
        return refusal is None

    async def leave(self, request: classic_groups.LeaveGroup, deadline_s: float) -> classic_groups.LeaveAnswer:
        """Removes members from their group. Raises `InvalidGroupName`."""
        with self._told_as_coordinator():
            self._state.require_in_force()
            settings = self._context.settings
            turn, answer = decide_leave(self._state.shard, request, settings, self._state.now())
            if turn is not None:
                self._carry_out(turn)
            # The turn's own batch is waited for as the newest, not as `own`: a leave may be repeated at the next
            # coordinator, so its caller need not be told that its outcome is unknown.
            await self._state.until_true(None, self._state.newest, deadline_s)
        return answer

    async def commit(self, request: classic_groups.CommitAsMember, deadline_s: float) -> CommitAnswer:
        """Commits offsets for a member of a classic or consumer group, or for a caller that is no member. Raises
        `UnknownMember`, `FencedInstance`, `FencedMember`, `IllegalGeneration`, `RebalanceInProgress`, `GroupNotEmpty`,
        `NotCoordinator`, `CoordinatorNotAvailable`, with nothing committed; `CoordinatorLost` if the outcome is
        unknown."""
        state, context = self._state, self._context
        with self._told_as_coordinator(is_commit=True):
            state.require_in_force()
            try:
                decision = decide_commit(state.shard, request, context.view(), context.settings, state.now())
            except TidelogError:
                await state.until_true(None, state.newest, deadline_s)
                raise
            # As `own`, so that a failure halfway is told as unknown (`CoordinatorLost`). Nobody else can tell the
            # caller whether its offsets count.
            written = state.write(decision.records)
            # An accepted commit is a sign of life, as in Kafka: a consumer that commits is at work.
            self._hear(request.group, request.member_id)
            await state.until_true(written, None, deadline_s)
        assert isinstance(decision.answer, CommitAnswer), "a commit is answered as one"
        return decision.answer

    def _hear(self, name: str, member_id: str) -> None:
        group = self._state.shard.groups.get(name)
        classic = None if group is None else group.classic
        if classic is not None:
            self._deadlines.heard(classic, member_id, self._context.clock.monotonic_s())

    @contextmanager
    def _told_as_coordinator(self, *, is_commit: bool = False) -> Iterator[None]:
        """Translates the errors of an overloaded or ended coordinator into `CoordinatorNotAvailable` and
        `NotCoordinator`, after which a client looks up the coordinator again."""
        try:
            yield
        except Overloaded as error:
            raise CoordinatorNotAvailable(error.message) from error
        except CoordinatorLost as error:
            if is_commit:
                raise
            raise self._none_any_more() from error
        except CoordinatorNotAvailable as error:
            if self._is_over:
                raise self._none_any_more() from error
            raise

    def _none_any_more(self) -> NotCoordinator:
        return NotCoordinator(f"broker {self._context.node_id} does not coordinate the group any more; find who does")

    # -- waiting -----------------------------------------------------------------------------------------------------

    async def _wait_for(self, decide: Callable[[int], Turn], deadline_s: float) -> Told:
        """Returns the answer to a join or sync, once it is known and all records that it depends on are committed.
        `decide` gets the number of this wait, by which the group later refers to it. Raises the error that the group
        answers with, or `RebalanceInProgress` after the deadline."""
        if len(self._waits) >= WAITS_MAX:
            raise CoordinatorNotAvailable(f"{WAITS_MAX} members wait for this coordinator already; try again later")
        self._state.require_in_force()
        self._waits_begun += 1
        wait = self._waits_begun
        answered = self._waits[wait] = asyncio.get_running_loop().create_future()
        # While nobody waits the task may sleep for a minute. From here on it looks each second whether this broker
        # leads.
        self._wake_by(self._context.clock.monotonic_s() + LOOK_S)
        try:
            async with asyncio.timeout_at(deadline_s):
                # The future was put there first, since the decision may answer it at once: this may be the last member
                # that the others wait for.
                answer, batch = self._refused(decide, wait) or await answered
        except TimeoutError:
            raise RebalanceInProgress("the other members are waited for still; ask again") from None
        finally:
            # The group still has the number. An answer to it later finds nobody, and the member is expelled if it does
            # not come again.
            del self._waits[wait]
        # This answer is none of the group's: it needs no commit, and this broker may never commit anything again.
        if not isinstance(answer, CoordinatorNotAvailable):
            await self._state.until_true(None, batch, deadline_s)
        if isinstance(answer, TidelogError):
            raise answer
        return answer

    def _refused(self, decide: Callable[[int], Turn], wait: int) -> _Answered | None:
        """Decides the join or sync with the number `wait` and applies the decision. Returns None, or if the request is
        refused, the error and the batch to be committed before it is given."""
        try:
            turn = decide(wait)
        except TidelogError as error:
            return error, self._state.newest
        self._carry_out(turn)
        return None

    def _carry_out(self, turn: Turn) -> None:
        """Writes the records of a decision, replaces the group and answers the requests. Raises `Overloaded` or
        `TooLarge`, with nothing done."""
        group = turn.group
        before = self._state.shard.groups.get(group.name)
        grown = group.size - (0 if before is None or before.classic is None else before.classic.size)
        # Only growth is refused. With no room left a leave must still go through, or there would never be room again.
        if grown > 0 and self._bytes + grown > BYTES_MAX:
            raise Overloaded("the members of this coordinator's groups say too much of themselves; try again later")
        # The write comes first because it may refuse: then the copy is thrown away, and nothing has happened. And
        # applying the record of a group drops what is only in memory, its phases and waits; those of the copy are set
        # after it.
        self._state.write(turn.records)
        self._bytes += grown
        self._state.shard.groups[group.name].classic = group
        now_s = self._context.clock.monotonic_s()
        for member_id in turn.heard:
            self._deadlines.heard(group, member_id, now_s)
        self._deadlines.follow(group)
        self._wake_by(self._deadlines.next_s())
        for wait, answer in turn.tells:
            answered = self._waits.get(wait)
            if answered is not None and not answered.done():
                # With the newest batch, not the turn's own: the answer rests also on what was decided before, and a
                # turn may have no records at all.
                answered.set_result((answer, self._state.newest))

    # -- the clock ---------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Ends rebalances and removes silent members at their deadlines, until cancelled."""
        clock = self._context.clock
        while True:
            await self._do_what_is_due()
            await self._look_who_leads()
            # After the awaits: whatever became due earlier while they lasted is in `next_s` now.
            self._is_earlier.clear()
            due_s = self._deadlines.next_s()
            pause_s = PAUSE_S_MAX if due_s is None else due_s - clock.monotonic_s()
            pause_s = min(max(pause_s, PAUSE_S_MIN), LOOK_S if self._waits else PAUSE_S_MAX)
            self._sleeps_until_s = clock.monotonic_s() + pause_s
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._is_earlier.wait()

    def _wake_by(self, due_s: float | None) -> None:
        if due_s is not None and due_s < self._sleeps_until_s:
            self._is_earlier.set()

    async def _look_who_leads(self) -> None:
        if not self._waits:
            return
        try:
            # A broker that is cut off does not hear that it was replaced. Its members would wait here for their whole
            # rebalance timeout, while the group goes on without them elsewhere.
            await self._state.partition.extent()
        except LeaderNotAvailable as error:
            message = f"another broker may coordinate the group: {error.message}"
            self._tell_all(lambda: CoordinatorNotAvailable(message))

    async def _do_what_is_due(self) -> None:
        """Handles all deadlines that have passed, and yields to other tasks after each."""
        while silent := self._deadlines.pop(self._context.clock.monotonic_s()):
            # One at a time: what follows from one silence may give the members behind it more time.
            self._follow_silence(*silent)
            await asyncio.sleep(0)

    def _follow_silence(self, name: str, member_id: str) -> None:
        now = self._state.now()
        turn = decide_silence(self._state.shard, name, member_id, self._context.settings, now)
        if turn is None:
            return
        try:
            self._carry_out(turn)
        except TidelogError as error:
            logger.warning("a group is looked after a little later", group=name, error=error.message)
            # `pop` has forgotten the deadline. Without another one a dead member would hold up its group for ever.
            self._deadlines.set((name, member_id), now.monotonic_s + AGAIN_S)

    def end(self) -> None:
        """Fails all waiting requests with `NotCoordinator`."""
        # Before anybody is woken: a request that fails by this end looks at it, and says NOT_COORDINATOR too.
        self._is_over = True
        self._tell_all(self._none_any_more)

    def _tell_all(self, make_error: Callable[[], TidelogError]) -> None:
        for answered in self._waits.values():
            if not answered.done():
                # Each caller gets an error of its own, since each raises it.
                answered.set_result((make_error(), None))
