"""Anomalies of order: what one process reads and sends must be in the order of the log, with nothing left out.

Between polls a process's position moves on success only: after a failure the same records must come again. A partition
that stays assigned keeps its position, one that is taken away, or sought, does not; a subscriber's position in a
partition is unknown after a rebalance of that partition, since it continues from the committed offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tidelog.checker.anomaly import Anomaly
from tidelog.checker.operations import Send
from tidelog.checker.run import Act, Run
from tidelog.checker.versions import Versions

Steps = Callable[[int, int], int]


@dataclass(slots=True)
class Position:
    """The positions of one process in the partitions that it polls and sends to."""

    polled: dict[str, int] = field(default_factory=dict)
    """Offset of the last record that the process got, by partition."""
    sent: dict[str, tuple[Act, int]] = field(default_factory=dict)
    is_subscriber: bool = False

    def moves(self, act: Act) -> None:
        """Updates the positions after an assign, subscribe, seek or crash."""
        if act.outcome == "fail":
            return
        match act.f:
            case "assign":
                self._keep([key for key in self.polled if key in act.names])
                self.is_subscriber = False
            case "subscribe":
                self._keep([key for key in self.polled if key.rpartition("-")[0] in act.names])
                self.is_subscriber = True
            case "seek":
                self._keep([key for key in self.polled if key not in act.names])
            case _:
                self._keep([])
                self.sent.clear()

    def _keep(self, keys: list[str]) -> None:
        self.polled = {key: self.polled[key] for key in keys}


def orders(run: Run, versions: Versions) -> Iterator[Anomaly]:
    """Yields all anomalies of order."""
    positions: dict[str, Position] = {}
    for act in run.acts:
        position = positions.setdefault(act.process, Position())
        if act.f in ("assign", "subscribe", "seek", "crash"):
            position.moves(act)
            continue
        if act.polls:
            yield from _polls(act, position, versions)
        if act.sends and act.outcome != "fail":
            yield from _sends(act, position, versions)


def _polls(act: Act, position: Position, versions: Versions) -> Iterator[Anomaly]:
    rebalanced = act.rebalanced if position.is_subscriber else ()
    for key in rebalanced:
        position.polled.pop(key, None)
    last: dict[str, int] = {}
    for key, offset, _ in act.polled():
        log = versions.log(key)
        if key in last:
            if key not in rebalanced:
                yield from _step("int-poll-skip", "int-nonmonotonic-poll", key, act, last[key], offset, log.steps)
        elif key in position.polled:
            yield from _step("poll-skip", "nonmonotonic-poll", key, act, position.polled[key], offset, log.steps)
        last[key] = offset
    if act.outcome == "ok":
        position.polled.update(last)
        for key in rebalanced:
            position.polled.pop(key, None)


def _sends(act: Act, position: Position, versions: Versions) -> Iterator[Anomaly]:
    last: dict[str, int] = {}
    for send in act.sends:
        offset = versions.offset_of(send.key, send.offset, send.value)
        if offset is None:
            continue
        log = versions.log(send.key)
        if send.key in last:
            before = last[send.key]
            yield from _step("int-send-skip", "int-nonmonotonic-send", send.key, act, before, offset, log.steps)
        elif _follows(act, position, send):
            _, before = position.sent[send.key]
            if log.steps(before, offset) < 1:
                text = f"{act}: {send.value} is at {offset}, and what was sent before it at {before}"
                yield Anomaly("nonmonotonic-send", send.key, text)
        last[send.key] = offset
    position.sent.update((key, (act, offset)) for key, offset in last.items())


def _follows(act: Act, position: Position, send: Send) -> bool:
    """Returns True if the batch must come after the last one that the process sent to the same partition: the process
    had that one's answer before it sent this one, or both are of an idempotent producer."""
    if send.key not in position.sent:
        return False
    before, _ = position.sent[send.key]
    return act.guarantee == before.guarantee == "sequence" or before.completed < act.invoked


def _step(skip: str, back: str, key: str, act: Act, before: int, after: int, steps: Steps) -> Iterator[Anomaly]:
    distance = steps(before, after)
    if distance > 1:
        yield Anomaly(skip, key, f"{act} goes from {before} to {after}, {distance - 1} records are left out")
    elif distance < 1:
        yield Anomaly(back, key, f"{act} goes from {before} back to {after}")
