"""No record is there twice: an idempotent client's retries are recognised, also after a restart, and a plain client
sends each batch once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tidelog.model.ids import TopicPartition
from tidelog.sim.history import History, View, shown


def nothing_is_there_twice(history: History, views: Mapping[TopicPartition, View]) -> Iterator[str]:
    for partition, view in views.items():
        first: dict[bytes, int] = {}
        for offset, value in view.records.items():
            if value in first:
                kind = history.writers[value].kind.value if value in history.writers else "unknown"
                yield f"{partition}: {shown(value)} of a {kind} client is at {first[value]} and at {offset}"
            first.setdefault(value, offset)
