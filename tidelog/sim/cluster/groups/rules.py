"""The rules that a consumer group must keep under any faults of its members, its coordinator and the network.

They are checked from outside, with every request, answer and hand-out of records in the order in which it happens.

| rule | in words | |---|---| | delivery | in the end every record was handed out, from where the group began, and is
committed | | offsets | no committed offset passes a record that was not handed out; an offset that was answered as kept
is found | | | afterwards, whatever crashed; committed offsets never go back | | owners | of one epoch a partition has
one owner | | exclusive | no member hands out records of a partition while another member holds it and might, too: at
one instant of | | | true time, not by anybody's clock | | fencing | no commit is kept of a member whose partition was
given to another before it was sent | | sequence | no commit is kept that was sent after the answer to a later one of
the same member |

"Before" and "after" are those of true time, so two overlapping events are in no order. A request counts as *sent* when
it reaches a broker, even if it was under way for seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tidelog.model.groups import CommitAnswer, CommitOffsets, OffsetsAnswer
from tidelog.model.ids import TopicPartition
from tidelog.sim.cluster.groups.coverage import Coverage

KEPT = 0
NOT_OWNED = 40915
STALE = 40916

MayDeliver = Callable[[], bool]
"""Function that returns True if a member might hand out records at this instant."""


@dataclass(slots=True, eq=False)
class GroupRules:
    """Checks the rules for one group."""

    group: str
    violate: Callable[[str, str], None]
    """Called with the name of the broken rule and a description."""
    counters: Counter[str] = field(default_factory=Counter)
    handed_out: dict[TopicPartition, Coverage] = field(default_factory=dict)
    is_gone: Callable[[], bool] = lambda: False
    """Function that returns True if a fault has destroyed the committed offsets: then they are not checked any more."""
    _now: int = 0
    """Number of events so far, which serves as the true time."""
    _holders: dict[TopicPartition, dict[str, MayDeliver]] = field(default_factory=dict)
    _owners: dict[tuple[TopicPartition, int], str] = field(default_factory=dict)
    """Owner's identity, by partition and assignment epoch."""
    _told: dict[TopicPartition, dict[tuple[str, int], int]] = field(default_factory=dict)
    """Event number at which a member was first given a partition, by partition, member and epoch."""
    _bearers: dict[tuple[TopicPartition, str], str] = field(default_factory=dict)
    """Member that was last given a partition, by partition and identity."""
    _floors: dict[TopicPartition, int] = field(default_factory=dict)
    """Largest committed offset that was confirmed, by partition; it must not go back."""
    _sequences: dict[tuple[str, TopicPartition], list[tuple[int, int]]] = field(default_factory=dict)
    """Confirmed commits as (event number, sequence), by member and partition."""

    # -- what members do ---------------------------------------------------------------------------------------------

    def holds(self, member: str, where: TopicPartition, may_deliver: MayDeliver) -> None:
        """Notes that a member starts reading a partition; `may_deliver` tells whether it might hand out records
        of it."""
        self._holders.setdefault(where, {})[member] = may_deliver

    def drops(self, member: str, where: TopicPartition) -> None:
        """Notes that a member hands out no more records of a partition."""
        self._holders.get(where, {}).pop(member, None)

    def dies(self, member: str) -> None:
        for holders in self._holders.values():
            holders.pop(member, None)

    def hands_out(self, member: str, where: TopicPartition, begin: int, end: int, offsets: Iterable[int]) -> None:
        """Notes that a member hands out the records from `begin` to `end` (exclusive), at `offsets`; checks that no
        other member could do so now."""
        for other, may_deliver in self._holders.get(where, {}).items():
            if other != member and may_deliver():
                self._violate("exclusive", f"{where}: {member} hands out {begin}, and {other} might as well")
        coverage = self.handed_out.setdefault(where, Coverage())
        for offset in offsets:
            self.counters["records handed out"] += 1
            self.counters["records handed out again"] += offset in coverage
        coverage.add(begin, end)

    def deleted(self, where: TopicPartition, end: int) -> None:
        """Notes that records below `end` are deleted: no member needs to have them."""
        self.handed_out.setdefault(where, Coverage()).add(0, end)

    # -- what the coordinator answers --------------------------------------------------------------------------------

    def sends(self) -> int:
        """Notes that a request reaches a broker; returns its event number."""
        self._now += 1
        return self._now

    def told(self, member: str, identity: str, epoch: int, partitions: Iterable[TopicPartition]) -> None:
        """Checks the partitions that a member is assigned; `identity` is the same for all processes of one static
        member."""
        self._now += 1
        for where in partitions:
            known = self._owners.setdefault((where, epoch), identity)
            if known != identity:
                self._violate("owners", f"{where}: in epoch {epoch}, {member} owns it as well as {known}")
            self._told.setdefault(where, {}).setdefault((member, epoch), self._now)
            before, self._bearers[where, identity] = self._bearers.get((where, identity), member), member
            self.counters["static member returned"] += before != member

    def kept(self, sent: int, request: CommitOffsets, answer: CommitAnswer) -> None:
        """Checks the answer to a commit that reached a broker at event `sent`."""
        self._now += 1
        kept = [
            (TopicPartition(committed.topic, committed.partition), committed.offset)
            for committed, verdict in zip(request.offsets, answer.verdicts, strict=True)
            if verdict.code == KEPT
        ]
        for where, offset in kept:
            self._check_commit(sent, request, where)
            self._check_offset(where, offset)
            self._floors[where] = max(self._floors.get(where, 0), offset)
            self._sequences.setdefault((request.member_id, where), []).append((self._now, request.sequence))

    def _check_commit(self, sent: int, request: CommitOffsets, where: TopicPartition) -> None:
        member, epoch = request.member_id, request.member_epoch
        for (other, since), at in self._told.get(where, {}).items():
            if at < sent and other != member and since > epoch:
                what = f"{member} of epoch {epoch} commits what {other} was given in epoch {since}"
                self._violate("fencing", f"{where}: {what}")
                return
        for at, sequence in self._sequences.get((member, where), ()):
            if at < sent and sequence > request.sequence:
                what = f"commit {request.sequence} of {member} is kept after its commit {sequence}"
                self._violate("sequence", f"{where}: {what}")
                return

    def floors(self) -> Mapping[TopicPartition, int]:
        """Returns the committed offsets that an answer to a request which begins now must reach."""
        return dict(self._floors)

    def found(self, floors: Mapping[TopicPartition, int], answer: OffsetsAnswer) -> None:
        """Checks that fetched committed offsets are not below `floors`, and pass no record that was not handed out."""
        self._now += 1
        for committed in answer.offsets:
            where, offset = TopicPartition(committed.topic, committed.partition), max(committed.offset, 0)
            if offset < floors.get(where, 0) and not self.is_gone():
                self._violate(
                    "offsets",
                    f"{where}: a committed offset of {floors[where]} was kept, and {committed.offset} is found",
                )
            self._check_offset(where, offset)
            self._floors[where] = max(self._floors.get(where, 0), offset)

    def _check_offset(self, where: TopicPartition, offset: int) -> None:
        reach = self.handed_out.get(where, Coverage()).reach()
        if offset > reach:
            self._violate("offsets", f"{where}: the committed offset {offset} passes {reach}, which nobody was given")

    # -- the end -----------------------------------------------------------------------------------------------------

    def missing(self, ends: Mapping[TopicPartition, int]) -> Iterator[str]:
        """Yields the partitions whose records below these end offsets were not all handed out and committed."""
        for where, end in sorted(ends.items()):
            reach, committed = self.handed_out.get(where, Coverage()).reach(), self._floors.get(where, 0)
            if reach < end:
                yield f"{where}: nobody was given {reach}, of {end}"
            elif committed < end:
                yield f"{where}: the committed offset is {committed}, of {end}"

    def _violate(self, rule: str, what: str) -> None:
        self.violate(rule, f"{self.group}: {what}")
