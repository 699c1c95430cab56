"""Batches appended with `acks=all` that wait for the high watermark: Kafka's produce purgatory, for one partition."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from tidelog.broker.partitions.proposals import Proposal
from tidelog.model.errors import TimedOutAfterAppend


class Uncommitted:
    """Proposals by the offset that the high watermark must reach. A repeat may wait for less than what came before."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, Proposal]] = []
        self._arrivals = 0

    def add(self, proposal: Proposal) -> None:
        """Has a proposal wait for the high watermark to reach `committed_at`; a repeat's batch was appended before."""
        self._arrivals += 1
        # The count of arrivals keeps equal offsets in their order, and proposals from being compared.
        heapq.heappush(self._waiting, (proposal.committed_at, self._arrivals, proposal))

    def take_below(self, high_watermark: int) -> Iterator[Proposal]:
        """Yields the proposals that are committed now, in the order of their offsets."""
        while self._waiting and self._waiting[0][0] <= high_watermark:
            yield heapq.heappop(self._waiting)[2]

    def fail(self, reason: str) -> None:
        """Fails all proposals that wait with `TimedOutAfterAppend`: their outcome will not be known here."""
        unknown = TimedOutAfterAppend(f"appended, but {reason}: the outcome is unknown")
        while self._waiting:
            heapq.heappop(self._waiting)[2].fail(unknown)
