"""The rules that a classic group must keep under any faults of its members, its coordinator and the network.

They are checked from outside, with every answer in the order in which they are given.

| rule | in words |
|---|---|
| leader | of one generation one member leads, for all time, whichever coordinator says so |
| assignment | a member's assignment was made for it, in the generation that it speaks with, by that one's leader |
| owners | of one generation a partition has one owner |
| fencing | no commit of a generation is kept that was sent after any member was told of a later one |
| offsets | what was answered as kept is found, unless a commit that was not over before has replaced it |
| | and what was found once is found from then on, unless replaced |
| in time | a join or a sync is answered before its caller gives up: no member is forgotten |
| static | a member is given the same partitions whenever it asks in one generation, also as another process |
| stable | in the end all that live are in one generation, and have every partition between them |

A static member is the same whichever process it is, so that it may take over in a generation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tidelog.model.classic_groups import JoinAnswer, MemberAssignment, SyncAnswer

NEVER = float("inf")


@dataclass
class Attempt:
    """A commit of one partition: the event numbers of its sending and of its answer."""

    value: int
    sent: int
    ended: float = NEVER
    is_kept: bool = False


@dataclass
class Rules:
    """Checks the rules of one run. `violations` lists those that were broken."""

    violations: list[str] = field(default_factory=list)
    counters: Counter[str] = field(default_factory=Counter)
    _now: int = 0
    """Number of events so far."""
    _leaders: dict[int, str] = field(default_factory=dict)
    _owners: dict[tuple[int, int], str] = field(default_factory=dict)
    _given: dict[tuple[int, str], list[int]] = field(default_factory=dict)
    """Partitions that a member was assigned, by generation and member."""
    _told: dict[int, int] = field(default_factory=dict)
    """Event number at which a member was first told of a generation, by generation."""
    _attempts: dict[int, list[Attempt]] = field(default_factory=dict)
    """Commits of each partition."""

    def event(self) -> int:
        """Counts an event, and returns its number."""
        self._now += 1
        return self._now

    def joined(self, identity: str, answer: JoinAnswer) -> None:
        """Checks the answer to a join: one member leads each generation."""
        self._told.setdefault(answer.generation, self.event())
        self.counters["join answered"] += 1
        if answer.leader == answer.member_id:
            known = self._leaders.setdefault(answer.generation, identity)
            if known != identity:
                self.violate("leader", f"of generation {answer.generation} {identity} leads, and so does {known}")

    def synced(self, identity: str, generation: int, answer: SyncAnswer) -> None:
        """Checks the assignment in the answer to a sync: it was made for this member, in this generation."""
        self.counters["sync answered"] += 1
        said = read_assignment(answer.assignment)
        if said is None or (said["generation"], said["for"]) != (generation, identity):
            self.violate("assignment", f"{identity} of generation {generation} was given {said}")
            return
        given = self._given.setdefault((generation, identity), said["partitions"])
        if given != said["partitions"]:
            self.violate(
                "static", f"{identity} of generation {generation} was given {given}, then {said['partitions']}"
            )
        for partition in said["partitions"]:
            known = self._owners.setdefault((generation, partition), identity)
            if known != identity:
                self.violate("owners", f"{partition} is owned by {identity} and {known} in generation {generation}")

    def attempt(self, partition: int, value: int) -> Attempt:
        """Notes that a commit reaches a broker; returns the record of it, for its outcome."""
        attempt = Attempt(value, self.event())
        self._attempts.setdefault(partition, []).append(attempt)
        return attempt

    def kept(self, attempt: Attempt, generation: int) -> None:
        """Notes that a commit succeeded; checks that no member was told of a later generation before it was sent."""
        attempt.ended, attempt.is_kept = min(attempt.ended, self.event()), True
        self.counters["commit kept"] += 1
        later = [one for one, at in self._told.items() if one > generation and at < attempt.sent]
        if later:
            self.violate("fencing", f"a commit of generation {generation} is kept, {max(later)} has begun")

    def refused(self, partition: int, attempt: Attempt) -> None:
        """Notes that a commit was refused for certain; checks that nobody has found it."""
        if attempt.is_kept:
            self.violate("offsets", f"{attempt.value} was found of {partition}, and its commit is refused")
        self._attempts[partition].remove(attempt)
        self.counters["commit refused"] += 1

    def found(self, offsets: Mapping[int, int | None], since: float = NEVER) -> None:
        """Checks committed offsets, by partition, None if there is none. `since` is the event number at which they were
        asked for: commits that were not over by then may be found or not."""
        now = self.event()
        for partition, value in sorted(offsets.items()):
            attempts = self._attempts.get(partition, [])
            last_sent = max((one.sent for one in attempts if one.is_kept and one.ended < since), default=-1)
            if value is None:
                if last_sent >= 0:
                    self.violate("offsets", f"nothing is found of {partition}, and a commit was kept")
                continue
            same = [one for one in attempts if one.value == value]
            if not any(one.ended > last_sent for one in same):
                self.violate("offsets", f"{value} is found of {partition}, which a later commit has replaced")
            elif len(same) == 1:
                # Whoever asks from now on must find it as well, whether its sender ever hears of it or not.
                same[0].is_kept, same[0].ended = True, min(same[0].ended, now)

    def waited(self, what: str, seconds: float) -> None:
        """Reports a join or sync that was not answered before its caller gave up."""
        self.violate("in time", f"a {what} is not answered after {seconds:.1f} s")

    def violate(self, rule: str, what: str) -> None:
        """Notes that a rule is broken, and how."""
        self.violations.append(f"{rule}: {what}")


# -- what the leaders of this simulation say ---------------------------------------------------------------------------


def assignments(answer: JoinAnswer, partitions: int, turn: int = 0) -> tuple[MemberAssignment, ...]:
    """Returns a leader's assignments: each partition goes to one member, and each assignment names its generation and
    member. `turn` is the number of members by which the partitions are moved on."""
    members = [(one.instance_id or one.member_id, one.member_id) for one in answer.members]
    return tuple(
        MemberAssignment(
            member_id,
            msgspec.json.encode(
                {
                    "generation": answer.generation,
                    "for": identity,
                    "partitions": list(range((number + turn) % len(members), partitions, len(members))),
                }
            ),
        )
        for number, (identity, member_id) in enumerate(members)
    )


def read_assignment(assignment: bytes) -> Any:
    """Decodes an assignment that a leader made; returns None for an empty one."""
    return msgspec.json.decode(assignment) if assignment else None
