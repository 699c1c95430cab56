"""A consumer instance on the broker that keeps it: its settings, its positions, and the read that waits for it."""

from __future__ import annotations

import asyncio
from typing import Final, TypeVar

import msgspec

from tidelog.broker.rest_consumers.groups import Coordinator, expect
from tidelog.broker.rest_consumers.positions import Positions
from tidelog.model.errors import CoordinatorNotAvailable, IllegalState, Overloaded, UnknownInstance
from tidelog.model.groups import JOIN, InstanceDescription, TopicPartitions, grouped, unknown_instance
from tidelog.model.ids import TopicId

A = TypeVar("A", bound=msgspec.Struct)

WAITING_MAX: Final = 16
"""Requests of one instance that wait for their turn. A client that is in order has none."""
ASK_S: Final = 5.0
"""For a coordinator on the same broker to answer."""


class Instance:
    """Requests of an instance take turns (`async with instance`); a read that waits for records gives up its turn.

    An idle instance is this object: no task, no timer, no fetch.
    """

    __slots__ = (
        "_lock",
        "_waiter",
        "_waiting",
        "changes",
        "description",
        "group",
        "home",
        "is_deleted",
        "is_dirty",
        "is_gone",
        "lives",
        "member_epoch",
        "name",
        "positions",
        "read",
        "spoken_s",
        "turn",
        "used_s",
    )

    def __init__(self, group: str, name: str, home: Coordinator) -> None:
        self.group = group
        self.name = name
        self.home = home
        """The coordinator that it lives with. With another one, it is another instance that is made from its record."""
        self.description: InstanceDescription | None = None
        """None until it was read."""
        self.positions = Positions()
        self.lives: dict[str, TopicId] = {}
        """The ids of the topics that it has read, by name: a position means nothing in a topic that was created anew.
        """
        self.member_epoch = JOIN
        self.used_s = 0.0
        """When something was asked of it last; loop time."""
        self.spoken_s = 0.0
        """When its member was heard last."""
        self.is_dirty = False
        """True if its group has changed since its member sent a heartbeat."""
        self.is_gone = False
        """It does not live here any more."""
        self.is_deleted = False
        self.turn = 0
        """The number of the partition that is read first."""
        self.read = ""
        """The attempt of the latest read; an older one that waits ends."""
        self.changes = 0
        """How often a read that waits was told to look again."""
        self._lock: asyncio.Lock | None = None
        self._waiting = 0
        self._waiter: asyncio.Future[None] | None = None

    async def __aenter__(self) -> None:
        """Raises `Overloaded` if too many wait for their turn, and as `require`."""
        if self._waiting >= WAITING_MAX:
            raise Overloaded(f"{WAITING_MAX} requests of consumer instance {self.name} wait already; nothing was done")
        lock = self._lock = self._lock or asyncio.Lock()
        self._waiting += 1
        try:
            await lock.acquire()
        finally:
            self._waiting -= 1
        try:
            self.require()
        except BaseException:
            self._end_turn()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._end_turn()

    def _end_turn(self) -> None:
        assert self._lock is not None
        self._lock.release()
        if not self._waiting:
            self._lock = None  # most of what an idle instance would take

    def require(self) -> None:
        """Raises `UnknownInstance`, or `CoordinatorNotAvailable` if it lives elsewhere by now."""
        if self.is_deleted:
            raise UnknownInstance(f"consumer instance {self.name} of group {self.group} was deleted")
        if self.is_gone:
            raise CoordinatorNotAvailable(f"consumer instance {self.name} lives on another broker by now; try again")

    @property
    def what(self) -> InstanceDescription:
        """How it was created, and what it reads."""
        assert self.description is not None, "it was read before it is used"
        return self.description

    def require_owner(self, caller: str) -> None:
        """Raises `UnknownInstance` if it is known to be another principal's, in the words for one that there is not."""
        owner = "" if self.description is None else self.description.settings.owner
        if owner and caller and owner != caller:
            raise unknown_instance(self.group, self.name)

    def require_reading(self) -> None:
        """Raises `IllegalState` for one that reads nothing."""
        if not (self.what.is_subscribed or self.what.assigned):
            raise IllegalState(f"consumer instance {self.name} has not subscribed, nor is it assigned partitions")

    @property
    def owned(self) -> tuple[TopicPartitions, ...]:
        """The partitions that are assigned to the instance, by topic."""
        return grouped(self.positions.partitions)

    async def ask(self, kind: type[A], request: msgspec.Struct) -> A:
        """The coordinator's answer, of this kind."""
        return expect(kind, await self.home.ask(request, asyncio.get_running_loop().time() + ASK_S))

    # -- waiting ------------------------------------------------------------------------------------------------------

    @property
    def is_waiting(self) -> bool:
        """A read waits for records."""
        return self._waiter is not None

    async def changed(self, since: int) -> None:
        """Returns when there are more `changes` than these. One read at a time may wait."""
        if self.changes != since:
            return
        waiter = self._waiter = asyncio.get_running_loop().create_future()
        try:
            await waiter
        finally:
            if self._waiter is waiter:
                self._waiter = None

    def wake(self) -> None:
        """Has the read that waits look again."""
        self.changes += 1
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def leave(self, *, is_deleted: bool = False) -> None:
        """It is no more, or not here: whoever waits is told."""
        self.is_gone = True
        self.is_deleted = is_deleted
        self.wake()
