"""The channel to the active controller, wherever it is: commands go there, and are repeated until they are answered.

Repeating is safe, because a command carries every random value drawn for it: a command that arrives twice takes effect
once, and its answer is the same (`controller.commands`). So a controller that fails while it handles a command costs
time only. A command that is refused when it is repeated may have taken effect before, and been undone by others: then
the error says that the outcome is unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Protocol, TypeVar

import msgspec

from tidelog.broker.controller.active import ActiveController
from tidelog.broker.controller.applied_positions import AWAITED
from tidelog.broker.runtime.purgatory import Watchers
from tidelog.controller.commands import Command, CommandAnswer, ControllerElsewhere
from tidelog.model.cluster import ClusterImage
from tidelog.model.errors import (
    BrokerNotRegistered,
    ControllerLost,
    NotController,
    Overloaded,
    ShuttingDown,
    TidelogError,
)
from tidelog.model.ids import NodeId
from tidelog.model.ports import Entropy
from tidelog.transport.peer import Answer, PeerLost, PeerUnreachable

A = TypeVar("A", bound=CommandAnswer)

ATTEMPT_S_MAX = 12.0
"""Seconds that one attempt waits at most. More than a controller takes in the worst case, so that the controller's own
error arrives first."""
PAUSE_S = 0.02
PAUSE_S_MAX = 0.5


class Ask(Protocol):
    """The signature of `PeerNode.request`: sends a message to another broker and returns the answer."""

    async def __call__(self, node_id: int, message: msgspec.Struct, *, deadline_s: float) -> Answer: ...


class ControllerChannel:
    """The channel from one broker to the active controller. `on_leader_changed` is to be called whenever the leader of
    the metadata log changes.

    A broker that has not registered yet receives no heartbeats of a leader. As long as it knows no leader, it asks the
    `voters` in turn: a voter that does not lead answers with the leader that it knows. The list may be out of date.
    """

    def __init__(
        self,
        node_id: int,
        controller: ActiveController,
        ask: Ask,
        entropy: Entropy,
        voters: Callable[[], Sequence[int]],
        know: Callable[[int, str, int], None],
    ) -> None:
        """`know` is called with the node id and address of a controller that another broker has named."""
        self.leader: int | None = None
        """The node id of the broker that leads the metadata log, as far as this broker knows."""
        self.leader_changes = 0
        """The number of times that this broker has learned of another leader."""
        self._node_id = node_id
        self._controller = controller
        self._ask = ask
        self._entropy = entropy
        self._voters = voters
        self._know = know
        self._named: int | None = None
        """The node id that another broker has named as the controller, until it has been asked."""
        self._turn = 0
        self._changes = Watchers()
        self._awaited: dict[asyncio.Timeout, int] = {}
        self._is_closed = False

    def on_leader_changed(self, leader: int | None) -> None:
        """Records the leader of the metadata log, None if there is none, and wakes the waiting commands."""
        self.leader = leader
        self.leader_changes += leader is not None
        self._changes.wake_all()
        for patience, node in list(self._awaited.items()):
            if leader is not None and leader != node and not patience.expired():
                patience.reschedule(0)  # whoever was asked may be paused, and never answer

    def elsewhere(self, image: ClusterImage) -> ControllerElsewhere | None:
        """Returns the address of the active controller according to the image; None if it is this broker or not
        known."""
        leader = self.leader
        controller = None if leader is None or leader == self._node_id else image.brokers.get(NodeId(leader))
        if controller is None:
            return None
        return ControllerElsewhere(image.position, controller.node_id, controller.peer_host, controller.peer_port)

    def close(self) -> None:
        """Stops repeating commands, because this broker stops."""
        self._is_closed = True
        self._changes.wake_all()

    async def submit(self, command: Command, answer_type: type[A], *, seconds_max: float) -> A:
        """Returns the controller's answer to a command. Raises the controller's error; `NotController` if no controller
        could be asked in time, so that nothing was done; or `ControllerLost` if one may have done it."""
        deadline_s = asyncio.get_running_loop().time() + seconds_max
        pause_s = PAUSE_S
        is_begun = False
        while True:
            try:
                answer = await self._try(command, deadline_s)
            except (NotController, BrokerNotRegistered, PeerUnreachable, Overloaded) as error:
                failure: Exception = error
            except (ControllerLost, PeerLost, TimeoutError) as error:
                is_begun, failure = True, error
            except TidelogError as error:
                if is_begun and isinstance(command, AWAITED):
                    raise ControllerLost(f"an attempt before this one may have done it; now: {error}") from error
                raise
            else:
                assert isinstance(answer, answer_type)
                return answer
            if self._is_closed and not is_begun:
                raise ShuttingDown("this broker is stopping")
            if self._is_closed or not await self._pause(pause_s * self._entropy.uniform(1, 2), deadline_s):
                raise self._gave_up(failure, is_begun=is_begun) from failure
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    async def _try(self, command: Command, deadline_s: float) -> CommandAnswer:
        seconds = min(deadline_s - asyncio.get_running_loop().time(), ATTEMPT_S_MAX)
        leader = self._whom_to_ask()
        if leader is None:
            raise NotController("the cluster has no active controller now")
        if leader == self._node_id:
            return await self._controller.handle(command, seconds_max=seconds)
        answer = await self._while_it_leads(leader, self._ask(leader, command, deadline_s=seconds))
        assert isinstance(answer.message, CommandAnswer)
        if isinstance(answer.message, ControllerElsewhere):
            raise self._follow(leader, answer.message)
        return answer.message

    def _follow(self, answerer: int, named: ControllerElsewhere) -> NotController:
        if named.node_id not in (self._node_id, answerer):
            self._know(named.node_id, named.host, named.port)
            self._named = named.node_id
        return NotController(f"node {answerer} names node {named.node_id} as the controller; nothing was done")

    async def _while_it_leads(self, leader: int, answer: Awaitable[Answer]) -> Answer:
        """Returns the answer of the broker `leader`. Raises `TimeoutError` if another broker becomes leader before it
        has answered."""
        async with asyncio.timeout(None) as patience:
            self._awaited[patience] = leader
            try:
                return await answer
            finally:
                del self._awaited[patience]

    def _whom_to_ask(self) -> int | None:
        named, self._named = self._named, None
        if named is not None:
            return named
        return self.leader if self.leader is not None else self._guess()

    def _guess(self) -> int | None:
        voters = [node for node in self._voters() if node != self._node_id]
        self._turn += 1
        return voters[self._turn % len(voters)] if voters else None

    async def _pause(self, seconds: float, deadline_s: float) -> bool:
        """Waits for a change of leader, at most `seconds`; returns False if the command's time is up."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + seconds
        with suppress(TimeoutError):
            async with asyncio.timeout_at(min(until_s, deadline_s)):
                await self._changes.wait()
        return loop.time() < deadline_s

    def _gave_up(self, failure: Exception, *, is_begun: bool) -> NotController | ControllerLost:
        if is_begun:
            return ControllerLost(f"no controller answered in time ({failure}); repeat the request")
        if self.leader is None:
            voters = ", ".join(map(str, self._voters()))
            why = f"the cluster has no active controller, which takes a majority of brokers {voters}: {failure}"
        else:
            why = f"the controller, broker {self.leader}, could not be asked in time: {failure}"
        return NotController(f"{why}; nothing was done, try again")
