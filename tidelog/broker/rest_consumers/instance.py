"""A REST consumer instance on the broker that keeps it: its settings, its positions, its lock and its waiting read."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final, TypeVar

import msgspec

from tidelog.broker.rest_consumers.groups import Coordinator, expect
from tidelog.broker.rest_consumers.positions import Positions
from tidelog.model.errors import CoordinatorNotAvailable, IllegalState, Overloaded, UnknownInstance
from tidelog.model.groups import JOIN, InstanceDescription, TopicPartitions, grouped, unknown_instance
from tidelog.model.ids import TopicId

A = TypeVar("A", bound=msgspec.Struct)

WAITING_MAX: Final = 16
"""Requests of one instance that may wait for its lock. A client that sends one request at a time has none waiting."""
ASK_S: Final = 5.0
"""Seconds to wait for the answer of the group coordinator, which is on the same broker."""


@dataclass(slots=True, eq=False)
class Instance:
    """A REST consumer instance in memory. Requests hold its lock (`async with instance`) one at a time; a read that
    waits for records releases it.

    An idle instance is only this object: it has no task, no timer and no fetch.
    """

    group: str
    name: str
    home: Coordinator
    """The group coordinator that keeps the instance. If the group gets another coordinator object, a new `Instance`
    is made from the instance's record.
    """
    description: InstanceDescription | None = None
    """The settings, subscription and assignment from the instance's record; None until the record has been read."""
    positions: Positions = field(default_factory=Positions)
    lives: dict[str, TopicId] = field(default_factory=dict)
    """Topic ids of the topics read, by name. A position is void if the topic was deleted and created again."""
    member_epoch: int = JOIN
    used_s: float = 0.0
    """Loop time of the last request for the instance."""
    spoken_s: float = 0.0
    """Loop time of the last heartbeat of the instance's group member."""
    is_dirty: bool = False
    """True if the group has changed since the instance's member sent its last heartbeat."""
    is_gone: bool = False
    """True once the instance was deleted, or its coordinator has moved to another broker."""
    is_deleted: bool = False
    turn: int = 0
    """Number of times that leaders were asked for records so far, which rotates the partition that is read first."""
    read: str = ""
    """Attempt id of the latest read; a waiting read with another attempt id ends."""
    changes: int = 0
    """Number of wake-ups of the waiting read so far; after each, it asks the leaders for records again."""
    _lock: asyncio.Lock | None = field(default=None, init=False)
    _waiting: int = field(default=0, init=False)
    _waiter: asyncio.Future[None] | None = field(default=None, init=False)

    async def __aenter__(self) -> None:
        """Acquires the instance's lock. Raises `Overloaded` if `WAITING_MAX` requests wait for it; `UnknownInstance` if
        the instance was deleted; `CoordinatorNotAvailable` if another broker keeps it by now.
        """
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
        """Raises `UnknownInstance` if the instance was deleted, or `CoordinatorNotAvailable` if another broker keeps it
        by now.
        """
        if self.is_deleted:
            raise UnknownInstance(f"consumer instance {self.name} of group {self.group} was deleted")
        if self.is_gone:
            raise CoordinatorNotAvailable(f"consumer instance {self.name} lives on another broker by now; try again")

    @property
    def what(self) -> InstanceDescription:
        """The instance's settings, subscription and assignment. Its record must have been read before."""
        assert self.description is not None, "it was read before it is used"
        return self.description

    def require_owner(self, caller: str) -> None:
        """Raises `UnknownInstance`, worded as for an instance that does not exist, if the instance belongs to another
        principal.
        """
        owner = "" if self.description is None else self.description.settings.owner
        if owner and caller and owner != caller:
            raise unknown_instance(self.group, self.name)

    def require_reading(self) -> None:
        """Raises `IllegalState` unless the instance has subscribed or is assigned partitions."""
        if not (self.what.is_subscribed or self.what.assigned):
            raise IllegalState(f"consumer instance {self.name} has not subscribed, nor is it assigned partitions")

    @property
    def owned(self) -> tuple[TopicPartitions, ...]:
        """The partitions that are assigned to the instance, by topic."""
        return grouped(self.positions.partitions)

    async def ask(self, kind: type[A], request: msgspec.Struct) -> A:
        """Returns the group coordinator's answer to `request`. Raises the coordinator's error; `InternalError` if the
        answer is not of type `kind`.
        """
        return expect(kind, await self.home.ask(request, asyncio.get_running_loop().time() + ASK_S))

    # -- waiting ------------------------------------------------------------------------------------------------------

    @property
    def is_waiting(self) -> bool:
        """True while a read of this instance waits for records."""
        return self._waiter is not None

    async def changed(self, since: int) -> None:
        """Waits until the attribute `changes` differs from `since`. Only one read at a time may wait."""
        if self.changes != since:
            return
        waiter = self._waiter = asyncio.get_running_loop().create_future()
        try:
            await waiter
        finally:
            if self._waiter is waiter:
                self._waiter = None

    def wake(self) -> None:
        """Wakes the waiting read, so that it asks the leaders for records again."""
        self.changes += 1
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def leave(self, *, is_deleted: bool = False) -> None:
        """Marks the instance as deleted, or as kept by another broker, and wakes the waiting read."""
        self.is_gone = True
        self.is_deleted = is_deleted
        self.wake()
