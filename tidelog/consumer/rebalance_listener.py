"""Callbacks of a program for changes of its consumer's assignment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from inspect import isawaitable

from tidelog.model.ids import TopicPartition


class ConsumerRebalanceListener:
    """A listener for changes of the assignment, called inside the consumer's calls before the next record is returned.

    Override the methods that you need; each may be plain or `async`. Only changed partitions are passed: unchanged ones
    are never revoked in between. No other consumer reads a revoked partition before `on_partitions_revoked` has
    returned, within `max_poll_interval_ms`. Exceptions are raised by the consumer's call.
    """

    def on_partitions_assigned(self, assigned: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """Called with newly assigned partitions; their positions are set, and may be changed by `seek`."""

    def on_partitions_revoked(self, revoked: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """Called with partitions that are about to be given up. All their returned records are processed, and their
        offsets can be committed here."""

    def on_partitions_lost(self, lost: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """Called with partitions that were lost to another consumer: their offsets can no longer be committed.

        As in Kafka, this calls `on_partitions_revoked` unless it is overridden; a `commit` there then fails.
        """
        return self.on_partitions_revoked(lost)


async def told(method: Callable[[Sequence[TopicPartition]], object], partitions: Sequence[TopicPartition]) -> None:
    """Calls a listener's method with partitions, unless there are none, and awaits it if it is `async`."""
    if partitions:
        result = method(partitions)
        if isawaitable(result):
            await result
