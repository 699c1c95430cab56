"""The way to the coordinator of a classic group: it is on this broker, or its members are told to look for it.

As with Kafka, whose clients find a group's coordinator and speak to that broker alone: what waits for minutes is not
passed on from one broker to another.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tidelog.broker.groups.classics import Classics
from tidelog.broker.groups.coordinator import Coordinator
from tidelog.model.classic_groups import (
    ClassicHeartbeat,
    CommitAsMember,
    JoinAnswer,
    JoinGroup,
    LeaveAnswer,
    LeaveGroup,
    SyncAnswer,
    SyncGroup,
)
from tidelog.model.errors import CoordinatorNotAvailable, NotCoordinator, NotLeader, Overloaded
from tidelog.model.groups import CommitAnswer, check_group_name


class ClassicGroups:
    """The classic groups of one broker. Deadlines are in loop time.

    Everything here raises `InvalidGroupName`; `NotCoordinator`, if another broker coordinates the group, or this one
    ceases to; and `CoordinatorNotAvailable`, while it loads or may lead no more. Nothing else is said of coordinators,
    so that each client knows what to do. In all cases the request may be repeated.
    """

    def __init__(self, local: Callable[[str], Coordinator | None], found: Callable[[float], Awaitable[None]]) -> None:
        """`local` is the coordinator of a group, if that is on this broker; `found` makes the groups' topic."""
        self._local = local
        self._found = found

    async def join(self, request: JoinGroup, deadline_s: float) -> JoinAnswer:
        """Waits for the other members: give it the member's rebalance timeout and some seconds more. Raises what
        `JoinGroup` says."""
        return await (await self._of(request.group, deadline_s, is_first=True)).join(request, deadline_s)

    async def sync(self, request: SyncGroup, deadline_s: float) -> SyncAnswer:
        """Waits for the leader, as `join` for the members. Raises what `SyncGroup` says."""
        return await (await self._of(request.group, deadline_s)).sync(request, deadline_s)

    async def heartbeat(self, request: ClassicHeartbeat, deadline_s: float) -> None:
        """Raises what `ClassicHeartbeat` says."""
        await (await self._of(request.group, deadline_s)).heartbeat(request, deadline_s)

    def heard_now(self, request: ClassicHeartbeat) -> bool:
        """Hears a member whom all is well with. Returns False, and has done nothing, if `heartbeat` has to be asked."""
        coordinator = self._local(request.group)
        return coordinator is not None and coordinator.heard_now(request)

    async def leave(self, request: LeaveGroup, deadline_s: float) -> LeaveAnswer:
        """Removes members from a group; the answer says of each what became of it."""
        return await (await self._of(request.group, deadline_s)).leave(request, deadline_s)

    async def commit(self, request: CommitAsMember, deadline_s: float) -> CommitAnswer:
        """Commits for a member of a group of either kind, or for nobody. Raises what `CommitAsMember` says, and
        `CoordinatorLost` if it may have been done."""
        return await (await self._of(request.group, deadline_s, is_first=True)).commit(request, deadline_s)

    async def _of(self, group: str, deadline_s: float, *, is_first: bool = False) -> Classics:
        """Returns the classic groups of a coordinator. With `is_first` the topic is made, if it is not there."""
        check_group_name(group)
        if is_first:
            # A join or a commit has something to keep. A heartbeat of a member that never was must not make a topic.
            await self._found(deadline_s)
        coordinator = self._local(group)
        if coordinator is None:
            # Unlike other requests about groups this one is not forwarded: a join waits for the slowest member, and
            # would hold its place on the peer connection all that time.
            raise NotCoordinator(f"this broker does not coordinate group {group!a}; find who does")
        try:
            return await coordinator.classics(deadline_s)
        except NotLeader as error:
            # NOT_COORDINATOR sends a Kafka client to look for the coordinator. It expects no other code for this from a
            # group's request; the one of `NotLeader` belongs to produce and fetch.
            raise NotCoordinator(error.message) from error
        except Overloaded as error:
            raise CoordinatorNotAvailable(error.message) from error
