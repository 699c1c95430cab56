"""Requests of classic group members, which only a coordinator on this broker answers.

As with Kafka, a client looks up the coordinator and talks to that broker directly: a JoinGroup may wait for minutes, so
it is not forwarded from one broker to another.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tidelog.broker.groups.classics import Classics
from tidelog.broker.groups.coordinator import Coordinator
from tidelog.model import classic_groups
from tidelog.model.errors import CoordinatorNotAvailable, NotCoordinator, NotLeader, Overloaded
from tidelog.model.groups import CommitAnswer, check_group_name


class ClassicGroups:
    """The classic groups coordinated by this broker. Deadlines are in loop time.

    All methods raise `InvalidGroupName`; `NotCoordinator` if another broker coordinates the group, or this one stops
    doing so; `CoordinatorNotAvailable` while the coordinator loads or its leadership is uncertain. In all these cases
    the client may repeat the request.
    """

    def __init__(self, local: Callable[[str], Coordinator | None], found: Callable[[float], Awaitable[None]]) -> None:
        """`local` returns a group's coordinator if it is on this broker. `found` creates the topic
        `__consumer_offsets`."""
        self._local = local
        self._found = found

    async def join(self, request: classic_groups.JoinGroup, deadline_s: float) -> classic_groups.JoinAnswer:
        """Answers a JoinGroup when the other members have joined. The deadline should be the member's rebalance timeout
        and some seconds. Raises `MemberIdRequired`, `UnknownMember`, `FencedInstance`, `InconsistentProtocol`,
        `GroupFull`, `InvalidSessionTimeout`, `InvalidRequest`, `UnsupportedLevel`; `RebalanceInProgress` at the
        deadline."""
        return await (await self._of(request.group, deadline_s, is_first=True)).join(request, deadline_s)

    async def sync(self, request: classic_groups.SyncGroup, deadline_s: float) -> classic_groups.SyncAnswer:
        """Answers a SyncGroup when the leader has sent the assignments. Raises `UnknownMember`, `FencedInstance`,
        `IllegalGeneration`, `InconsistentProtocol`; `RebalanceInProgress` if the member has to join again, or at the
        deadline; `TooLarge` for assignments too large to store."""
        return await (await self._of(request.group, deadline_s)).sync(request, deadline_s)

    async def heartbeat(self, request: classic_groups.ClassicHeartbeat, deadline_s: float) -> None:
        """Extends a member's session. Raises `UnknownMember`, `FencedInstance`, `IllegalGeneration`; or
        `RebalanceInProgress` if the member has to join again."""
        await (await self._of(request.group, deadline_s)).heartbeat(request, deadline_s)

    def heard_now(self, request: classic_groups.ClassicHeartbeat) -> bool:
        """Extends a member's session at once, if its heartbeat can be answered without an error and without
        waiting. Returns False, without a change, if `heartbeat` must be called."""
        coordinator = self._local(request.group)
        return coordinator is not None and coordinator.heard_now(request)

    async def leave(self, request: classic_groups.LeaveGroup, deadline_s: float) -> classic_groups.LeaveAnswer:
        """Removes members from a group. The answer has an error or success for each."""
        return await (await self._of(request.group, deadline_s)).leave(request, deadline_s)

    async def commit(self, request: classic_groups.CommitAsMember, deadline_s: float) -> CommitAnswer:
        """Commits offsets for a member of a classic or consumer group, or for a caller that is no member. Raises
        `UnknownMember`, `FencedInstance`, `FencedMember`, `IllegalGeneration`, `RebalanceInProgress`, `GroupNotEmpty`,
        with nothing committed; `CoordinatorLost` if the outcome is unknown."""
        return await (await self._of(request.group, deadline_s, is_first=True)).commit(request, deadline_s)

    async def _of(self, group: str, deadline_s: float, *, is_first: bool = False) -> Classics:
        """Returns the classic groups of the coordinator of `group`. With `is_first` creates `__consumer_offsets` if it
        does not exist."""
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
