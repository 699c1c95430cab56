"""The interface of the consumer group coordinators (`broker.groups`) that REST consumers use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from tidelog.broker.partitions.led_partition import LedPartition
from tidelog.model.errors import InternalError
from tidelog.model.groups import Heartbeat

A = TypeVar("A", bound=msgspec.Struct)


class Coordinator(Protocol):
    """The coordinator of one partition of `__consumer_offsets` on this broker, for one term of leadership."""

    on_changed: list[Callable[[str], None]]

    @property
    def partition(self) -> LedPartition:
        """The partition of `__consumer_offsets` with the records of the coordinator's groups."""

    async def ask(self, request: Any, deadline_s: float) -> Any:
        """Returns the coordinator's answer to a group request, by `deadline_s` (loop time). Raises `NotLeader` once its
        leadership has ended.
        """

    def has_news(self, request: Heartbeat) -> bool:
        """Returns True if the answer to this heartbeat may bring the member a new epoch, a new assignment or an
        error.
        """


class Groups(Protocol):
    """The coordinators of all consumer groups, implemented by `broker.groups`."""

    @property
    def loaded(self) -> Sequence[Coordinator]:
        """The coordinators on this broker that have loaded their partition and answer requests."""

    @property
    def is_founded(self) -> bool:
        """True once the topic `__consumer_offsets` exists. Before that there are no groups and no coordinators."""

    async def found(self, deadline_s: float) -> None:
        """Creates `__consumer_offsets` if it does not exist, by `deadline_s` (loop time). Raises
        `CoordinatorNotAvailable`.
        """

    def coordinator_node(self, group: str) -> int:
        """Returns the node id of the broker that coordinates a group. Raises `CoordinatorNotAvailable`."""

    def local(self, group: str) -> Coordinator | None:
        """Returns the coordinator of a group if it is on this broker, else None."""


def expect(kind: type[A], answer: object) -> A:
    """Returns `answer`, which a group coordinator gave. Raises `InternalError` if it is not of type `kind`."""
    if not isinstance(answer, kind):
        raise InternalError(f"a coordinator answered with {type(answer).__name__} instead of {kind.__name__}")
    return answer


def names(partitions: Iterable[tuple[str, int]]) -> str:
    """Formats at most five partitions for an error message, as `topic-0, topic-1 and 3 more`."""
    listed = [f"{topic}-{number}" for topic, number in partitions]
    return ", ".join(listed[:5]) + (f" and {len(listed) - 5} more" if len(listed) > 5 else "")
