"""Batches of runs, one run per seed, and the sum of their outcomes.

Seeds are independent of each other, so runs may be spread over processes; outcomes are gathered in the order of the
seeds, so the sum does not depend on how they were spread.
"""

from __future__ import annotations

import concurrent.futures  # determinism: seeds are independent, and results are gathered in their order
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, Protocol, TypedDict, TypeVar

CHUNK_SEEDS = 100
COUNTED_FROM_RUNS = 5_000
"""Runs from which on a batch must reach each event of its `sometimes`; in fewer, rare events may well not happen."""

T = TypeVar("T")
D = TypeVar("D")


class Outcome(Protocol):
    """The part of a run's outcome that a batch uses."""

    @property
    def seed(self) -> int: ...

    @property
    def counters(self) -> Counter[str]:
        """The number of times that each event happened."""

    @property
    def amount(self) -> int:
        """Amount of work in the run, in the simulator's own unit: events, or batches committed."""

    @property
    def failure(self) -> Exception | None: ...


R = TypeVar("R", bound=Outcome)


@dataclass(slots=True)
class Batch(Generic[R]):
    """The sum of the outcomes of many runs."""

    sometimes: Sequence[str] = ()
    """Names of events that must happen now and then; without them the runs have become too tame."""
    runs: int = 0
    amount: int = 0
    counters: Counter[str] = field(default_factory=Counter)
    failures: list[R] = field(default_factory=list)

    @property
    def never_happened(self) -> list[str]:
        """Events of `sometimes` that did not happen; empty if the batch is too small to tell."""
        return [name for name in self.sometimes if not self.counters[name]] if self.runs >= COUNTED_FROM_RUNS else []

    @property
    def is_good(self) -> bool:
        return not self.failures and not self.never_happened

    def add(self, outcome: R) -> None:
        self.runs += 1
        self.amount += outcome.amount
        self.counters.update(outcome.counters)
        if outcome.failure is not None:
            self.failures.append(outcome)

    def merge(self, batch: Batch[R]) -> None:
        self.runs += batch.runs
        self.amount += batch.amount
        self.counters.update(batch.counters)
        self.failures += batch.failures


Progress = Callable[[Batch[R], int], None]
"""Function that reports progress, given the batch so far and the number of runs to come in total."""


class How(TypedDict, Generic[R], total=False):
    """The way in which `run_seeds` runs a batch."""

    failures_max: int
    jobs: int
    progress: Progress[R] | None


def run_seeds(
    run: Callable[[int], R],
    first: int,
    count: int,
    *,
    sometimes: Sequence[str] = (),
    failures_max: int = 1,
    jobs: int = 1,
    progress: Progress[R] | None = None,
) -> Batch[R]:
    """Runs these seeds on `jobs` processes until `failures_max` runs have failed; `progress` is called after each
    chunk.

    The chunk with the last of these failures may bring a few more. With more than one process, `run` and its outcome
    have to be picklable.
    """
    batch = Batch[R](sometimes)
    chunks = [range(seed, min(seed + CHUNK_SEEDS, first + count)) for seed in range(first, first + count, CHUNK_SEEDS)]
    with closing(spread(partial(_run_chunk, run, failures_max), chunks, jobs)) as done:
        for part in done:
            batch.merge(part)
            if progress is not None:
                progress(batch, count)
            if len(batch.failures) >= failures_max:
                break
    return batch


def _run_chunk(run: Callable[[int], R], failures_max: int, seeds: range) -> Batch[R]:
    batch = Batch[R]()
    for seed in seeds:
        batch.add(run(seed))
        if len(batch.failures) >= failures_max:
            break
    return batch


def spread(work: Callable[[T], D], items: Iterable[T], jobs: int, *, chunk_items: int = 1) -> Generator[D, None, None]:
    """Yields the result of `work` for each item, in the order of the items, computed on `jobs` processes. Closing the
    generator cancels the remaining items."""
    if jobs <= 1:
        yield from map(work, items)
        return
    pool = concurrent.futures.ProcessPoolExecutor(jobs)
    try:
        yield from pool.map(work, items, chunksize=chunk_items)
    finally:
        pool.shutdown(cancel_futures=True)
