"""Rounds: the cases of a series in order, cut into pieces that each use one cluster, or one process.

A round is a function of its plan, its damage, its number and the partitions of a cluster, so each can be run again
alone, and rounds may be spread over processes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from structlog.testing import capture_logs

from tidelog.sim.kit import loop
from tidelog.sim.kit.batches import spread
from tidelog.sim.kit.collection import no_collection
from tidelog.sim.kit.seeds import stream
from tidelog.sim.sweep import metadata, partitions
from tidelog.sim.sweep.cases import Case, Damage, Plan, Protocol, Variant, Where, draw_patterns
from tidelog.sim.sweep.verdicts import Result

Written = partitions.Written | metadata.Written


@dataclass(frozen=True, slots=True)
class Series:
    """All patterns, or `patterns` drawn ones, with one plan and one kind of damage."""

    plan: Plan
    damage: Damage
    where: Where = Where.BOTH
    patterns: int | None = None
    size: int = 128
    """Number of cases in a round."""

    @property
    def name(self) -> str:
        """Name of the series for output, without its numbers."""
        return f"{self.plan.protocol} {self.plan.stop} {self.damage} {self.plan.variant}"

    def cases(self) -> list[Case]:
        """Returns the cases of the series in order."""
        plan = self.plan
        rng = stream(plan.seed, f"cases {plan}")
        has_wiped = plan.variant is Variant.DIRECTORY or (
            plan.variant is Variant.DISK and plan.protocol is Protocol.METADATA
        )
        return [
            Case(pattern, self.damage, self.where, rng.choice(plan.nodes) if has_wiped else 0)
            for pattern in draw_patterns(plan.variant, self.patterns, rng)
        ]


class Round(NamedTuple):
    """Some cases of a series. `seed` determines everything that is drawn for them."""

    number: int
    cases: list[Case]
    seed: str


class Played(NamedTuple):
    """Outcome of a round; `errors` are unexpected ones. A round that fails itself has no results."""

    series: Series
    number: int
    results: list[Result]
    errors: list[str]


def rounds_of(series: Series) -> list[Round]:
    """Returns all rounds of a series."""
    cases = series.cases()
    begins = range(0, len(cases), series.size)
    return [
        Round(number, cases[begin : begin + series.size], f"{series.plan}/{series.damage}/{series.where}/{number}")
        for number, begin in enumerate(begins)
    ]


def write(plan: Plan, size: int) -> Written:
    """Writes the logs that all rounds of a plan begin with."""
    with capture_logs():
        if plan.protocol is Protocol.METADATA:
            return loop.run(partial(metadata.write, plan), f"{plan}")
        return loop.run(partial(partitions.write, plan, size), f"{plan}")


def play(written: Written, series: Series, sweep_round: Round) -> Played:
    """Runs a round."""
    with capture_logs() as logs, no_collection():
        try:
            results, broken = _play_cases(written, sweep_round), []
        except Exception as error:  # noqa: BLE001 - whatever broke one round is told, and the other rounds are played
            results, broken = [], [f"the round broke: {type(error).__name__}: {error}"]
    return Played(series, sweep_round.number, results, [*broken, *_unforeseen(logs)])


def _play_cases(written: Written, sweep_round: Round) -> list[Result]:
    if isinstance(written, partitions.Written):
        return loop.run(partial(partitions.play, written, sweep_round.cases, sweep_round.seed), sweep_round.seed)
    seeds = [f"{sweep_round.seed}/{number}" for number in range(len(sweep_round.cases))]
    return [
        loop.run(partial(metadata.play, written, case, seed), seed)
        for case, seed in zip(sweep_round.cases, seeds, strict=True)
    ]


def _unforeseen(logs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yields the unexpected errors that brokers' tasks died of, by their log lines."""
    for entry in logs:
        if isinstance(error := entry.get("exc_info"), Exception) and entry.get("task"):
            yield f"{entry.get('event')}: {entry['task']}: {type(error).__name__}: {error}"


def play_all(many: Sequence[Series], jobs: int, only: int | None = None) -> Iterator[Played]:
    """Runs the rounds of all series, on `jobs` processes; of each series only the round numbered `only`, if that is
    given.

    Successive series with the same plan and size share the written logs.
    """
    key, written = None, None
    for series in many:
        if key != (series.plan, series.size) or written is None:
            key, written = (series.plan, series.size), write(series.plan, series.size)
        rounds = [sweep_round for sweep_round in rounds_of(series) if only in (None, sweep_round.number)]
        yield from spread(partial(play, written, series), rounds, jobs)
