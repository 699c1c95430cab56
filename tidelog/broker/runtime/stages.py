"""How long requests spend in which stage of their way: one histogram for each.

A stage is counted once per request, or per group of requests that go through it together; never per record.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.broker.runtime.histogram import Histogram


class Stages:
    """All stages, each named by its request and itself."""

    def __init__(self) -> None:
        self.produce_turn = Histogram()
        """Counts from when the request's head was there, and the one before it answered, to when it was looked at."""
        self.produce_queue = Histogram()
        """Counts the time in the partition's mailbox."""
        self.produce_append = Histogram()
        """Counts what it takes to judge and write what was taken from the mailbox together."""
        self.produce_flush = Histogram()
        """Counts from the write to when it is on this disk: one for each log in each round of fsyncs."""
        self.produce_replicate = Histogram()
        """Counts from the mailbox to the commit, with acks=all: so many replicas have it as must."""
        self.fetch_turn = Histogram()
        """Counts as `produce_turn`."""
        self.fetch_wait = Histogram()
        """Counts waits for data."""
        self.fetch_read = Histogram()
        """Counts reads of the log, here or at the leader."""
        self.fetch_send = Histogram()
        """Counts until the client has taken an answer, if that is too large to be left to the system."""

    def items(self) -> Iterator[tuple[tuple[str, str], Histogram]]:
        """Yields each histogram with its request and its stage."""
        for name, histogram in vars(self).items():
            request, _, stage = name.partition("_")
            yield (request, stage), histogram
