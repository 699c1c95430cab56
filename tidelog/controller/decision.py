"""A decision: records that will be true once they are in the log, and the answer to the caller."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tidelog.controller.commands import CommandAnswer, Done
from tidelog.controller.records import MetadataRecord
from tidelog.model.cluster import ClusterImage, Voter


def _done(image: ClusterImage) -> CommandAnswer:
    return Done(image.position)


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision is not true before its records are in the log. The answer is made from the image after them: only then
    is a broker's epoch known."""

    records: tuple[MetadataRecord, ...] = ()
    answer: Callable[[ClusterImage], CommandAnswer] = _done


class MetadataLog(Protocol):
    """The metadata log, as its leader may use it."""

    async def append(self, records: Sequence[MetadataRecord]) -> int:
        """Appends records, all or none; returns the first one's offset when they are chosen and applied to the image
        here.

        Raises, surely without effect: `NotController`, `Overloaded`. With an effect or not: `ControllerLost`.
        """
        ...

    async def change_voters(self, *, add: Voter | None = None, remove: int | None = None) -> None:
        """Adds one voter, or removes one by its id; returns when that is in force. Raises as `append`."""
        ...

    @property
    def has_lease(self) -> bool:
        """True while it is sure that nobody else leads the log."""
        ...

    @property
    def alone_s(self) -> float:
        """Seconds since which it is sure that no earlier leader has led the log; 0.0 if that is not known."""
        ...

    def resign(self) -> None:
        """Stops leading, if it does: another election is held, and its winner has applied everything that was agreed
        on."""
        ...
