"""An acknowledged record is there, at its offset, with its bytes, until the prefix that holds it is deleted.

With `fsynced`, against everything but rot; with less, unless something volatile was lost since. A record whose bytes
were damaged on purpose is answered with an error, for its batch alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tidelog.model.ids import TopicPartition
from tidelog.sim.history import History, Sent, View, shown


def acknowledged_is_there(history: History, views: Mapping[TopicPartition, View]) -> Iterator[str]:
    for sent in history.sent:
        if not sent.is_acknowledged or sent.partition not in views:
            continue
        if sent.durability != "fsynced" and sent.losses_at_ack < history.volatile_losses:
            continue
        yield from _missing(sent, views[sent.partition], history)


def _missing(sent: Sent, view: View, history: History) -> Iterator[str]:
    if sent.base_offset is None:  # a duplicate older than what is remembered: acknowledged without a place
        for value in sent.values:
            if view.log_start_offset == 0 and not view.damaged and value not in view.records.values():
                yield f"{shown(value)} was acknowledged as a duplicate and is nowhere in {sent.partition}"
        return
    rotten = history.rotten.get(sent.partition, ())
    for offset, value in enumerate(sent.values, sent.base_offset):
        found = view.records.get(offset)
        if found == value or offset < view.log_start_offset:
            continue
        if found is None and offset in view.damaged and offset in rotten:
            continue
        yield (
            f"{sent.partition} offset {offset}: {shown(value)} was acknowledged ({sent.durability}), "
            f"found {shown(found)}; the log holds {view.log_start_offset} to {view.high_watermark}"
        )
