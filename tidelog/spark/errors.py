"""What goes wrong in Spark's processes and nowhere else."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from tidelog.model.errors import TidelogError

logger = logging.getLogger(__name__)


class DataLoss(TidelogError):
    """Records that a query was to read are gone: deleted by retention, or with their topic (Spark's Kafka source:
    `KafkaIllegalStateException` under `failOnDataLoss`)."""

    code = 41080


class NotRepeatable(TidelogError):
    """A write was repeated with other rows than the first time, so that it can not be told what is in the topic."""

    code = 40984


@dataclass(frozen=True, slots=True)
class LossRule:
    """What to do about records that are gone: `failOnDataLoss`."""

    fails: bool = True

    def lost(self, what: str) -> None:
        """Raises `DataLoss`, or warns: the query then goes on with what is there."""
        if self.fails:
            raise DataLoss(f"{what}. To go on with what is there, set failOnDataLoss to false")
        logger.warning("%s: going on with what is there (failOnDataLoss is false)", what)
