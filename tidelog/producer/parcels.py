"""`Parcel`: what one partition sends in one attempt, and the `Outcome` of the attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tidelog.model.errors import TidelogError
from tidelog.model.ids import TopicPartition
from tidelog.producer.accumulator import BatchReceipt


class Outcome(NamedTuple):
    """The result of an attempt: the receipts of its batches, or an error."""

    receipts: Sequence[BatchReceipt] = ()
    error: TidelogError | None = None
    retry_after_s: float = 0.0
    is_own: bool = False
    """True if the error is about this partition, and not about the whole request."""


STRAY: Final = Outcome()
"""The outcome of a parcel that was not appended because the broker is not the leader or has no usable Kafka listener;
it is sent again over HTTP."""

Load = Callable[[], Sequence[bytearray]]
"""A function that returns the encoded batches of a parcel when it is sent; an empty list if there is nothing to send
any more."""


@dataclass(slots=True, eq=False)
class Parcel:
    """The encoded batches of one partition for one attempt, loaded as late as possible."""

    partition: TopicPartition
    load: Load
    deadline_s: float
    travels_alone: bool
    outcome: asyncio.Future[Outcome]
    batches: Sequence[bytearray] = ()
    size: int = 0
    is_sent: bool = False
    timer: asyncio.TimerHandle | None = None
    """The timer that ends the parcel's wait at its deadline."""

    def is_loaded(self) -> bool:
        """Calls `load` for the encoded batches, unless they are there already. Returns False if there are none or
        `load` raises: the parcel then has its outcome and is not sent."""
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
        """Sets the outcome, unless the waiting sender was cancelled."""
        if not self.outcome.done():
            self.outcome.set_result(outcome)
