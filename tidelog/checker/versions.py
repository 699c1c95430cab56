"""The log of each partition as the history shows it: which values were at which offset, and in what order.

Values count from acknowledged sends, from sends of unknown outcome, once one of their values was read, and from every
completed poll: whoever polls must never be given what is not safe. Offsets with a value are ranked densely, so a gap
that nobody could see is no gap; on a conflict any value stands for its offset.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.checker.run import Act, Run


class KeyLog:
    """The values of one partition by offset."""

    def __init__(self) -> None:
        self.shown: dict[int, str] = {}
        self.conflicts: dict[int, set[str]] = {}
        """Offsets with several values, and these."""
        self.offsets: dict[str, int] = {}
        """The first offset of each value."""
        self.repeated: dict[str, set[int]] = {}
        """Values at several offsets, and these."""
        self.ranks: dict[int, int] = {}

    def add(self, offset: int, value: str) -> None:
        shown = self.shown.setdefault(offset, value)
        if shown != value:
            self.conflicts.setdefault(offset, {shown}).add(value)
        first = self.offsets.setdefault(value, offset)
        if first != offset:
            self.repeated.setdefault(value, {first}).add(offset)
            self.offsets[value] = min(first, offset)

    def rank(self) -> None:
        """To be called when all values are added."""
        self.ranks = {offset: rank for rank, offset in enumerate(sorted(self.shown))}

    def last_offset(self, value: str) -> int:
        return max(self.repeated[value]) if value in self.repeated else self.offsets[value]

    def steps(self, before: int | None, after: int | None) -> int:
        """How far apart two offsets are; 1, if one of them is nowhere."""
        if before is None or after is None or before not in self.ranks or after not in self.ranks:
            return 1
        return self.ranks[after] - self.ranks[before]

    def order(self) -> Iterator[str]:
        """Each value once, at its first offset."""
        for offset in self.ranks:
            value = self.shown[offset]
            if self.offsets[value] == offset:
                yield value


class Versions:
    """The values of all partitions in one run."""

    def __init__(self, run: Run) -> None:
        self.writers: dict[str, dict[str, Act]] = {}
        """The acts that sent a value, by key and value."""
        self.read: dict[str, set[str]] = {}
        """Values that a poll returned that is `ok`."""
        self.logs: dict[str, KeyLog] = {}
        self._damaged = run.damaged
        for act in run.acts:
            self._note(act)
        for act in run.acts:
            if self.is_committed(act):
                for send in act.sends:
                    if send.offset is not None:
                        self._add(send.key, send.offset, send.value)
        for log in self.logs.values():
            log.rank()

    def log(self, key: str) -> KeyLog:
        return self.logs.get(key) or self.logs.setdefault(key, KeyLog())

    def is_committed(self, act: Act) -> bool:
        if act.outcome == "info":
            return any(send.value in self.read.get(send.key, ()) for send in act.sends)
        return act.outcome == "ok"

    def offset_of(self, key: str, offset: int | None, value: str) -> int | None:
        """Returns the offset of a record that was sent, or None if it is not known."""
        return self.log(key).offsets.get(value) if offset is None else offset

    def _note(self, act: Act) -> None:
        for send in act.sends:
            if self.writers.setdefault(send.key, {}).setdefault(send.value, act) is not act:
                raise ValueError(f"{send.value} is sent to {send.key} by {act} and again: values must be unique")
        for poll in act.polls:
            for key, records in poll.records.items():
                if act.outcome == "ok":
                    self.read.setdefault(key, set()).update(value for _, value in records)
                for offset, value in records:
                    self._add(key, offset, value)

    def _add(self, key: str, offset: int, value: str) -> None:
        if offset not in self._damaged.get(key, ()):
            self.log(key).add(offset, value)
