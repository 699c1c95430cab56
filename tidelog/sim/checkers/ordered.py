"""A producer's batches are in the log in the order it sent them, each batch in one piece.

A plain client with one request in flight has this order, too: it waits for one outcome before it sends the next, and
what is unknown is on the log by then or never.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tidelog.model.ids import TopicPartition
from tidelog.sim.history import History, Kind, View, shown


def producers_are_in_order(history: History, views: Mapping[TopicPartition, View]) -> Iterator[str]:
    for partition, view in views.items():
        last: dict[str, tuple[int, int]] = {}
        for offset, value in view.records.items():
            sent = history.writers.get(value)
            if sent is None or sent.kind is not Kind.IDEMPOTENT:
                continue
            place = (sent.number, sent.values.index(value))
            if place < last.get(sent.producer, place):
                yield f"{partition} offset {offset}: {shown(value)} comes after {sent.producer}:{last[sent.producer]}"
            last[sent.producer] = place
