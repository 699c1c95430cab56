"""A log starts no later than somebody asked for, and no earlier than was promised.

Deleting a prefix is answered before it is durable; whatever is acknowledged as fsynced after it, in the same log, makes
it so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tidelog.model.ids import TopicPartition
from tidelog.sim.history import History, View


def starts_where_asked(history: History, views: Mapping[TopicPartition, View]) -> Iterator[str]:
    for partition, view in views.items():
        asked, promised = history.start_asked.get(partition, 0), history.start_promised.get(partition, 0)
        if not promised <= view.log_start_offset <= asked:
            yield f"{partition} starts at {view.log_start_offset}: promised {promised}, asked for {asked}"
        if not view.log_start_offset <= view.high_watermark <= view.log_end_offset:
            yield f"{partition}: start {view.log_start_offset}, high watermark {view.high_watermark}, end out of order"
