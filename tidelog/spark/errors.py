"""Errors that arise in Spark's processes only."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from tidelog.model.errors import TidelogError
from tidelog.model.lost_ranges import LostRange

logger = logging.getLogger(__name__)


class DataLoss(TidelogError, code=41080):
    """Records that a query was to read are gone: deleted by retention or with their topic, or lost on all disks and
    given up by an operator (Spark's Kafka source: `KafkaIllegalStateException` under `failOnDataLoss`)."""

    def __init__(self, message: str, lost: LostRange | None = None) -> None:
        super().__init__(message)
        self.lost = lost
        """The given-up lost range, if that is the reason; else None."""


class NotRepeatable(TidelogError, code=40984):
    """A write was repeated with different rows than before, so it is unknown which are in the topic."""


@dataclass(frozen=True, slots=True)
class LossRule:
    """The reaction to missing records: `failOnDataLoss`."""

    fails: bool = True

    def lost(self, what: str, accepted: LostRange | None = None) -> None:
        """Reports missing records, which the text `what` names. Raises `DataLoss` if `failOnDataLoss` is true;
        otherwise logs a warning, and the query continues with the remaining records. `accepted` is the range that an
        operator has given up, if that is the reason."""
        if self.fails:
            raise DataLoss(f"{what}. To go on with what is there, set failOnDataLoss to false", accepted)
        logger.warning("%s: going on with what is there (failOnDataLoss is false)", what)
