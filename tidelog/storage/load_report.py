"""The report of opening a log: damage found, corrections made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tidelog.storage.segment import Damage


@dataclass(slots=True)
class LoadReport:
    """The findings of opening a log. `findings` are sentences for the operator; none means that nothing was wrong."""

    findings: list[str] = field(default_factory=list)
    rows_rewritten: int = 0
    bytes_cut: int = 0
    rows_cut: int = 0
    damage: list[Damage] = field(default_factory=list)
    """Damage that was met on the way. Segments in order are not read; `verify` finds what is in them."""
    high_watermark: int = 0
    """The high watermark as last checkpointed on this disk. 0 if that is lost, too, which says nothing about what was
    committed."""

    def say(self, finding: str) -> None:
        self.findings.append(finding)


class Corrections:
    """Changes that opening makes on the disk. One that the disk refuses costs the log its right to be written, not the
    data its readers."""

    def __init__(self) -> None:
        self.are_made = False
        self.error: OSError | None = None

    def attempt(self, change: Callable[[], object]) -> None:
        """Makes a change, or notes why it could not be made."""
        self.are_made = True
        try:
            change()
        except OSError as error:
            # The first error is the one to tell: those behind it mostly follow from it.
            self.error = self.error or error
