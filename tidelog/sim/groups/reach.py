"""The brokers as members of a classic group reach them: the interface that the member and the network are written
against."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from tidelog.broker.groups.classic_reach import ClassicGroups

T = TypeVar("T")


class Reach(Protocol):
    """The brokers of one run, one of which coordinates the group."""

    @property
    def leader(self) -> int:
        """Node id of the broker that leads the offsets partition in truth, whatever brokers and members know of it."""

    async def find(self, node_id: int) -> int:
        """Returns the node id of the group's coordinator, as brokers say; `node_id` if none says anything."""

    async def call(self, node_id: int, do: Callable[[ClassicGroups], Awaitable[T]], wait_s: float) -> T:
        """Calls the classic groups of a broker, which should answer within `wait_s` seconds. Raises what `do` raises,
        and `ConnectionLost` if the broker is dead, dies meanwhile, or does not answer."""
