"""Peers: what one broker does beside a real Kafka, from the last line of bench/history.ndjson that `make bench-kafka`
has written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

HISTORY: Final = Path(__file__).parents[2] / "bench" / "history.ndjson"
WORKLOAD: Final = "kafka clients"
FLUSHED: Final = re.compile(r"(tidelog|Kafka [\d.]+) (?:fsynced|flushed), (.+)")
"""A site that has each batch on disk before it is acknowledged, and what was measured there."""
WORK: Final = {
    "in, acks=1, 100 B": "in, acks=1, 100 B",
    "in, acks=all, idempotent, 100 B": "in, acks=all, 100 B",
    "out, 100 B": "out, 100 B",
    "in, acks=1, 1000 B": "in, acks=1, 1 KB",
    "in, acks=all, idempotent, 1000 B": "in, acks=all, 1 KB",
    "out, 1000 B": "out, 1 KB",
}
RATE: Final = "records/s"
PROCESSOR: Final = "broker CPU s per million"

Figures = Mapping[str, float]


def sites(history: str) -> dict[str, Figures]:
    """Returns the figures of tidelog and of Kafka, by their names: of the last line that has both. Raises
    `LookupError`."""
    for line in reversed(history.splitlines()):
        entry = json.loads(line)
        by_site = _flushed(entry["figures"]) if entry["workload"] == WORKLOAD else {}
        if len(by_site) > 1:
            return by_site
    raise LookupError("no line has figures of a real Kafka; `make bench-kafka HISTORY=bench/history.ndjson` adds one")


def _flushed(figures: Figures) -> dict[str, Figures]:
    """Returns the figures of each site that flushes, without the site in their names."""
    by_site: dict[str, dict[str, float]] = {}
    for name, value in figures.items():
        if match := FLUSHED.fullmatch(name):
            by_site.setdefault(match[1], {})[match[2]] = value
    return dict(sorted(by_site.items(), reverse=True))
