"""What deciding gives: records that will be true once they are in the log, and what to tell whoever asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidelog.broker.controller.commands import CommandAnswer, Done
from tidelog.broker.controller.records import MetadataRecord
from tidelog.model.cluster import ClusterImage


def _done(image: ClusterImage) -> CommandAnswer:
    return Done(image.position)


@dataclass(frozen=True, slots=True)
class Decision:
    """Not yet true. The answer is made from the image after the records: only then is a broker's epoch known."""

    records: tuple[MetadataRecord, ...] = ()
    answer: Callable[[ClusterImage], CommandAnswer] = _done
