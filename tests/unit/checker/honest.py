"""A log that keeps every promise, and clients that tell the truth of it: random histories, all of them valid."""

from __future__ import annotations

from random import Random

from tidelog.checker import Op, Recorder
from tidelog.checker.operations import Poll, Send, View

KEYS = ("t-0", "t-1")
REPLICAS = (1, 2)


class Honest:
    """One run; `operations` has its history."""

    def __init__(self, rng: Random, steps: int) -> None:
        self._rng = rng
        self._recorder = Recorder(lambda: float(len(self._recorder.operations)))
        self._logs: dict[str, list[str]] = {key: [] for key in KEYS}
        self._places: dict[tuple[str, str], int] = {}
        self._open: dict[str, tuple[int, list[Send]]] = {}
        self._sent = 0
        for _ in range(steps):
            rng.choice((self._send, self._answer, self._poll, self._poll, self._seek))()
        for process in sorted(self._open):
            self._end(process)
        self._read_all()

    @property
    def operations(self) -> list[Op]:
        return self._recorder.operations

    def _send(self) -> None:
        process = self._rng.choice("pqr")
        if process in self._open:
            self._end(process)
        values = [f"{process}{self._sent + i}" for i in range(self._rng.choice((1, 1, 3)))]
        self._sent += len(values)
        key = self._rng.choice(KEYS)
        sends = [Send(key, None, value) for value in values]
        self._open[process] = self._recorder.invoke(process, "send", sends), sends

    def _answer(self) -> None:
        if self._open:
            self._end(self._rng.choice(sorted(self._open)))

    def _end(self, process: str) -> None:
        invocation, sends = self._open.pop(process)
        outcome = self._rng.choice(("ok", "ok", "ok", "info and there", "info", "fail"))
        if outcome in ("ok", "info and there"):
            log = self._logs[sends[0].key]
            sends = [Send(send.key, len(log) + i, send.value) for i, send in enumerate(sends)]
            log += [send.value for send in sends]
        if outcome == "ok":
            self._recorder.complete(invocation, "ok", sends, epoch=1)
        else:
            self._recorder.complete(invocation, "fail" if outcome == "fail" else "info")

    def _poll(self) -> None:
        self._read(self._rng.choice("xy"), self._rng.choice(KEYS), self._rng.randint(1, 6))

    def _read(self, process: str, key: str, count: int) -> None:
        begin, log = self._places.get((process, key), 0), self._logs[key]
        records = [*enumerate(log)][begin : begin + count]
        invocation = self._recorder.invoke(process, "poll")
        if process != "end" and self._rng.random() < 0.1:
            self._recorder.complete(invocation, "info", [Poll({key: records})])
            return
        self._recorder.complete(invocation, "ok", [Poll({key: records}, {key: len(log)})], epoch=1)
        self._places[process, key] = begin + len(records)

    def _seek(self) -> None:
        process, key = self._rng.choice("xy"), self._rng.choice(KEYS)
        self._recorder.tell("seek", [key], process=process)
        self._places[process, key] = self._rng.randint(0, len(self._logs[key]))

    def _read_all(self) -> None:
        for key, log in self._logs.items():
            for _ in range(0, len(log) + 1, 5):
                self._read("end", key, 5)
            for replica in REPLICAS:
                view = View(key, 0, len(log), len(log), [*enumerate(log)])
                self._recorder.tell("view", [view], replica=replica)
