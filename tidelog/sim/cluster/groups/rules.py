"""The rules of a consumer group, whatever befalls its members, its coordinator and the network.

The omniscient side: told of everything that members are told, ask for and hand out, in the order in which it happens.

| rule | in words |
|---|---|
| delivery | in the end every record was handed out, from where the group began, and is committed |
| offsets | no committed offset passes a record that was not handed out; what was answered as kept is found |
| | afterwards, whatever crashed; committed offsets never go back |
| owners | of one epoch a partition has one owner |
| exclusive | nobody hands out records of a partition while another member holds it and might, too: at one instant of |
| | true time, not by anybody's clock |
| fencing | no commit is kept of a member whose partition was given to another before it was sent |
| sequence | no commit is kept that was sent after the answer to a later one of the same member |

"Before" and "after" are those of true time, so nothing is demanded of two things that overlap. A request is *sent* when
it reaches a broker: one that was under way for seconds is judged by then.
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
"""True if a member might hand out records at this instant."""


@dataclass(slots=True, eq=False)
class GroupRules:
    """The rules, applied to one group."""

    group: str
    violate: Callable[[str, str], None]
    """Is told the rule and what is wrong."""
    counters: Counter[str] = field(default_factory=Counter)
    handed_out: dict[TopicPartition, Coverage] = field(default_factory=dict)
    is_gone: Callable[[], bool] = lambda: False
    """True if the group's committed offsets were destroyed on purpose: nothing is demanded of them any more."""
    _now: int = 0
    """Counts events."""
    _holders: dict[TopicPartition, dict[str, MayDeliver]] = field(default_factory=dict)
    _owners: dict[tuple[TopicPartition, int], str] = field(default_factory=dict)
    """The owner's identity, by partition and epoch."""
    _told: dict[TopicPartition, dict[tuple[str, int], int]] = field(default_factory=dict)
    """The time at which a partition was first given, by partition, member and epoch."""
    _bearers: dict[tuple[TopicPartition, str], str] = field(default_factory=dict)
    """The member that was last given the partition, among those with one identity."""
    _floors: dict[TopicPartition, int] = field(default_factory=dict)
    """No committed offset is lower than this any more."""
    _sequences: dict[tuple[str, TopicPartition], list[tuple[int, int]]] = field(default_factory=dict)
    """The commits that were answered as kept, by member and partition: (when, sequence)."""

    # -- what members do ---------------------------------------------------------------------------------------------

    def holds(self, member: str, where: TopicPartition, may_deliver: MayDeliver) -> None:
        """A member begins with a partition."""
        self._holders.setdefault(where, {})[member] = may_deliver

    def drops(self, member: str, where: TopicPartition) -> None:
        """It does not hand out any more of it, until it begins again."""
        self._holders.get(where, {}).pop(member, None)

    def dies(self, member: str) -> None:
        for holders in self._holders.values():
            holders.pop(member, None)

    def hands_out(self, member: str, where: TopicPartition, begin: int, end: int, offsets: Iterable[int]) -> None:
        """All records from `begin` on that are before `end`; these have the given `offsets`."""
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
        """A request reaches a broker. Returns when."""
        self._now += 1
        return self._now

    def told(self, member: str, identity: str, epoch: int, partitions: Iterable[TopicPartition]) -> None:
        """A member is told what it may own; `identity` is the same for all that are one static member."""
        self._now += 1
        for where in partitions:
            known = self._owners.setdefault((where, epoch), identity)
            if known != identity:
                self._violate("owners", f"{where}: in epoch {epoch}, {member} owns it as well as {known}")
            self._told.setdefault(where, {}).setdefault((member, epoch), self._now)
            before, self._bearers[where, identity] = self._bearers.get((where, identity), member), member
            self.counters["static member returned"] += before != member

    def kept(self, sent: int, request: CommitOffsets, answer: CommitAnswer) -> None:
        """A commit that was sent then is answered."""
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
        """Returns the committed offsets that a request which begins now must not find lowered."""
        return dict(self._floors)

    def found(self, floors: Mapping[TopicPartition, int], answer: OffsetsAnswer) -> None:
        """It is told these."""
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
        """Yields which records below these ends were not handed out yet, or are not committed."""
        for where, end in sorted(ends.items()):
            reach, committed = self.handed_out.get(where, Coverage()).reach(), self._floors.get(where, 0)
            if reach < end:
                yield f"{where}: nobody was given {reach}, of {end}"
            elif committed < end:
                yield f"{where}: the committed offset is {committed}, of {end}"

    def _violate(self, rule: str, what: str) -> None:
        self.violate(rule, f"{self.group}: {what}")
