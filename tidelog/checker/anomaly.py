"""Anomalies that the checker's rules find."""

from __future__ import annotations

from typing import NamedTuple


class Anomaly(NamedTuple):
    """A violation found in a history: its kind (from the table in `tidelog.checker.verdict`), the partition, and a
    text."""

    kind: str
    key: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.key}: {self.text}" if self.key else f"{self.kind}: {self.text}"
