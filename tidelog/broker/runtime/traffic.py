"""The traffic of each topic on this broker, in and out, for a bounded number of topics.

The first `TOPICS_MAX` topics with any traffic are counted separately, all others together: a topic that was shown once
stays, so that its rates can be computed. A deleted topic makes place for another one.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Final

TOPICS_MAX: Final = 500


@dataclass(slots=True)
class TopicTraffic:
    """Totals of one topic since its first traffic on this broker. Bytes are of record batches as stored."""

    in_bytes: int = 0
    in_records: int = 0
    out_bytes: int = 0
    out_records: int = 0


class Traffic:
    """The bytes and records in and out of one broker, by topic."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicTraffic] = {}
        self.others = TopicTraffic()
        self._kept: Container[str] | None = None

    def of(self, topic: str) -> TopicTraffic:
        """Returns the totals to which a topic's traffic has to be added now: its own, or those of all other topics."""
        totals = self.topics.get(topic)
        if totals is not None:
            return totals
        if len(self.topics) >= TOPICS_MAX:
            return self.others
        return self.topics.setdefault(topic, TopicTraffic())

    def keep(self, topics: Container[str]) -> None:
        """Drops the totals of all topics except these."""
        if topics is self._kept:
            return
        self._kept = topics
        for gone in [topic for topic in self.topics if topic not in topics]:
            del self.topics[gone]
