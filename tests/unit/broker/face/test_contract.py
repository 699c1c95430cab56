"""The contract of the face names every room, so that a new one is out of a listener's reach from its first day."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[4]
LISTENERS = ["tidelog.broker.http", "tidelog.broker.kafka"]


def test_a_listener_may_import_nothing_of_the_broker_but_its_face() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (contract,) = [one for one in contracts if one["name"] == "A listener sees the broker's face"]
    rooms = [path.stem for path in sorted((ROOT / "tidelog/broker").iterdir()) if not path.name.startswith("__")]
    modules = [f"tidelog.broker.{room}" for room in rooms]
    assert contract["source_modules"] == LISTENERS
    assert contract["forbidden_modules"] == [
        name for name in modules if name not in (*LISTENERS, "tidelog.broker.face")
    ]
