"""Routing of a request to a group's coordinator, on this broker or another, with retries until it answers.

    what happened                                    done?     what is done
    -----------------------------------------------  --------  ------------------------------------------------------
    no leader, `NotLeader`, no connection,           no        waits for another leader, then sends it again
    `CoordinatorNotAvailable`
    connection lost, no answer, leader changed       unknown   the same: group requests may be repeated
    before the answer, `CoordinatorLost`
    any other answer                                 it says   returns it

After an unknown outcome, a refusal of the repeated change is reported as unknown, too, since the first try may be its
cause.

Long polls forwarded to other brokers are bounded (`FORWARDED_POLLS_MAX` to each). Beyond that they are sent as
heartbeats that do not wait, so that the peer connection has room for other requests.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from tidelog.broker.groups.coordinators import Coordinators
from tidelog.broker.groups.messages import ForwardGroup, GroupAnswered
from tidelog.broker.partitions.led_partition import LedPartition
from tidelog.broker.routing.leader_calls import LeaderCalls, LeaderTarget, Pauses, Target, epoch_of
from tidelog.broker.routing.peer_partition import PeerPartition
from tidelog.groups.decision import GroupAnswer
from tidelog.model.errors import (
    BrokerNotRegistered,
    CoordinatorLost,
    CoordinatorNotAvailable,
    LeaderNotAvailable,
    TidelogError,
)
from tidelog.model.groups import (
    AnyGroupRequest,
    DescribeGroup,
    DescribeInstance,
    FetchOffsets,
    Heartbeat,
    ListGroups,
    ListInstances,
)
from tidelog.transport.peer import PeerLost, PeerUnreachable

PATIENCE_S: Final = 10.0
"""Maximum seconds for which a group request is retried, within the caller's deadline. The caller may then repeat it."""
FORWARDED_POLLS_MAX: Final = 256
"""Maximum number of long polls forwarded to one broker: a quarter of the requests that a peer connection carries."""
NOT_DONE: Final = (LeaderNotAvailable, PeerUnreachable, CoordinatorNotAvailable, BrokerNotRegistered)
UNKNOWN: Final = (PeerLost, TimeoutError, CoordinatorLost)
SAY_AS_IT_IS: Final = (Heartbeat, FetchOffsets, DescribeGroup, DescribeInstance, ListGroups, ListInstances)
"""Requests whose error is true even after a try with an unknown outcome: they report the state of a member or group."""


class Reach:
    """Client of the group coordinators: calls the one on this broker directly, others over peer connections."""

    def __init__(self, calls: LeaderCalls, coordinators: Coordinators) -> None:
        self._calls = calls
        self._coordinators = coordinators
        self._polls: dict[int, int] = {}

    async def ask(self, target: Target, request: AnyGroupRequest, deadline_s: float) -> GroupAnswer:
        """Returns the coordinator's answer. Raises the error that the coordinator answers with;
        `CoordinatorNotAvailable`, with nothing done; `CoordinatorLost` if the outcome is unknown."""
        pauses: Pauses | None = None  # from the first failure on: a long poll may have lasted for longer than that
        is_uncertain = False
        while True:
            # Read before the leader is looked up and asked. If another one comes meanwhile the epoch differs, and the
            # wait below ends at once.
            epoch = self._calls.epoch(target)
            try:
                leader = self._calls.locate(target, deadline_s)
                return await self._ask_at(leader, target, request, deadline_s)
            except UNKNOWN as error:
                failure: Exception = error
                # This is never taken back: the request may have been done by that try, whatever the next ones say.
                is_uncertain = True
            except NOT_DONE as error:
                failure = error
            except TidelogError as error:
                # The try that was lost may be why this one is refused: a group to be deleted is unknown once it is
                # deleted.
                if is_uncertain and not isinstance(request, SAY_AS_IT_IS):
                    raise CoordinatorLost(
                        f"an attempt before this one may have done it; now: {error.message}"
                    ) from error
                raise
            pauses = pauses or Pauses(min(deadline_s, asyncio.get_running_loop().time() + PATIENCE_S))
            if pauses.is_over:
                raise _gave_up(failure, is_uncertain=is_uncertain) from failure
            await self._calls.wait_for_news([(target, epoch)], pauses.next_end_s())

    async def _ask_at(
        self, leader: LeaderTarget, target: Target, request: AnyGroupRequest, deadline_s: float
    ) -> GroupAnswer:
        if isinstance(leader, LedPartition):
            return await self.ask_here(leader, request, deadline_s)
        # A paused leader keeps its connection and never answers, so the wait ends when another one is known.
        return await self._calls.while_it_leads(target, epoch_of(leader), self._ask_peer(leader, request, deadline_s))

    async def ask_here(self, partition: LedPartition, request: AnyGroupRequest, deadline_s: float) -> GroupAnswer:
        """Returns the answer of the coordinator of a partition led by this broker. Raises
        the error that the coordinator answers with; `CoordinatorNotAvailable` if the coordinator is not started yet."""
        coordinator = self._coordinators.of(partition)
        if coordinator is None:
            raise CoordinatorNotAvailable(
                f"the coordinator of {partition.topic}-{partition.partition} is just coming up"
            )
        return await coordinator.ask(request, deadline_s)

    async def _ask_peer(self, leader: PeerPartition, request: AnyGroupRequest, deadline_s: float) -> GroupAnswer:
        with self._bounded(leader.peer.node_id, request) as bounded:
            # The time that is left, not the moment: the two brokers' clocks need not agree.
            timeout_ms = math.ceil((deadline_s - asyncio.get_running_loop().time()) * 1000)
            message = ForwardGroup(leader.addressed, bounded, max(0, timeout_ms))
            answered = (await leader.peer.ask(message, deadline_s)).message
        assert isinstance(answered, GroupAnswered)
        return answered.answer

    @contextmanager
    def _bounded(self, node_id: int, request: AnyGroupRequest) -> Iterator[AnyGroupRequest]:
        if not isinstance(request, Heartbeat) or request.wait_ms <= 0:
            yield request
            return
        polls = self._polls.get(node_id, 0)
        if polls >= FORWARDED_POLLS_MAX:
            # The member hears of a rebalance with its next heartbeat instead.
            yield msgspec.structs.replace(request, wait_ms=0)
            return
        self._polls[node_id] = polls + 1
        try:
            yield request
        finally:
            self._polls[node_id] -= 1


def deadline_of(message: ForwardGroup) -> float:
    """Returns the deadline of a forwarded request, in loop time (s)."""
    return asyncio.get_running_loop().time() + max(0, message.timeout_ms) / 1000


def _gave_up(failure: Exception, *, is_uncertain: bool) -> TidelogError:
    if is_uncertain:
        return CoordinatorLost(
            f"the group's coordinator may have done it, and did not say so in time ({failure}); try again"
        )
    return CoordinatorNotAvailable(f"the group's coordinator could not be asked in time ({failure}); try again")
