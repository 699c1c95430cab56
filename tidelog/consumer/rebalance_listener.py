"""The callbacks of a program whose partitions change hands."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from inspect import isawaitable

from tidelog.model.ids import TopicPartition


class ConsumerRebalanceListener:
    """Told of every change of the assignment, inside the consumer's calls, before the next record is handed out.

    Override what you need; each method may be plain or `async`. Only what changes is named: partitions that stay are
    never taken away in between. A partition is read by nobody else before `on_partitions_revoked` has returned, for as
    long as that stays within `max_poll_interval_ms`. What a method raises comes out of the call that it runs in.
    """

    def on_partitions_assigned(self, assigned: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """Tells of partitions that are read from now on; their positions are set, and may be changed by `seek`."""

    def on_partitions_revoked(self, revoked: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """Tells of partitions that are about to be given up; all that was handed out of them has been asked beyond, and
        can be committed here."""

    def on_partitions_lost(self, lost: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """Tells of partitions that are another consumer's already: nothing of them can be committed any more.

        As in Kafka, this calls `on_partitions_revoked` unless it is overridden; a `commit` there then fails.
        """
        return self.on_partitions_revoked(lost)


async def told(method: Callable[[Sequence[TopicPartition]], object], partitions: Sequence[TopicPartition]) -> None:
    """Calls a listener's method, unless there is nothing to tell, and waits for it if it is `async`."""
    if partitions:
        result = method(partitions)
        if isawaitable(result):
            await result
