"""Batches appended with `acks=all` that wait for the high watermark: Kafka's produce purgatory, for one partition."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from tidelog.broker.partitions.proposals import Proposal
from tidelog.model.errors import TimedOutAfterAppend


class Uncommitted:
    """The waiting produce requests (proposals) by the offset that the high watermark must reach. A repeated batch may
    wait for a smaller offset than requests before it."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, Proposal]] = []
        self._arrivals = 0

    def add(self, proposal: Proposal) -> None:
        """Adds a proposal that waits for the high watermark to reach its `committed_at`, which is lower if its batch is
        a repeat."""
        self._arrivals += 1
        # The count of arrivals keeps equal offsets in their order, and proposals from being compared.
        heapq.heappush(self._waiting, (proposal.committed_at, self._arrivals, proposal))

    def take_below(self, high_watermark: int) -> Iterator[Proposal]:
        """Yields the proposals that are committed now, in the order of their offsets."""
        while self._waiting and self._waiting[0][0] <= high_watermark:
            yield heapq.heappop(self._waiting)[2]

    def fail(self, reason: str) -> None:
        """Fails all waiting proposals with `TimedOutAfterAppend`, because their outcome will not be known on this
        broker."""
        unknown = TimedOutAfterAppend(f"appended, but {reason}: the outcome is unknown")
        while self._waiting:
            heapq.heappop(self._waiting)[2].fail(unknown)
