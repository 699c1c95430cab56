"""What a reader was given stays: the same record at the same offset, until the prefix is deleted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tidelog.model.ids import TopicPartition
from tidelog.sim.history import History, View, shown


def seen_stays(history: History, views: Mapping[TopicPartition, View]) -> Iterator[str]:
    for partition, view in views.items():
        rotten = history.rotten.get(partition, ())
        for offset, (value, losses) in history.seen.get(partition, {}).items():
            if offset < view.log_start_offset or offset in rotten:
                continue
            if partition in history.volatile and losses < history.volatile_losses:
                continue
            found = view.records.get(offset)
            if found != value:
                yield f"{partition} offset {offset}: a reader saw {shown(value)}, now it is {shown(found)}"
