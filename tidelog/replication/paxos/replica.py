"""A replica: acceptor and learner of one log.

The acceptor's two rules are Paxos' own, for a log of many positions:

- *Promise(n)*: unless a larger number is known, promise to accept nothing smaller than n, at any position, and report
  every open slot. One promise covers all positions, also those that are still unused.
- *Write(n, p, v)*: unless the log has promised more than n, or the slot has accepted more, accept v at p under n.

The second condition of the write rule is missing in Mesos. Here the number accepted *is* the slot's promise.

The learner takes values that other nodes report as chosen, in any state and order, and never changes them again. It
applies them in order (`apply.py`). A learned slot still answers: a repeated write gets its ACCEPT, a write of another
value gets the chosen one.

A slot whose payload the disk has lost is reported as *faulty* with its number, never as empty: its value may be chosen
(the CTRL paper). Its payload comes back with any message that carries an equal value. If even the value's digest is
lost (UNKNOWN), it comes back with a write under the same number, or with a learned copy; an accepted number is never
forgotten. A value that is written by its digest alone is accepted as faulty.
"""

from __future__ import annotations

from msgspec import structs

from tidelog.replication.paxos.apply import Verdict, fold, fold_to
from tidelog.replication.paxos.events import (
    Action,
    Admit,
    Applied,
    DeletePrefix,
    Jumped,
    Persist,
    Repaired,
    Send,
    StatusChanged,
)
from tidelog.replication.paxos.journal import Journal
from tidelog.replication.paxos.messages import (
    Learned,
    LearnRequest,
    LearnResponse,
    PromiseRequest,
    PromiseResponse,
    Reply,
    WriteRequest,
    WriteResponse,
)
from tidelog.replication.paxos.numbers import NO_NUMBER
from tidelog.replication.paxos.state import (
    UNKNOWN,
    WITH_PAYLOAD,
    Kind,
    Metadata,
    Prefix,
    Slot,
    Status,
    StoredLog,
    Value,
)

BEATS_TO_REST = 10
"""The number of CATCHUP timers in a row without a lazy write (one that is answered before it is on disk) after which
`Metadata.may_forget` is cleared."""
EARLY_MAX = 64
"""The most notices of chosen values that are kept until the writes come."""
SLOTS_PER_ANSWER_MAX = 64
"""The most learned slots in one `LearnResponse`."""
HELD_MAX = 4_096
"""The most positions in a `LearnRequest.held`, as many as a coordinator may have in flight."""


class HistoriesDiffer(AssertionError):
    """A peer has another value at a position that is learned here: one of the two disks does not belong to this log, or
    is an old copy."""


class Replica:
    """A replica of one log. Invariants: floor.position <= applied.position <= end; every position below
    `applied.position` is learned; `promised`, and the number of a slot until it is learned, never decrease."""

    def __init__(self, stored: StoredLog) -> None:
        self.metadata = stored.metadata
        self.floor = stored.floor
        self.applied = stored.floor
        # The head is deleted after the floor is durable: a crash in between leaves slots below it.
        self.slots = {slot.position: slot for slot in stored.slots if slot.position >= self.floor.position}
        self.end = max([self.floor.position, *(position + 1 for position in self.slots)])
        self.highest = max([self.metadata.promised, *(slot.number for slot in self.slots.values())])
        """The largest proposal number that was promised or accepted here."""
        self._early: dict[int, Value] = {}
        """The chosen values, by position, of notices that came before the writes did."""
        self._faulty = {position for position, slot in self.slots.items() if slot.faulty and slot.learned}
        self.journal: Journal[Action] = Journal()
        self.voters_since = stored.voters_since
        self.voters_position = -1
        """The position of the newest VOTERS value applied since the process started; values below the floor are in a
        snapshot."""
        self.is_halted = False
        self._mark: Persist | None = None
        """The write that sets `Metadata.may_forget`; None while that is not set."""
        self._beats = 0
        self.is_changing = False
        """True while a change of status is being written to disk."""

    @property
    def begin(self) -> int:
        """Returns the first position that is not truncated."""
        return self.floor.position

    @property
    def is_any_open(self) -> bool:
        """True if a value is accepted here at a position that is not known to be chosen."""
        return self.applied.position < self.end

    def faulty(self) -> list[int]:
        """Returns the learned positions whose payloads must come from a peer, in order."""
        return sorted(self._faulty)

    # -- acceptor ----------------------------------------------------------------------------------------------------

    def promise(self, sender: int, request: PromiseRequest) -> list[Action]:
        number = request.number
        if self._refuses_to_vote():
            return [Send(sender, PromiseResponse(self._refusal(), number))]
        # An accepted number counts as promised, also if its promise request never came: this replica has taken part in
        # that term, so older ones are over here. An equal number is the same proposer's, which asks again.
        if number < self.highest:
            return [Send(sender, PromiseResponse(Reply.REJECT, number, self.highest))]
        actions: list[Action] = []
        if number > self.metadata.promised:
            actions.append(self._promise(number))
        elif self.journal.is_lazy:
            # What a promise tells counts for good: whose answer shows that VOTERS are learned is one of those who keep
            # them known. So learned slots that are not on disk yet go there first.
            actions.append(self.journal.persist())
        slots = self._report(max(request.position, self.applied.position))
        answer = PromiseResponse(Reply.ACCEPT, number, learned_end=self.applied.position, slots=slots)
        return [*actions, *self.journal.when_durable(Send(sender, answer))]

    def _report(self, position: int) -> tuple[Slot, ...]:
        """Returns every slot of this replica from `position` on, for a promise."""
        # Faulty slots are reported as what they are. Left out, they would deny values that may be chosen.
        return tuple(self.slots[p] for p in range(position, self.end) if p in self.slots)

    def write(self, sender: int, request: WriteRequest) -> list[Action]:
        number, position, value = request.number, request.position, request.value
        if self._refuses_to_vote():
            return [Send(sender, WriteResponse(self._refusal(), number, position))]
        # What is truncated was learned, and is settled for good.
        if position < self.begin:
            return [Send(sender, WriteResponse(Reply.LEARNED, number, position))]
        slot = self.slots.get(position)
        if slot is not None and slot.learned:
            return self._write_again(sender, request, slot)
        if self._is_outdated(number, slot):
            # A REJECT promises nothing, so it need not wait for the disk.
            return [Send(sender, WriteResponse(Reply.REJECT, number, position, self.highest))]
        is_repeated = slot is not None and slot.number == number
        if slot is not None and is_repeated:
            assert slot.value in (value, UNKNOWN), "a number names one value per position"
        actions: list[Action] = self._begin_to_be_lazy() if request.is_lazy else []
        # Lazy only when `may_forget` is on disk. Otherwise a crash could forget this accept, and the replica would go
        # on voting under an id that a quorum has counted.
        is_lazy = request.is_lazy and self._mark is not None and self.journal.is_durable(self._mark)
        # A repeated write of a slot that is whole changes nothing; to a faulty one it brings the payload back.
        if slot is None or not is_repeated or slot.faulty:
            is_held = slot is not None and slot.value == value and not slot.faulty
            accepted = Slot(position, number, value, faulty=request.is_named and not is_held)
            actions.append(self._store(accepted, is_urgent=not is_lazy, is_soon=is_lazy))
        self.highest = max(self.highest, number)
        answer = Send(sender, WriteResponse(Reply.ACCEPT, number, position))
        learned = self.hear(Learned(position, value)) if self._early.pop(position, None) == value else []
        # Durable before visible: an accept that was counted and then forgotten could let another value be chosen.
        return [*actions, *([answer] if is_lazy else self.journal.when_durable(answer)), *learned]

    def _begin_to_be_lazy(self) -> list[Action]:
        """Records on disk that this replica may forget values that it has accepted (`Metadata.may_forget`), before its
        first answer that does not wait for the disk."""
        self._beats = 0
        if self._mark is not None:
            return []
        self.metadata = structs.replace(self.metadata, may_forget=True)
        self._mark = self.journal.persist(self.metadata)
        return [self._mark]

    def beat(self) -> list[Action]:
        """Clears `Metadata.may_forget` after `BEATS_TO_REST` CATCHUP timers without a lazy write, once everything is on
        disk."""
        self._beats += 1
        if self._mark is None or self._beats < BEATS_TO_REST:
            return []
        if not self.journal.is_settled:
            return [self.journal.persist()] if self.journal.is_lazy else []
        # From here on a lazy write sets the mark anew, and waits for it. If a crash loses this write instead, the
        # replica gives up an id that it could have kept: that costs a change of voters, and no data.
        self._mark = None
        self.metadata = structs.replace(self.metadata, may_forget=False)
        return [self.journal.persist(self.metadata, is_urgent=False)]

    def _is_outdated(self, number: int, slot: Slot | None) -> bool:
        # In Mesos an accept leaves the slot's promise as it was. Then a late write of an older coordinator, at a
        # replica that missed the newer one's promise, puts the older value back over the newer, which may be chosen.
        return number < self.metadata.promised or (slot is not None and number < slot.number)

    def _write_again(self, sender: int, request: WriteRequest, slot: Slot) -> list[Action]:
        """Answers a write to a learned slot, which can arrive after the notice that its value is chosen."""
        number, position = request.number, request.position
        if request.value != slot.value:
            return [Send(sender, WriteResponse(Reply.LEARNED, number, position, value=slot.value))]
        # This ACCEPT waits for no disk: the value is chosen, whatever this replica may forget. Without an answer (as in
        # Mesos) a proposer whose other voters are down would wait for ever.
        repairs = self.learn(position, slot.value, has_payload=not request.is_named)
        answer = WriteResponse(Reply.ACCEPT, number, position, is_learned=slot.number != number)
        return [*repairs, Send(sender, answer)]

    def _refuses_to_vote(self) -> bool:
        return self.is_halted or self.metadata.status is not Status.VOTING

    def _refusal(self) -> Reply:
        return Reply.STORAGE_ERROR if self.is_halted else Reply.IGNORED

    # -- learner -----------------------------------------------------------------------------------------------------

    def learn(self, position: int, value: Value, *, has_payload: bool) -> list[Action]:
        """Records that this value is chosen. If its payload is neither given nor on this disk, the slot becomes
        faulty."""
        if position < self.begin or self.is_halted:
            return []
        slot = self.slots.get(position)
        is_held = slot is not None and slot.value == value and not slot.faulty
        has_payload = has_payload or is_held or value.kind not in WITH_PAYLOAD
        if slot is not None and slot.learned:
            if slot.value != value:
                raise HistoriesDiffer(f"what is chosen never changes, and at position {position} it differs")
            if has_payload and slot.faulty:
                return [self._store(structs.replace(slot, faulty=False), is_urgent=False), Repaired(position)]
            return []
        # The accepted number stays only with the value that was accepted under it. Kept with another value, it would
        # let (position, number) name two.
        number = slot.number if slot is not None and slot.value in (value, UNKNOWN) else NO_NUMBER
        learned = Slot(position, number, value, learned=True, faulty=not has_payload)
        # Not urgent: what is chosen can be had again from others, so nobody waits for this write.
        return [self._store(learned, is_urgent=False), *self.apply()]

    def hear(self, notice: Learned) -> list[Action]:
        """Takes a `Learned` notice, which has no payload: it has an effect only if this replica has accepted the value,
        or else once the write comes."""
        slot = self.slots.get(notice.position)
        if notice.value.kind in WITH_PAYLOAD and (slot is None or slot.value != notice.value):
            self._early[notice.position] = notice.value
            if len(self._early) > EARLY_MAX:
                del self._early[next(iter(self._early))]
            return []
        return self.learn(notice.position, notice.value, has_payload=False)

    def tell(self, sender: int, request: LearnRequest) -> list[Action]:
        """Answers a `LearnRequest` with learned slots, lowest positions first."""
        # In any status: a replica without a vote may still tell what is chosen, for that never changes.
        learned: list[Slot] = []
        for position in range(max(request.position, self.begin), min(request.end, self.end)):
            if self._is_learned(position) and not request.is_held(position):
                learned.append(self.slots[position])
                if len(learned) == SLOTS_PER_ANSWER_MAX:
                    break
        return [Send(sender, LearnResponse(self.floor, tuple(learned), self.applied.position))]

    def request(self) -> LearnRequest:
        """Returns a request for all learned slots that this replica lacks above its applied prefix."""
        begin = self.applied.position
        end = min(self.end, begin + HELD_MAX)
        held = sum(1 << position - begin for position in range(begin, end) if self._is_learned(position))
        return LearnRequest(begin, held=held.to_bytes((held.bit_length() + 7) // 8, "little"))

    def take(self, response: LearnResponse) -> list[Action]:
        """Copies a peer's learned slots. If the peer's log begins behind this replica's applied prefix, this log
        continues at the peer's floor (first position)."""
        actions: list[Action] = []
        if response.floor.position > self.applied.position and not self.is_halted:
            actions += self._raise_floor(response.floor)
            self.applied = response.floor
            self.end = max(self.end, self.begin)
            actions += [Jumped(response.floor), *self.apply()]
        for slot in response.slots:
            actions += self.learn(slot.position, slot.value, has_payload=not slot.faulty)
        return actions

    def apply(self) -> list[Action]:
        """Applies learned positions in order, up to the first that is not learned."""
        actions: list[Action] = []
        while (slot := self.slots.get(self.applied.position)) is not None and slot.learned:
            self.applied, verdict = fold(self.applied, slot.value)
            actions.append(Applied(slot.position, slot.value, verdict, slot.faulty))
            if slot.value.names_voters(self.voters_since) and verdict is Verdict.APPLIED:
                self.voters_position = slot.position
            if slot.value.kind is Kind.TRUNCATE and verdict is Verdict.APPLIED and slot.value.begin > self.begin:
                assert slot.value.begin <= slot.position
                # The floor is folded, not just set: what is void behind it depends on the newest birth before it.
                actions += self._raise_floor(fold_to(self.floor, self.slots, slot.value.begin))
        return actions

    def note_payload(self, position: int, *, is_here: bool) -> list[Action]:
        """Records that the payload at this position cannot be read, or can be read again."""
        slot = self.slots.get(position)
        if slot is None or slot.value.kind not in WITH_PAYLOAD or slot.faulty is not is_here:
            return []
        if not is_here:
            self._put(structs.replace(slot, faulty=True))
            return []
        stored = self._store(structs.replace(slot, faulty=False), is_urgent=False)
        return [stored, Repaired(position)] if slot.learned else [stored]

    # -- storage -----------------------------------------------------------------------------------------------------

    def issue(self, number: int, *, is_rejoining: bool) -> Persist:
        """Returns the write that records a proposal number of this node as used. A rejoining replica does not vote from
        here on."""
        assert number > self.metadata.issued
        status = Status.RECOVERING if is_rejoining else self.metadata.status
        self.metadata = structs.replace(self.metadata, issued=number, status=status)
        return self.journal.persist(self.metadata)

    def _promise(self, number: int) -> Persist:
        assert number > self.metadata.promised
        self.highest = number
        self.metadata = structs.replace(self.metadata, promised=number)
        return self.journal.persist(self.metadata)

    def change(self, metadata: Metadata) -> list[Action]:
        """Writes metadata with another status; the caller calls `admit` when it is durable."""
        # It counts only from then on: a vote given before could be forgotten by a crash, together with the right to it.
        assert not self.is_changing and self._mark is None
        self.is_changing = True
        return [self.journal.persist(metadata), *self.journal.when_durable(Admit(metadata))]

    def admit(self, metadata: Metadata) -> list[Action]:
        """Takes over metadata that has become durable, and reports a change of status."""
        self.is_changing = False
        self.metadata = metadata
        self.highest = max(self.highest, metadata.promised)
        return [StatusChanged(metadata.status)]

    def _store(self, slot: Slot, *, is_urgent: bool = True, is_soon: bool = False) -> Persist:
        self._put(slot)
        return self.journal.persist(slot, is_urgent=is_urgent, is_soon=is_soon)

    def _put(self, slot: Slot) -> None:
        self.slots[slot.position] = slot
        self.end = max(self.end, slot.position + 1)
        if slot.faulty and slot.learned:
            self._faulty.add(slot.position)
        else:
            self._faulty.discard(slot.position)

    def _raise_floor(self, floor: Prefix) -> list[Action]:
        """Moves the log's floor (its first position, and the state there) up to `floor`, and drops the slots below
        it."""
        for position in range(self.floor.position, floor.position):
            self.slots.pop(position, None)
            self._faulty.discard(position)
        self.floor = floor
        persist = self.journal.persist(floor)
        # The floor first, then the deletion: the other way round a crash would leave an acceptor without slots that it
        # accepted, and nothing to say that they were learned.
        return [persist, *self.journal.when_durable(DeletePrefix(floor.position))]

    def _is_learned(self, position: int) -> bool:
        slot = self.slots.get(position)
        return slot is not None and slot.learned
