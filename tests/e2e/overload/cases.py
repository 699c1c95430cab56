"""The cases by their names, and what the brokers of each are set to beside the defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from tests.e2e.overload.crew import Crew
from tests.e2e.overload.ground import Ground, Row
from tests.e2e.overload.large import f89
from tests.e2e.overload.rates import f85
from tidelog.testing import LocalCluster


class Case(NamedTuple):
    """What is played, on brokers with which settings."""

    play: Callable[[Ground], None]
    settings: Mapping[str, str] = {}


CASES: Final = {
    "F85": Case(f85),
    "F89": Case(f89),
}


def play(name: str, crew: Crew, directory: Path, *, seconds: float, scale: float) -> list[Row]:
    """Plays a case on a cluster of its own. Raises `BrokerFailed` or `OSError` if it cannot be played to its end."""
    case = CASES[name]
    with LocalCluster(3, settings=case.settings, data_dir=directory) as cluster:
        ground = Ground(name, cluster, crew, seconds=seconds, scale=scale)
        case.play(ground)
        return ground.rows
