"""The progress of a job, on standard error: a line that is overwritten on a terminal, a new line every 10 s
elsewhere."""

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
    """Shows no progress."""


class Line:
    """A progress line on standard error."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._shown_s = 0.0

    def __call__(self, text: str) -> None:
        """Shows a text: at once on a terminal, else if `LINE_S` seconds have passed since the last one; otherwise drops
        it."""
        if self._is_terminal:
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
        elif time.monotonic() >= self._shown_s + LINE_S:
            self._shown_s = time.monotonic()
            print(text, file=sys.stderr, flush=True)

    def end(self) -> None:
        """Clears the line on a terminal, for output that follows."""
        if self._is_terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def follow(query: StreamingQuery, what: str, tell: Tell) -> int:
    """Waits for a streaming query that ends by itself; returns how many records it read. Raises the error that the
    query failed with."""
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
    """Shows the number of finished tasks of Spark's active stages, until the context ends."""
    is_over = threading.Event()
    tracker = spark.sparkContext.statusTracker()

    def watch() -> None:
        while not is_over.wait(POLL_S):
            stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
            active = [stage for stage in stages if stage is not None]
            if active:
                done, tasks = sum(stage.numCompletedTasks for stage in active), sum(stage.numTasks for stage in active)
                tell(f"{what}: {done} of {tasks} tasks")

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
