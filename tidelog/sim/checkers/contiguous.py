"""Below the high watermark there is a record at every offset, or damage that was done on purpose."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tidelog.model.ids import TopicPartition
from tidelog.sim.history import History, View


def offsets_are_contiguous(history: History, views: Mapping[TopicPartition, View]) -> Iterator[str]:
    for partition, view in views.items():
        if view.high_watermark != view.log_end_offset:
            yield f"{partition}: at rest the high watermark is {view.high_watermark}, the end {view.log_end_offset}"
        rotten = history.rotten.get(partition, ())
        for offset in range(view.log_start_offset, view.high_watermark):
            if offset in view.damaged and offset not in rotten:
                yield f"{partition} offset {offset} is called damaged, and is not"
            elif offset not in view.records and offset not in rotten:
                yield f"{partition} has no record at offset {offset}"
