"""The coordinator of the groups in one partition of `__consumer_offsets`, on the broker that leads the partition.

    claim -> load -> serve (a `CoordinatorState`) -> error -> claim again after a pause, while this broker leads

The claim is a record that this broker appends to fence earlier coordinators. A `Coordinator` belongs to one leader
epoch. Requests wait while it loads; one that is refused before anything was done says so and may be repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

import structlog

from tidelog.broker.groups.chores import Chores
from tidelog.broker.groups.classics import Classics
from tidelog.broker.groups.coordinator_state import CoordinatorContext, CoordinatorState
from tidelog.broker.groups.copying import CopyForward
from tidelog.broker.groups.loading import claim, load
from tidelog.broker.partitions.led_partition import LedPartition
from tidelog.broker.runtime.purgatory import Watchers
from tidelog.groups.decide import has_news
from tidelog.groups.decision import GroupAnswer
from tidelog.groups.shard import Shard
from tidelog.model.classic_groups import ClassicHeartbeat
from tidelog.model.errors import (
    CoordinatorNotAvailable,
    DamagedBatch,
    EndOffsetMoved,
    NotLeader,
    Overloaded,
    TidelogError,
)
from tidelog.model.groups import AnyGroupRequest, Heartbeat
from tidelog.model.lost_ranges import format_lost
from tidelog.model.ports import Entropy
from tidelog.transport.backoff import Backoff

LOADING_MAX: Final = 1_000
"""Maximum number of requests that wait for the coordinator to load."""
PAUSE_S_MIN: Final = 0.05
PAUSE_S_MAX: Final = 2.0

logger = structlog.get_logger("tidelog.groups")


class Coordinator:
    """The coordinator of the groups in one partition, while this broker leads it in one leader epoch. `run` is its
    task."""

    def __init__(self, partition: LedPartition, context: CoordinatorContext, entropy: Entropy, spawn: Spawn) -> None:
        self.partition = partition
        self.on_changed: list[Callable[[str], None]] = []
        """Functions called with the name of each group that has changed in more than committed offsets, once the change
        is committed. They must not raise."""
        self._context = context
        self._spawn = spawn
        self._backoff = Backoff(entropy, initial_s=PAUSE_S_MIN, max_s=PAUSE_S_MAX)
        self._claimed: int | None = None
        """Offset of this coordinator's claim record, which fences earlier coordinators, while it loads; otherwise
        None."""
        self._state: CoordinatorState | None = None
        self._chores: Chores | None = None
        self._classics: Classics | None = None
        self._waiting = 0
        self._news = Watchers()
        self._is_closed = False
        self._trouble: TidelogError | None = None

    @property
    def is_loaded(self) -> bool:
        """True while the coordinator has loaded its groups and answers requests."""
        return self._state is not None

    @property
    def shard(self) -> Shard | None:
        """The groups of this partition, with changes that may not be committed yet. None while the coordinator does not
        answer."""
        return None if self._state is None else self._state.shard

    def has_news(self, request: Heartbeat) -> bool:
        """Returns True if the group has changed in a way that this heartbeat's answer would show, or if that is
        unknown."""
        return self._state is None or has_news(self._state.shard, request)

    @property
    def polls(self) -> int:
        """Number of heartbeats that wait for a change of their group."""
        return 0 if self._state is None else self._state.polls.waiting

    async def ask(self, request: AnyGroupRequest, deadline_s: float) -> GroupAnswer:
        """Answers a request once the coordinator has loaded. Raises the errors that the docstring of the request's
        class names; with nothing done `Overloaded`, `TooLarge`, `CoordinatorNotAvailable`, or `NotLeader` if this
        broker no longer leads; `CoordinatorLost` if the outcome is unknown."""
        state = self._state
        if state is None:
            state = await self._until_loaded(deadline_s)
        return await state.ask(request, deadline_s)

    def heard_now(self, request: ClassicHeartbeat) -> bool:
        """Extends a classic member's session at once, if its heartbeat can be answered without an error and
        without waiting. Returns False otherwise, and while the coordinator loads."""
        return self._classics is not None and self._classics.heard_now(request)

    def answer_now(self, request: Heartbeat) -> GroupAnswer | None:
        """Answers a heartbeat at once, if it changes nothing, brings its member nothing new and need not wait. Returns
        None, without a change, otherwise, and while the coordinator loads."""
        return None if self._state is None else self._state.answer_now(request)

    async def classics(self, deadline_s: float) -> Classics:
        """Returns the classic groups, once loaded. Raises `NotLeader` if this broker no longer leads, `Overloaded` if
        too many requests wait, and `CoordinatorNotAvailable` at the deadline."""
        if self._classics is None:
            await self._until_loaded(deadline_s)
        assert self._classics is not None, "they are there whenever the state is"
        return self._classics

    async def _until_loaded(self, deadline_s: float) -> CoordinatorState:
        if self._waiting >= LOADING_MAX:
            self._context.stats.group_requests_refused += 1
            raise Overloaded("the group's coordinator is loading, and too many requests wait for that; try again later")
        self._waiting += 1
        try:
            async with asyncio.timeout_at(deadline_s):
                while self._state is None:
                    if self._is_closed:
                        raise self._not_leader()
                    await self._news.wait()
        except TimeoutError:
            trouble = "" if self._trouble is None else f" ({self._trouble.message})"
            raise CoordinatorNotAvailable(f"the group's coordinator is loading still{trouble}; try again") from None
        finally:
            self._waiting -= 1
        return self._state

    def _not_leader(self) -> NotLeader:
        return NotLeader(
            f"broker {self._context.node_id} does not lead {self.partition.topic}-{self.partition.partition} any more",
            self.partition.leader_epoch,
        )

    def topics_changed(self) -> None:
        """Makes the coordinator check its groups' subscriptions against the changed topics."""
        if self._chores is not None:
            self._chores.topics_changed()

    # -- the role ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Loads and serves the groups, until cancelled."""
        while True:
            try:
                await self._serve(await self._load())
            # A coordinator never gives up: as long as this broker leads the partition, its groups have nowhere else to
            # go.
            except TidelogError as error:
                self._failed(error)
            await asyncio.sleep(self._backoff.next_s())

    async def _load(self) -> CoordinatorState:
        """Appends a claim record, which fences earlier coordinators, and loads the groups from the log up to it. If the
        load fails, the next call reuses the claim record."""
        context = self._context
        began_s = context.clock.monotonic_s()
        # Each claim is a commit of its own. A damaged log may be tried for hours, and would grow by a claim with each
        # try.
        if self._claimed is None:
            self._claimed = await claim(self.partition, context.node_id, context.clock.wall_ms())
        loaded = await load(self.partition, self._claimed, context.clock.wall_ms())
        state = CoordinatorState(self.partition, loaded, context, self._changed)
        # From here on records are appended behind the claim, so that the next load needs another one at the new end.
        self._claimed = None
        if loaded.lost:
            logger.error(
                "records of groups are lost, and that was accepted: members join again, and committed offsets may be "
                "older ones",
                partition=f"{self.partition.topic}-{self.partition.partition}",
                offsets=format_lost(loaded.lost),
            )
        context.stats.group_loads += 1
        context.stats.group_load_seconds += context.clock.monotonic_s() - began_s
        return state

    async def _serve(self, state: CoordinatorState) -> None:
        """Serves requests until the state fails, and raises that error."""
        # After a loss the copy is due at once: as long as the lost range is in the log each load passes it, and takes
        # all members out of their groups again.
        chores, copying = Chores(state, self._context), CopyForward(state, self._context.stats, is_due=bool(state.lost))
        classics = Classics(state, self._context)
        self._backoff.reset()
        self._trouble = None
        # All three together, without an await: `classics` relies on it that they come and go as one.
        self._state, self._chores, self._classics = state, chores, classics
        self._news.wake_all()
        name = f"{self.partition.topic}-{self.partition.partition}"
        tasks = [
            self._spawn(f"{name}-chores", chores.run()),
            self._spawn(f"{name}-classics", classics.run()),
            self._spawn(f"{name}-copying", copying.run()),
        ]
        try:
            await state.run()
        except TidelogError as error:
            # Out of sight before anything is ended: a request that is woken must wait for the next load, not find this
            # state.
            self._state = self._chores = self._classics = None
            classics.end()
            # Definite only if the append did not happen for sure; any other batch that was sent may still be committed.
            state.end(f"the group's coordinator could not write ({error.message})", is_definite=error.definite)
            raise
        finally:
            self._state = self._chores = self._classics = None
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _failed(self, error: TidelogError) -> None:
        self._trouble = error
        name = f"{self.partition.topic}-{self.partition.partition}"
        if isinstance(error, DamagedBatch):
            logger.error("groups cannot be read", partition=name, error=error.message)
        elif isinstance(error, EndOffsetMoved):
            logger.warning("somebody else has written to the groups' log", partition=name, error=error.message)
        else:
            logger.info("the coordinator starts anew", partition=name, error=error.message)

    def close(self) -> None:
        """Fails all waiting requests because this broker no longer leads. The caller must also cancel the task."""
        self._is_closed = True
        state, self._state = self._state, None
        if self._classics is not None:
            self._classics.end()
        if state is not None:
            # Never definite: the next leader may commit what was sent, so nobody is told that it was not done.
            state.end("the group has another coordinator now", is_definite=False)
        self._news.wake_all()

    def _changed(self, group: str) -> None:
        for callback in list(self.on_changed):
            callback(group)


Spawn = Callable[[object, Coroutine[Any, Any, None]], "asyncio.Task[None]"]
"""Function that starts a task and registers its owner."""
