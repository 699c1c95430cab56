"""The consumer's policy for lost records that an operator has given up: `on_loss`.

With `fail` an error is raised before any record behind them is returned, so that no program misses records without its
consent. With `skip` they are skipped, logged once per range, and listed.
"""

from __future__ import annotations

import logging

from tidelog.model.errors import RecordsLost
from tidelog.model.ids import TopicPartition
from tidelog.model.lost_ranges import LostRange

logger = logging.getLogger(__name__)


class LossPolicy:
    """The `on_loss` policy of one consumer for all its partitions, and the ranges that it has skipped."""

    def __init__(self, *, skips: bool) -> None:
        self._skips = skips
        self._starts: dict[tuple[TopicPartition, int], int] = {}
        """The start of each skipped range, by partition and end; the cluster bounds their number."""

    def meet(self, partition: TopicPartition, lost: LostRange) -> None:
        """Handles a lost range that the position has reached. Raises `RecordsLost` unless the policy is to skip."""
        if not self._skips:
            raise RecordsLost(
                f"{partition}: the records at offsets {lost} are lost, and that was accepted; seek to {lost.end} to go "
                'on behind them, or read with on_loss="skip"',
                *partition,
                (lost,),
            )
        known_start = self._starts.get((partition, lost.end))
        if known_start is None:
            logger.warning("%s: skipping the records at offsets %s, which are lost (on_loss is skip)", partition, lost)
        self._starts[partition, lost.end] = lost.start if known_start is None else min(known_start, lost.start)

    def skipped(self) -> dict[TopicPartition, list[LostRange]]:
        """Returns the skipped ranges by partition, sorted."""
        ranges: dict[TopicPartition, list[LostRange]] = {}
        for (partition, end), start in sorted(self._starts.items()):
            ranges.setdefault(partition, []).append(LostRange(start, end))
        return ranges
