"""The cases by their names, and what the brokers of each are set to beside the defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from tests.e2e.overload.crew import Crew
from tests.e2e.overload.crowds import POLL_SETTINGS, f86, f90, f91
from tests.e2e.overload.ground import Ground, Row
from tests.e2e.overload.large import f89
from tests.e2e.overload.mixture import mix
from tests.e2e.overload.outages import BALANCED_SETTINGS, f92
from tests.e2e.overload.rates import f85
from tests.e2e.overload.readers import f87
from tests.e2e.overload.shares import f88
from tidelog.testing import BrokerFailed, LocalCluster


class Case(NamedTuple):
    """A case names the function that plays it, and the settings of its brokers."""

    play: Callable[[Ground], None]
    settings: Mapping[str, str] = {}


CASES: Final = {
    "F85": Case(f85),
    "F86": Case(f86),
    "F87": Case(f87),
    "F88": Case(f88),
    "F89": Case(f89),
    "F90": Case(f90, POLL_SETTINGS),
    "F91": Case(f91),
    "F92": Case(f92, BALANCED_SETTINGS),
    "MIX": Case(mix),
}


def play(name: str, crew: Crew, directory: Path, *, seconds: float, scale: float) -> list[Row]:
    """Plays a case on a cluster of its own. Returns its rows; one of them says so if it did not come to its end."""
    case = CASES[name]
    rows: list[Row] = []
    try:
        with LocalCluster(3, settings=case.settings, data_dir=directory) as cluster:
            ground = Ground(name, cluster, crew, seconds=seconds, scale=scale)
            rows = ground.rows
            case.play(ground)
    except (BrokerFailed, OSError) as error:
        rows.append(Row(name, "played to its end", f"{type(error).__name__}: {error}", "yes", False, True))
    return rows
