"""The part of `broker.groups` that REST consumers use: the coordinators here, and the addresses of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from tidelog.broker.partitions.led_partition import LedPartition
from tidelog.model.errors import InternalError
from tidelog.model.groups import Heartbeat

A = TypeVar("A", bound=msgspec.Struct)


class Coordinator(Protocol):
    """The coordinator of some groups, on this broker, for one leadership."""

    on_changed: list[Callable[[str], None]]

    @property
    def partition(self) -> LedPartition:
        """The partition of `__consumer_offsets` that keeps the coordinator's groups."""
        ...

    async def ask(self, request: Any, deadline_s: float) -> Any:
        """Returns the coordinator's answer, by `deadline_s` (loop time). Raises `NotLeader` once its leadership has
        ended.
        """
        ...

    def has_news(self, request: Heartbeat) -> bool:
        """Whether a heartbeat would tell the member something."""
        ...


class Groups(Protocol):
    """The coordinators of all groups: `broker.groups`."""

    @property
    def loaded(self) -> Sequence[Coordinator]:
        """The coordinators on this broker that answer."""
        ...

    @property
    def is_founded(self) -> bool:
        """False as long as nobody has had anything to keep: there is no group, and no coordinator."""
        ...

    async def found(self, deadline_s: float) -> None:
        """Has it founded, if it is not, by `deadline_s` (loop time). Raises `CoordinatorNotAvailable`."""
        ...

    def coordinator_node(self, group: str) -> int:
        """Raises `CoordinatorNotAvailable`."""
        ...

    def local(self, group: str) -> Coordinator | None:
        """The coordinator of a group, if it is here."""
        ...


def expect(kind: type[A], answer: object) -> A:
    """The answer, which has to be of this kind."""
    if not isinstance(answer, kind):
        raise InternalError(f"a coordinator answered with {type(answer).__name__} instead of {kind.__name__}")
    return answer


def names(partitions: Iterable[tuple[str, int]]) -> str:
    """Partitions for a message; a few of them."""
    listed = [f"{topic}-{number}" for topic, number in partitions]
    return ", ".join(listed[:5]) + (f" and {len(listed) - 5} more" if len(listed) > 5 else "")
