"""The log of each partition as the history shows it: which values were at which offset, and in what order.

Values count from acknowledged sends, from sends of unknown outcome of which a value was read, and from every completed
poll: no poll may ever return what is not committed. Only offsets with a value are ranked, so an offset that no client
could see is no gap; if an offset has several values, any of them stands for it.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.checker.run import Act, Run


class KeyLog:
    """The values of one partition by offset, as clients saw them."""

    def __init__(self) -> None:
        self.shown: dict[int, str] = {}
        self.conflicts: dict[int, set[str]] = {}
        """Offsets at which several values were seen, with these values."""
        self.offsets: dict[str, int] = {}
        """The lowest offset of each value."""
        self.repeated: dict[str, set[int]] = {}
        """Values that were seen at several offsets, with these offsets."""
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
        """Numbers the offsets that have values in ascending order, from 0 (`ranks`). Called when all values are
        added."""
        self.ranks = {offset: rank for rank, offset in enumerate(sorted(self.shown))}

    def last_offset(self, value: str) -> int:
        return max(self.repeated[value]) if value in self.repeated else self.offsets[value]

    def steps(self, before: int | None, after: int | None) -> int:
        """Returns how many places `after` comes behind `before` among the offsets at which clients saw a value,
        negative if it comes first; 1 if one of them is None, or no value was seen there."""
        if before is None or after is None or before not in self.ranks or after not in self.ranks:
            return 1
        return self.ranks[after] - self.ranks[before]

    def order(self) -> Iterator[str]:
        """Yields each value once, in the order of first offsets."""
        for offset in self.ranks:
            value = self.shown[offset]
            if self.offsets[value] == offset:
                yield value


class Versions:
    """The logs of all partitions in one run, as its clients saw them."""

    def __init__(self, run: Run) -> None:
        self.writers: dict[str, dict[str, Act]] = {}
        """The operation that sent a value, by partition and value."""
        self.read: dict[str, set[str]] = {}
        """Values returned by successful polls, by partition."""
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
        """Returns the offset of a sent record; if the send does not say it, the offset where the value was seen, or
        None."""
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
