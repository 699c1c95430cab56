"""What a consumer group has promised, held against all that was seen of it from outside.

Seen are: what the brokers acknowledged to producers; every handout of every consumer, with the monotonic time just
after it; the log of `__consumer_offsets`, in which every committed offset and every assignment of the group stands in
order; and what the coordinator said the committed offsets were. The rules are the rows of the table:

- **Handed out.** Every acknowledged record was handed out by some consumer, as it was sent.
- **No offset passes a record that nobody was handed.** Whenever an offset was seen, every record before it had been
  handed out, also those of which no producer knows whether they are there. A consumer tells of a handout before it can
  commit, so there is no tolerance in this.
- **No offset goes back.** Nobody seeks here, so each offset in the log is at least the one before it.
- **One owner in each epoch.** No partition was given to two members in one epoch, and at no position of the log did two
  members hold it, what one is still to give up included.
- **No two at one time.** A *turn* is what one consumer handed out of a partition from being assigned it on; from its
  first handout to its last one no other consumer may hand out of it.

The last rule has a limit that no lease can remove. A consumer looks at its lease and then hands out; a process that is
stopped (SIGSTOP) between the two wakes up after its lease with the records already in its hands. From outside such a
handout cannot be told from a wrong one; it is a call that began before a stop and returned after it, so each stop
excuses one at most, which is counted by itself. The commit that would follow is refused, which is what the epochs are
for, and so the rule about offsets has no such excuse.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf
from typing import Any, NamedTuple

from rich.table import Table

Location = tuple[int, int]
"""Partition and offset."""
Pause = tuple[float, float]


@dataclass(slots=True)
class Turn:
    """Of one consumer, in one partition. `handouts` are (asked, handed out)."""

    member: str
    partition: int
    handouts: list[tuple[float, float]] = field(default_factory=list)


class Seen(NamedTuple):
    """A committed offset of the group, and when it was there at the latest."""

    at_s: float
    partition: int
    offset: int


class Ownership:
    """Who holds which partition, as the log of `__consumer_offsets` says, record by record."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._held: dict[str, dict[int, int]] = {}
        """Member to partition to the epoch in which it was given."""
        self._owners: dict[tuple[int, int], str] = {}
        """(partition, epoch) to the first member that was seen to have it."""
        self.assignments = 0
        self.conflicts: list[str] = []

    def apply(self, key: Mapping[str, Any], value: Mapping[str, Any] | None) -> None:
        """The next record of the log."""
        if key["kind"] != "current" or key["group"] != self._group:
            return
        member = key["member_id"]
        if value is None:
            self._held.pop(member, None)
            return
        before = self._held.get(member, {})
        held = {
            partition: epoch
            for topic in (*value.get("held", ()), *value.get("revoking", ()))
            for partition, epoch in zip(topic["partitions"], topic["epochs"], strict=True)
        }
        self._held[member] = held
        for partition, epoch in held.items():
            if before.get(partition) != epoch:
                self.assignments += 1
            owner = self._owners.setdefault((partition, epoch), member)
            if owner != member:
                self.conflicts.append(f"partition {partition} in epoch {epoch}: {owner} and {member}")
            others = [name for name, theirs in self._held.items() if name != member and partition in theirs]
            self.conflicts += [f"partition {partition} at one time: {name} and {member}" for name in others]


class Story:
    """All that was seen of one run."""

    def __init__(self, group: str) -> None:
        self.acknowledged: dict[Location, int] = {}
        self.handed_out: Counter[Location] = Counter()
        self.first_s: dict[Location, float] = {}
        """When each record was handed out first."""
        self.numbers: dict[Location, int] = {}
        self.different: list[str] = []
        self.turns: list[Turn] = []
        self._turn: dict[tuple[str, int], Turn] = {}
        self.offsets: list[Seen] = []
        self.followed: dict[int, int] = {}
        """The newest offset of each partition in the group's log."""
        self.went_back: list[str] = []
        self._group = group
        self.ownership = Ownership(group)
        self.lines: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()

    def tell(self, member: str, line: Mapping[str, Any]) -> None:
        """A line of a consumer."""
        self.lines[line["what"]] += 1
        match line["what"]:
            case "assigned":
                for partition in line["partitions"]:
                    self._begin_turn(member, partition)
            case "handed out":
                for partition, records in line["records"].items():
                    self._hand_out(member, int(partition), records, line["asked"], line["at"])
            case "failed":
                self.errors[line["error"].split(":", 1)[0]] += 1

    def follow(self, key: Mapping[str, Any], value: Mapping[str, Any] | None, at_s: float) -> None:
        """The next record of the group's log."""
        self.ownership.apply(key, value)
        if key["kind"] != "place" or key["group"] != self._group or value is None:
            return
        partition, offset = value["partition"], value["offset"]
        before = self.followed.get(partition, 0)
        if offset < before:
            self.went_back.append(f"partition {partition}: from {before} to {offset}, by {value['member_id']}")
        self.followed[partition] = offset
        self.offsets.append(Seen(at_s, partition, offset))

    def _begin_turn(self, member: str, partition: int) -> Turn:
        turn = self._turn[member, partition] = Turn(member, partition)
        self.turns.append(turn)
        return turn

    def _hand_out(
        self, member: str, partition: int, records: Iterable[tuple[int, int]], called_s: float, at_s: float
    ) -> None:
        turn = self._turn.get((member, partition)) or self._begin_turn(member, partition)
        turn.handouts.append((called_s, at_s))
        for offset, number in records:
            at = (partition, offset)
            self.handed_out[at] += 1
            self.first_s[at] = min(at_s, self.first_s.get(at, inf))
            if self.numbers.setdefault(at, number) != number:
                self.different.append(f"partition {partition} offset {offset}: {self.numbers[at]} and {number}")

    @property
    def not_handed_out(self) -> list[Location]:
        """Acknowledged records that nobody was given yet."""
        return [at for at in self.acknowledged if at not in self.handed_out]

    def audit(
        self,
        stored: Mapping[Location, int],
        offsets: Mapping[int, int],
        pauses: Mapping[str, list[Pause]],
        stable_s: float,
    ) -> Audit:
        """Holds all of it against the rules. `stored` is what the partitions hold in the end, by number; `offsets` are
        those of the group after all have left; `pauses` are the times for which consumers were stopped."""
        numbers = {**self.acknowledged, **stored}
        different = [at for at, number in self.numbers.items() if numbers.get(at, number) != number]
        overlaps, excused = overlaps_of(self.turns, pauses)
        return Audit(
            story=self,
            missing=len(self.not_handed_out),
            different=len(self.different) + len(different),
            passed=[*self._passed(stored)],
            behind=len({partition for partition, offset in stored if offsets.get(partition, 0) <= offset}),
            conflicts=self.ownership.conflicts,
            overlaps=overlaps,
            excused=excused,
            stable_s=stable_s,
        )

    def _passed(self, stored: Mapping[Location, int]) -> Iterator[str]:
        """Committed offsets beyond a record that had not been handed out by then."""
        offsets: dict[int, list[int]] = defaultdict(list)
        for partition, offset in sorted({*stored, *self.acknowledged}):
            offsets[partition].append(offset)
        since = {
            partition: [*accumulate((self.first_s.get((partition, offset), inf) for offset in positions), max)]
            for partition, positions in offsets.items()
        }
        """Of each record: when it and all before it had been handed out."""
        for at_s, partition, offset in self.offsets:
            before = bisect_left(offsets[partition], offset)
            if before and since[partition][before - 1] > at_s:
                yield f"partition {partition}: offset {offset} at {at_s:.3f}"


def overlaps_of(turns: Iterable[Turn], pauses: Mapping[str, list[Pause]]) -> tuple[list[str], int]:
    """Turns of two consumers in one partition that lie over each other; and how many handouts a stop excuses."""
    overlaps, excused = list[str](), 0
    by_partition: dict[int, list[Turn]] = defaultdict(list)
    for turn in turns:
        if turn.handouts:
            by_partition[turn.partition].append(turn)
    for partition, ordered in sorted(by_partition.items()):
        ordered.sort(key=lambda turn: turn.handouts[0][1])
        for number, turn in enumerate(ordered):
            for later in ordered[number + 1 :]:
                if later.handouts[0][1] > turn.handouts[-1][1]:
                    break
                late = [handout for handout in turn.handouts if handout[1] >= later.handouts[0][1]]
                if turn.member == later.member or not late:
                    continue
                guilty = [handout for handout in late if not _spans(handout, pauses.get(turn.member, []))]
                excused += len(late) - len(guilty)
                overlaps += [
                    f"partition {partition}: {turn.member} at {at_s:.3f}, {later.member} since "
                    f"{later.handouts[0][1]:.3f}"
                    for _, at_s in guilty
                ]
    return overlaps, excused


def _spans(handout: tuple[float, float], pauses: Iterable[Pause]) -> bool:
    """True if the consumer was stopped while it was asked."""
    called_s, at_s = handout
    return any(called_s <= begun_s and ended_s <= at_s for begun_s, ended_s in pauses)


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What was found: all but `excused` and `stable_s` should be nothing."""

    story: Story
    missing: int
    different: int
    passed: list[str]
    behind: int
    """Partitions whose offset in the end is not the end: consumers that left in good order have committed all."""
    conflicts: list[str]
    overlaps: list[str]
    excused: int
    stable_s: float
    """From the end of the last fault until all that live own all partitions."""

    @property
    def wrong(self) -> list[str]:
        """What is to be looked at, in words."""
        return [*self.passed, *self.story.went_back, *self.conflicts, *self.overlaps, *self.story.different]

    def is_good(self, stable_s_max: float) -> bool:
        """Nothing is wrong, and enough has happened for that to mean something."""
        is_wrong = self.missing or self.different or self.behind or self.wrong
        return not is_wrong and bool(self.story.acknowledged) and self.stable_s <= stable_s_max

    @property
    def figures(self) -> dict[str, float]:
        """For programs; times in seconds."""
        story = self.story
        return {
            "records_acknowledged": len(story.acknowledged),
            "records_handed_out": len(story.handed_out),
            "records_repeated": sum(count > 1 for count in story.handed_out.values()),
            "repetitions": story.handed_out.total() - len(story.handed_out),
            "assignments": story.ownership.assignments,
            "partitions_assigned": story.lines["assigned"],
            "offsets_seen": len(story.offsets),
            "calls_failed": story.lines["failed"],
            "acknowledged_not_handed_out": self.missing,
            "different": self.different,
            "offsets_beyond": len(self.passed),
            "offsets_back": len(story.went_back),
            "partitions_behind": self.behind,
            "owned_twice": len(self.conflicts),
            "handed_out_by_two": len(self.overlaps),
            "excused_by_a_stop": self.excused,
            "stable_s": round(self.stable_s, 3),
        }

    def table(self, faults: Mapping[str, int], seconds: float, stable_s_max: float) -> Table:
        """For a stranger."""
        figures, story = self.figures, self.story
        table = Table("Group under faults", "", box=None, pad_edge=False)
        table.columns[1].justify = "right"
        for kind, count in sorted(faults.items()):
            table.add_row(kind, str(count))
        table.add_row("seconds", f"{seconds:.1f}")
        table.add_row("records acknowledged", f"{len(story.acknowledged):,}")
        table.add_row("records handed out", f"{len(story.handed_out):,}")
        repeated, share = figures["records_repeated"], figures["records_repeated"] / max(1, len(story.handed_out))
        table.add_row("  more than once", f"{repeated:,} ({share:.2%})")
        table.add_row("partitions given to a member", f"{story.ownership.assignments:,}")
        table.add_row("committed offsets seen", f"{len(story.offsets):,}")
        for name, count in sorted(story.errors.items()):
            table.add_row(f"calls that raised {name}", f"{count:,}")
        table.add_row("acknowledged and never handed out", _zero(self.missing))
        table.add_row("handed out otherwise than sent", _zero(self.different))
        table.add_row("offsets beyond what was handed out", _zero(len(self.passed)))
        table.add_row("offsets that went back", _zero(len(story.went_back)))
        table.add_row("partitions whose last offset is not the end", _zero(self.behind))
        table.add_row("owned by two members in an epoch", _zero(len(self.conflicts)))
        table.add_row("handed out by two at a time", _zero(len(self.overlaps)))
        table.add_row("  but by a process that was stopped in the act", f"{self.excused:,}")
        is_late = self.stable_s > stable_s_max
        table.add_row("stable after the last fault", f"{'[red]' * is_late}{self.stable_s:.2f} s{'[/]' * is_late}")
        verdict = "[green]yes[/]" if self.is_good(stable_s_max) else "[red]NO[/]"
        table.add_row("every acknowledged record at least once, and all as promised", verdict)
        return table


def _zero(count: int) -> str:
    return f"[red]{count:,}[/]" if count else "0"
