"""A `Slot`: the place of one answer among those of its connection, which go out in the order of their requests."""

from __future__ import annotations

from tidelog.broker.kafka.call import Answer, Call
from tidelog.broker.kafka.metrics import CallStats
from tidelog.broker.kafka.produce import Production


class Slot:
    """The place of a request's answer."""

    __slots__ = ("answer", "call", "has_error", "is_done", "production", "record_bytes", "size", "stats")

    def __init__(self, call: Call, size: int, stats: CallStats) -> None:
        self.call = call
        self.stats = stats
        self.size = size
        """The memory that is taken for it."""
        self.production: Production | None = None
        self.answer: Answer | None = None
        """None if nothing is to be said."""
        self.record_bytes = 0
        """The size of the records in the answer."""
        self.is_done = self.has_error = False
