"""The report of opening a log: damage found, corrections made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tidelog.storage.segment import Damage


@dataclass(slots=True)
class LoadReport:
    """The findings of opening a log. `findings` are sentences for the operator; none if nothing was wrong."""

    findings: list[str] = field(default_factory=list)
    rows_rewritten: int = 0
    bytes_cut: int = 0
    rows_cut: int = 0
    damage: list[Damage] = field(default_factory=list)
    """Damage that opening found. Sealed segments in order are not read; `verify` finds what is damaged in them."""
    high_watermark: int = 0
    """The high watermark as last checkpointed on this disk; 0 if the checkpoint is lost, which does not mean that
    nothing was committed."""

    def say(self, finding: str) -> None:
        self.findings.append(finding)


class Corrections:
    """Changes that opening makes on the disk. If the disk refuses one, the log can be read, but not written."""

    def __init__(self) -> None:
        self.are_made = False
        self.error: OSError | None = None

    def attempt(self, change: Callable[[], object]) -> None:
        """Makes a change; if it fails, remembers the first `OSError` in `error`."""
        self.are_made = True
        try:
            change()
        except OSError as error:
            # The first error is the one to tell: those behind it mostly follow from it.
            self.error = self.error or error
