"""How far a job is, on standard error: a line that is written over on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

Tell = Callable[[str], None]
POLL_S = 0.5
QUERY_POLL_S = 1
LINE_S = 10.0


def quiet(text: str) -> None:
    """Tells nobody."""


class Line:
    """Tells standard error."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._told_s = 0.0

    def __call__(self, text: str) -> None:
        """Says how far it is, if it is time to."""
        if self._is_terminal:
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
        elif time.monotonic() >= self._told_s + LINE_S:
            self._told_s = time.monotonic()
            print(text, file=sys.stderr, flush=True)

    def end(self) -> None:
        """Leaves the line to what comes next."""
        if self._is_terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def follow(query: StreamingQuery, what: str, tell: Tell) -> int:
    """Waits for a query that ends by itself; how many records it read. Raises what it failed with."""
    seen: dict[int, int] = {}
    is_over = False
    while not is_over:
        is_over = bool(query.awaitTermination(QUERY_POLL_S))
        for progress in query.recentProgress:
            seen[progress.batchId] = progress.numInputRows
        tell(f"{what}: {sum(seen.values()):,} records in {len(seen)} batches")
    return sum(seen.values())


@contextmanager
def watched(spark: SparkSession, what: str, tell: Tell) -> Iterator[None]:
    """Tells of the tasks of whatever Spark does meanwhile."""
    is_over = threading.Event()
    tracker = spark.sparkContext.statusTracker()

    def watch() -> None:
        while not is_over.wait(POLL_S):
            stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
            known = [stage for stage in stages if stage is not None]
            if known:
                done, tasks = sum(one.numCompletedTasks for one in known), sum(one.numTasks for one in known)
                tell(f"{what}: {done} of {tasks} tasks")

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
