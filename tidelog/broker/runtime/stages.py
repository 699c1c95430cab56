"""Durations of the stages of produce and fetch requests: one histogram for each stage.

A stage is counted once per request, or per group of requests that go through it together; never per record.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.broker.runtime.histogram import Histogram


class Stages:
    """The histograms of all stages, named by request and stage."""

    def __init__(self) -> None:
        self.produce_turn = Histogram()
        """Time from when the request's head has been received, and the request before it on the connection has been
        answered, until the request is handled."""
        self.produce_queue = Histogram()
        """Time that a produce request waits in the partition's queue."""
        self.produce_append = Histogram()
        """Time to check and write the requests that were taken from the queue together."""
        self.produce_flush = Histogram()
        """Time from the write until it is on this disk: counted once for each log in each round of fsyncs."""
        self.produce_replicate = Histogram()
        """Time from the queue to the commit, with acks=all: until enough replicas have the batches."""
        self.fetch_turn = Histogram()
        """Time from when the request's head has been received, and the request before it on the connection has been
        answered, until the request is handled."""
        self.fetch_wait = Histogram()
        """Time that a fetch waits for data."""
        self.fetch_read = Histogram()
        """Time to read the log, on this broker or at the leader."""
        self.fetch_send = Histogram()
        """Time until the client has taken an answer that does not fit the socket's buffer at once."""

    def items(self) -> Iterator[tuple[tuple[str, str], Histogram]]:
        """Yields each histogram with its request and its stage."""
        for name, histogram in vars(self).items():
            request, _, stage = name.partition("_")
            yield (request, stage), histogram
