"""What goes wrong in Spark's processes and nowhere else."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from tidelog.model.errors import TidelogError
from tidelog.model.lost_ranges import LostRange

logger = logging.getLogger(__name__)


class DataLoss(TidelogError):
    """Records that a query was to read are gone: deleted by retention, or with their topic, or lost on all disks, which
    an operator has accepted (Spark's Kafka source: `KafkaIllegalStateException` under `failOnDataLoss`)."""

    code = 41080

    def __init__(self, message: str, lost: LostRange | None = None) -> None:
        super().__init__(message)
        self.lost = lost
        """The accepted loss that was met, if it is one."""


class NotRepeatable(TidelogError):
    """A write was repeated with other rows than the first time, so that it can not be told what is in the topic."""

    code = 40984


@dataclass(frozen=True, slots=True)
class LossRule:
    """What to do about records that are gone: `failOnDataLoss`."""

    fails: bool = True

    def lost(self, what: str, accepted: LostRange | None = None) -> None:
        """Raises `DataLoss`, or warns: the query then goes on with what is there."""
        if self.fails:
            raise DataLoss(f"{what}. To go on with what is there, set failOnDataLoss to false", accepted)
        logger.warning("%s: going on with what is there (failOnDataLoss is false)", what)
