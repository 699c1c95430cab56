"""A parcel: what one partition sends in one try, and the outcome of that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tidelog.model.errors import TidelogError
from tidelog.model.ids import TopicPartition
from tidelog.producer.accumulator import BatchReceipt


class Outcome(NamedTuple):
    """The outcome of a try: the receipts of its batches, or an error."""

    receipts: Sequence[BatchReceipt] = ()
    error: TidelogError | None = None
    retry_after_s: float = 0.0
    is_own: bool = False
    """True if the error is said of this partition, and not of the request that carried it with others."""


STRAY: Final = Outcome()
"""The broker does not lead the partition, or takes no frames: nothing was appended, and it goes over HTTP."""

Load = Callable[[], Sequence[bytearray]]
"""Gives the encoded batches of a parcel that departs; none if there is nothing to send any more."""


@dataclass(slots=True, eq=False)
class Parcel:
    """Encoded batches of one partition on their way, once. They are loaded as late as they can be."""

    partition: TopicPartition
    load: Load
    deadline_s: float
    travels_alone: bool
    outcome: asyncio.Future[Outcome]
    batches: Sequence[bytearray] = ()
    size: int = 0
    is_sent: bool = False
    timer: asyncio.TimerHandle | None = None
    """Ends its waiting in the lane at its deadline."""

    def is_loaded(self) -> bool:
        """Loads the batches, if they are not loaded. Returns False if there are none, or loading fails: the parcel has
        its outcome then."""
        if not self.batches:
            try:
                self.batches = self.load()
            except Exception as error:  # noqa: BLE001 - the sender's to judge; the others in the lane go on
                self.outcome.set_exception(error)
                return False
            self.size = sum(map(len, self.batches))
            if not self.batches:
                self.settle(Outcome())
        return bool(self.batches)

    def settle(self, outcome: Outcome) -> None:
        """Tells who waits, if anybody still does."""
        if not self.outcome.done():
            self.outcome.set_result(outcome)
