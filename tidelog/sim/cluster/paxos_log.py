"""The true Paxos log of one partition, independent of what any replica knows, over all restarts of all brokers.

The simulator of the pure cores already has such a record (`tidelog.sim.paxos.truth`): what is durable on which disk,
hence what is chosen, in what order and with what effect. Here the engines inside of brokers report to it, and these
rules are checked:

| rule | in words |
|---|---|
| one value is chosen | at a position, ever; and one value has each number there |
| learned was chosen | what a replica applies, a quorum of those who decide has on disk |
| applied alike | every replica applies the same values with the same verdicts, in order, after every restart |
| elected knows | an elected leader has applied all that earlier numbers brought into the log |
| barrier first | no client's value before its leader's barrier is chosen |
| one leader a number | and an epoch's leaders are on one broker |
| an id is one disk's | whoever votes under it has the journal that first did; whoever has no vote gives none |
| durable before visible | what is accepted or promised is on the disk first |
| released was chosen | what a leader releases before all below it is applied, a quorum has on disk |
| released stays | such a value is applied where it was chosen, and never void |
| released in order | it conflicts with nothing below it that is not released |
| kept by enough | what is applied survives the loss of any minority of those who vote, in journals or in logs |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from tidelog.broker.paxos.ballots import epoch_of
from tidelog.replication.paxos.apply import Verdict
from tidelog.replication.paxos.events import Applied, Elected, Jumped, Proposed
from tidelog.replication.paxos.messages import PromiseResponse, WriteResponse
from tidelog.replication.paxos.state import NOP, Kind, Metadata, Prefix, Record, Slot, Status, Value
from tidelog.replication.paxos.voters import VoterSet
from tidelog.replication.quorum import Quorum, parts_of
from tidelog.sim.cluster.book import Book
from tidelog.sim.paxos.truth import Attempt, Truth, Violation

CLIENTS = (Kind.APPEND, Kind.TRUNCATE, Kind.VOTERS)


class Actor(NamedTuple):
    """A replica during one start of its broker; `life` is the number of that start."""

    node: int
    life: int
    engine_id: int
    incarnation: str
    """The incarnation of the voter's journal."""

    def __str__(self) -> str:
        return f"id {self.engine_id} on node {self.node}"


class PaxosLog:
    """The true Paxos log of one partition, with its rules. Methods raise `Violation` if a rule is broken."""

    def __init__(self, book: Book, founders: VoterSet, durable_of: Callable[[int], int]) -> None:
        """Starts with the `founders` as voters. `durable_of` returns the durable end offset of the log on a node."""
        self.book = book
        self.truth = Truth(founders)
        self.proposed: list[VoterSet] = [founders]
        """Voter sets in the order of their proposals, the founders first."""
        self.lost: dict[int, None] = {}
        """Engine ids whose journals are gone, or may have forgotten something."""
        self.lazy: dict[int, None] = {}
        """Engine ids whose disks have the mark `may_forget`, or may have it, because they answer from memory: after a
        crash such an id never votes again."""
        self._durable_of = durable_of
        self._same: dict[int, tuple[int, ...]] = {}
        """All engine ids that the same disk has had, by each of them."""
        self._kept: dict[int, dict[Value, set[int]]] = {}
        """Engine ids that have a value durably in their journals, by position and value."""
        self._owners: dict[int, tuple[int, str]] = {}
        self._users: dict[int, tuple[int, int]] = {}
        self._leaders: dict[int, int] = {}
        self._released: dict[int, Value] = {}
        """Values that a leader released, by position (`commit.order=key` or `none`)."""

    # -- what is known of it -----------------------------------------------------------------------------------------

    @property
    def start_offset(self) -> int:
        """Offset below which records were deleted by agreement."""
        return self.truth.prefixes[-1].start_offset

    @property
    def next_offset(self) -> int:
        return self.truth.prefixes[-1].next_offset

    def possible_voters(self) -> Iterator[VoterSet]:
        """Yields the voter set in force, and all sets proposed after it, which may come into force yet."""
        _, in_force = self.truth.voters[-1]
        yield from self.proposed[self.proposed.index(in_force) :]

    def torn_offsets(self) -> set[int]:
        """Returns the offsets of batches that were chosen by their digests, and that no disk ever held whole: a power
        cut tore each copy. So no client was promised or shown them. All logs keep their offsets, as damaged."""
        return {
            offset
            for position, (value, verdict) in enumerate(self.truth.log)
            if value.kind is Kind.APPEND and verdict is Verdict.APPLIED and value not in self._kept.get(position, {})
            for offset in range(value.base_offset, value.base_offset + value.count)
        }

    @property
    def is_released_ahead(self) -> bool:
        """True if a leader has released a value that no replica has applied yet."""
        return any(position >= len(self.truth.log) for position in self._released)

    def is_released(self, base: int, end: int) -> bool:
        """Returns True if a leader has released a value with these offsets."""
        return any(
            value.base_offset <= base and end <= value.base_offset + value.count for value in self._released.values()
        )

    # -- what replicas do --------------------------------------------------------------------------------------------

    def recovered(self, actor: Actor, record: Record) -> None:
        """Notes a journal record that a replica finds on its disk when it starts: it counts as stored, even if its
        write was never confirmed."""
        if not isinstance(record, Slot) or record.number in self.truth.attempts:
            self.stored(actor.engine_id, record)
        if isinstance(record, Metadata):  # the mark that it may forget is read, and gone with the id
            self.rests(actor.engine_id)

    def stored(self, engine_id: int, record: Record) -> None:
        """Notes that a journal record is durable on the disk of an engine id, for all ids of that disk."""
        for name in self.names_of(engine_id):
            self._stored_as(name, record)

    def begins_to_be_lazy(self, engine_id: int) -> None:
        """Notes that the mark `may_forget` is being written to the disk of an engine id. A start that finds the mark
        asks for another id, even if nothing was answered from memory yet."""
        self.lazy[engine_id] = None

    def rests(self, engine_id: int) -> None:
        """Notes that the mark `may_forget` is cleared on the disk of an engine id: it answers from memory no more, and
        may vote again after a crash."""
        for name in self.names_of(engine_id):
            self.lazy.pop(name, None)

    def is_lazy(self, engine_id: int) -> bool:
        """Returns True if an engine id could not vote again after a crash now, because it may have answered from
        memory."""
        return any(name in self.lazy for name in self.names_of(engine_id))

    def names_of(self, engine_id: int) -> tuple[int, ...]:
        """Returns all engine ids, earlier ones included, of the disk that has this engine id."""
        return self._same.get(engine_id, (engine_id,))

    def accepts_in_memory(self, engine_id: int, records: tuple[Record, ...]) -> None:
        """Notes values that a replica answers as accepted before they are on its disk (`ack.durability=replicated`):
        they count as stored."""
        for record in records:
            if isinstance(record, Slot):
                self.stored(engine_id, record)

    def _stored_as(self, engine_id: int, record: Record) -> None:
        self.truth.on_durable(engine_id, record)
        if isinstance(record, Slot) and not record.faulty:
            self._kept.setdefault(record.position, {}).setdefault(record.value, set()).add(engine_id)
        elif isinstance(record, Prefix):
            self._delete_below(engine_id, record.position)

    def _delete_below(self, engine_id: int, floor: int) -> None:
        """Notes that the journal of an engine id begins at the position `floor` now."""
        dropped = [position for position in self._kept if position < floor]
        for position in dropped:
            for holders in self._kept[position].values():
                holders.discard(engine_id)
        self._check_kept(dropped)

    def _check_kept(self, positions: Iterable[int]) -> None:
        """Checks that the batches at these positions survive the loss of any minority of the voters."""
        _, voters = self.truth.voters[-1]
        lost = [voter for voter in voters.ids if voter in self.lost]
        needed = max(1, (len(voters.ids) - 1) // 2 + 1 - len(lost))
        durable = {voter.voter_id: self._durable_of(voter.node_id) for voter in voters.voters}
        for position in positions:
            value, verdict = self.truth.log[position] if position < len(self.truth.log) else (NOP, Verdict.NOTHING)
            end = value.base_offset + value.count
            if value.kind is not Kind.APPEND or verdict is not Verdict.APPLIED or end <= self.start_offset:
                continue
            journals = self._kept.get(position, {}).get(value, set())
            holders = [
                voter for voter in voters.ids if voter not in lost and (voter in journals or durable[voter] >= end)
            ]
            what = f"{value} at {position} is on the disks of {holders} alone, of {voters.ids}, of whom lost: {lost}"
            self._require(len(holders) >= needed or self.book.is_volatile, "kept by enough", what)

    def renamed(self, before: int, now: int) -> None:
        """Notes that a disk gets another engine id, and keeps its promises and accepted values under the
        earlier one."""
        ids = tuple(dict.fromkeys((*self.names_of(before), now)))
        self._same.update(dict.fromkeys(ids, ids))
        for holders in self._all_holders():
            if before in holders:
                holders.add(now)
        self.truth.voted[now] = max(self.truth.voted.get(now, 0), self.truth.voted.get(before, 0))

    def _all_holders(self) -> Iterator[set[int]]:
        yield from (holders for _, holders in self.truth.accepted.values())
        yield from (holders for values in self._kept.values() for holders in values.values())

    def asks(self, actor: Actor, number: int, quorum: Quorum, voters_position: int) -> None:
        """Checks a candidate that begins an attempt under a ballot number: no other replica may have used the
        number."""
        attempt = Attempt(tuple(tuple(part.members) for part in parts_of(quorum)), voters_position)
        self.truth.attempts.setdefault(number, attempt)
        user = self._users.setdefault(number, (actor.node, actor.life))
        self._require(user == (actor.node, actor.life), "one leader a number", f"{number} of {user} is {actor}'s, too")

    def proposes(self, actor: Actor, proposed: Proposed, voters: VoterSet | None) -> None:
        """Checks a leader that proposes a value at a position. `voters` are the voters in the value, if it changes
        them."""
        value = proposed.value
        if voters is not None:
            self.truth.voter_sets[value.digest] = voters
            self.proposed.append(voters)
        is_first = value.kind not in CLIENTS or value.birth in self.truth.barriers
        self._require(is_first, "barrier first", f"{actor} proposes {value}")

    def applies(self, actor: Actor, applied: Applied) -> None:
        """Checks a replica that applies its next position: the value is chosen, and the same as elsewhere."""
        truth, position = self.truth, applied.position
        is_first = position == len(truth.log)
        truth.on_applied(applied)
        self._check_released(position)
        self._require(position < len(truth.log), "applied alike", f"{actor} leaves out what is before {applied}")
        logged = truth.log[position]
        self._require(
            logged == (applied.value, applied.verdict), "applied alike", f"{actor} {applied}, others {logged}"
        )
        chosen = truth.chosen.get(position)
        self._require(chosen == applied.value, "learned was chosen", f"{actor} {applied}, chosen is {chosen}")
        if is_first and applied.value.kind is Kind.VOTERS:
            self._check_kept(range(position))

    def releases(self, actor: Actor, position: int, value: Value, open_below: Iterable[int]) -> None:
        """Checks a leader that releases a value: it is chosen. `open_below` are the earlier positions that it conflicts
        with and that this leader has not released."""
        chosen = self.truth.chosen.get(position)
        self._require(chosen == value, "released was chosen", f"{actor} releases {value} at {position}, not {chosen}")
        conflicts = [*open_below]
        self._require(not conflicts, "released in order", f"{actor} releases {position}, which follows {conflicts}")
        self._released[position] = value
        if position < len(self.truth.log):
            self._check_released(position)

    def _check_released(self, position: int) -> None:
        value = self._released.get(position)
        logged = self.truth.log[position] if position < len(self.truth.log) else None
        if value is None or logged == (value, Verdict.APPLIED) or self.book.is_volatile:
            return
        # An operator has given up the value, which nobody could read any more.
        is_given_up = logged is not None and logged[0].kind is Kind.NOP and logged[0].begin > 0
        self._require(is_given_up, "released stays", f"{value} was released at {position}, where {logged} is")

    def comes_to_rest(self) -> None:
        """Checks a log at rest, of which everything is applied: all that was released is in it."""
        for position in self._released:
            self._check_released(position)

    def jumps(self, actor: Actor, jumped: Jumped) -> None:
        """Checks a replica that skips positions, to the floor (the beginning) of another replica's log: that log begins
        behind the end of its own."""
        floor, prefixes = jumped.floor, self.truth.prefixes
        prefix = prefixes[floor.position] if floor.position < len(prefixes) else None
        self._require(floor == prefix, "applied alike", f"{actor} jumps to {floor}, where others have {prefix}")

    def elects(self, actor: Actor, elected: Elected, applied_position: int) -> None:
        """Checks a replica that is elected: it has applied all values of earlier ballots."""
        unknown = self.truth.log[applied_position:]
        older = [value for value, _ in unknown if 0 < value.birth < elected.number]
        self._require(not older, "elected knows", f"{actor}, elected under {elected.number}, lacks {older[:1]}")
        self.truth.on_elected(elected.number)
        epoch = epoch_of(elected.number)
        leader = self._leaders.setdefault(epoch, actor.node)
        self._require(leader == actor.node, "one leader a number", f"epoch {epoch} has leaders {leader}, {actor.node}")

    def may_serve(self, number: int, log_end: int, committed: int) -> None:
        """Checks a leader that begins to take requests: the barrier (the first value) of its ballot `number` is chosen,
        and its log, which ends at `log_end`, reaches `committed`, the end of what is committed. (The latter only if no
        larger ballot is in use.)"""
        self._require(number in self.truth.barriers, "barrier first", f"{number} serves before its barrier is chosen")
        is_newest = number >= max(self._users, default=0)
        is_whole = log_end >= committed or not is_newest
        self._require(is_whole, "elected knows", f"{number} serves a log that ends at {log_end}, not at {committed}")

    def votes(self, actor: Actor, status: Status, response: PromiseResponse | WriteResponse) -> None:
        """Checks a replica that promises, or accepts a write: the promise or value is durable, and the id may vote."""
        owner = self._owners.setdefault(actor.engine_id, (actor.node, actor.incarnation))
        is_its_own = owner == (actor.node, actor.incarnation)
        self._require(is_its_own, "an id is one disk's", f"{actor} votes, and {owner[0]} did with journal {owner[1]}")
        self._require(status is Status.VOTING, "an id is one disk's", f"{actor} votes, and is {status.value}")
        if isinstance(response, PromiseResponse):
            is_durable = self.truth.voted.get(actor.engine_id, 0) >= response.number
        else:
            accepted_at = response.position, response.number
            is_durable = (
                accepted_at[0] in self.truth.chosen
                or actor.engine_id in self.truth.accepted.get(accepted_at, (0, ()))[1]
            )
        self._require(is_durable, "durable before visible", f"{actor} says {response}")

    def _require(self, holds: bool, rule: str, what: str) -> None:
        if not holds:
            raise Violation(f"{rule}: {self.book.name}: {what}")
