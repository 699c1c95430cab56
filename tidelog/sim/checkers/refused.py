"""A definite error means that nothing was appended: what was only ever refused is never seen (Adya's G1a)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tidelog.model.ids import TopicPartition
from tidelog.sim.history import History, View, shown


def refused_is_absent(history: History, views: Mapping[TopicPartition, View]) -> Iterator[str]:
    for partition, view in views.items():
        seen = [(offset, value) for offset, (value, _) in history.seen.get(partition, {}).items()]
        for offset, value in [*view.records.items(), *seen]:
            writer = history.writers.get(value)
            if writer is not None and writer.attempts and writer.is_refused:
                yield f"{partition} offset {offset}: {shown(value)} was refused with a definite error each time"
