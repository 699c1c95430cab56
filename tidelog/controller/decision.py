"""A decision: records that take effect once they are in the log, and the answer to the caller."""

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
    """The records of a decision, and the function that makes its answer. The decision has no effect before its records
    are in the log; the answer is made from the image after them, since a broker's epoch is known only then."""

    records: tuple[MetadataRecord, ...] = ()
    answer: Callable[[ClusterImage], CommandAnswer] = _done


class MetadataLog(Protocol):
    """The metadata log, as the active controller uses it."""

    async def append(self, records: Sequence[MetadataRecord]) -> int:
        """Appends records, all or none; returns the first one's offset when they are chosen and applied to this
        broker's image.

        Raises `NotController` or `Overloaded` if nothing was appended, and `ControllerLost` if the outcome is unknown.
        """

    async def change_voters(self, *, add: Voter | None = None, remove: int | None = None) -> None:
        """Adds one voter, or removes one by its id; returns when the new voter set is in force. Raises `NotController`
        or `Overloaded` if nothing was changed, and `ControllerLost` if the outcome is unknown."""

    @property
    def has_lease(self) -> bool:
        """True while no other broker can lead the log."""

    @property
    def alone_s(self) -> float:
        """Seconds for which no earlier leader of the log can have had a lease; 0.0 if that is not known."""

    def resign(self) -> None:
        """Stops leading the log, if this broker leads it: another election is held, and its winner has applied
        everything committed."""
