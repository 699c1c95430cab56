"""Every record that is shown was sent to that partition, and every byte of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tidelog.model.ids import TopicPartition
from tidelog.sim.history import History, View, shown


def nothing_is_invented(history: History, views: Mapping[TopicPartition, View]) -> Iterator[str]:
    for partition, view in views.items():
        for offset, value in view.records.items():
            writer = history.writers.get(value)
            if writer is None or writer.partition != partition:
                yield f"{partition} offset {offset}: {shown(value)} was never sent there"
