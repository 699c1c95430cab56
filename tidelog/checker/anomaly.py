"""Findings of the checker's rules."""

from __future__ import annotations

from typing import NamedTuple


class Anomaly(NamedTuple):
    """`kind` is a name of the table in `tidelog.checker.verdict`."""

    kind: str
    key: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.key}: {self.text}" if self.key else f"{self.kind}: {self.text}"
