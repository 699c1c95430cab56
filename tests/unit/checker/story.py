"""Histories told by hand, one operation after another."""

from __future__ import annotations

from collections import Counter
from itertools import count

from tidelog.checker import Recorder, judge
from tidelog.checker.operations import Durability, Function, Guarantee, Poll, Send, Type, Value, View

K = "t-0"
"""The partition of most stories."""
Records = list[tuple[int, str]]


class Story:
    """An operation ends before the next begins, unless it is told with `begin` and `end`. Each takes a second."""

    def __init__(self) -> None:
        seconds = count()
        self.recorder = Recorder(lambda: float(next(seconds)))

    def begin(self, process: str, *values: str, key: str = K, guarantee: Guarantee = "sequence") -> int:
        sends = [Send(key, None, value) for value in values]
        return self.recorder.invoke(process, "send", sends, guarantee=guarantee)

    def end(
        self, begun: int, at: int | None, type_: Type = "ok", *, durability: Durability = "fsynced", epoch: int = -1
    ) -> None:
        sends = [part for part in self.recorder.operations[begun].value if isinstance(part, Send)]
        placed = [Send(send.key, None if at is None else at + i, send.value) for i, send in enumerate(sends)]
        self.recorder.complete(begun, type_, placed, durability=durability, epoch=epoch)

    def send(
        self,
        process: str,
        at: int | None,
        *values: str,
        key: str = K,
        type_: Type = "ok",
        guarantee: Guarantee = "sequence",
        durability: Durability = "fsynced",
        epoch: int = -1,
    ) -> None:
        self.end(
            self.begin(process, *values, key=key, guarantee=guarantee), at, type_, durability=durability, epoch=epoch
        )

    def txn(self, process: str, *parts: Value) -> None:
        self.recorder.complete(self.recorder.invoke(process, "txn", parts), "ok", parts)

    def poll(
        self,
        process: str,
        *records: tuple[int, str],
        key: str = K,
        type_: Type = "ok",
        end: int | None = None,
        epoch: int = -1,
        replica: int | None = None,
        rebalanced: tuple[str, ...] = (),
    ) -> None:
        poll = Poll({key: [*records]}, {} if end is None else {key: end})
        begun = self.recorder.invoke(process, "poll")
        self.recorder.complete(begun, type_, [poll], epoch=epoch, replica=replica, rebalanced=rebalanced)

    def tell(self, f: Function, *value: Value, process: str = "world") -> None:
        self.recorder.tell(f, value, process=process)

    def view(
        self,
        values: str,
        *,
        start: int = 0,
        end: int | None = None,
        replica: int | None = None,
        is_sparse: bool = False,
    ) -> None:
        """A partition whose values are letters from `start` on; a blank is a gap, a question mark is damage."""
        records = [(offset, value) for offset, value in enumerate(values, start) if value not in " ?"]
        damaged = [offset for offset, value in enumerate(values, start) if value == "?"]
        high_watermark = start + len(values)
        view = View(K, start, high_watermark, high_watermark if end is None else end, records, damaged, is_sparse)
        self.recorder.tell("view", [view], replica=replica)

    def kinds(self) -> Counter[str]:
        return judge(self.recorder.operations).kinds


def in_order(story: Story, values: str = "abcdef") -> Story:
    """A producer sends letters one by one, and a reader polls them two at a time."""
    for offset, value in enumerate(values):
        story.send("producer", offset, value)
    for offset in range(0, len(values), 2):
        story.poll("reader", *enumerate(values[offset : offset + 2], offset))
    return story
