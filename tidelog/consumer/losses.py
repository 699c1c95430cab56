"""The conduct of a consumer where records are lost, and an operator has accepted that: `on_loss`.

It fails before it hands out anything that lies behind them, so that no program misses records without having said that
it may; or it skips them, says so in the log, once for each range, and remembers it for whoever asks.
"""

from __future__ import annotations

import logging

from tidelog.model.errors import RecordsLost
from tidelog.model.ids import TopicPartition
from tidelog.model.lost_ranges import LostRange

logger = logging.getLogger(__name__)


class LossPolicy:
    """The rule of one consumer, for all its partitions, and what it has skipped."""

    def __init__(self, *, skips: bool) -> None:
        self._skips = skips
        self._starts: dict[tuple[TopicPartition, int], int] = {}
        """The start of each skipped range, by partition and end; the cluster bounds how many there are."""

    def meet(self, partition: TopicPartition, lost: LostRange) -> None:
        """Passes a range whose records are lost, when everything before it has been handed out. Raises `RecordsLost`
        unless it is to be skipped."""
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
        """Returns the ranges that were skipped, sorted, by partition."""
        ranges: dict[TopicPartition, list[LostRange]] = {}
        for (partition, end), start in sorted(self._starts.items()):
            ranges.setdefault(partition, []).append(LostRange(start, end))
        return ranges
