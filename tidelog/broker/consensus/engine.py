"""Runs a Paxos engine (`PaxosNode`): passes it one event at a time, and carries out its effects in order.

Nothing is decided here. Effects can be carried out at once, since the engine holds back whatever depends on the disk
until `Stored`; so a step never waits. If a listener causes another event while it handles an effect (for example an
append when elected), that event is queued behind the current step.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import structs

from tidelog.broker.consensus.disk import ReplicaDisk
from tidelog.broker.consensus.messages import PaxosFrame, values_of
from tidelog.broker.consensus.payloads import Payloads, split
from tidelog.model.errors import DamagedBatch
from tidelog.model.ports import Buffer, Entropy
from tidelog.replication.paxos.events import (
    Append,
    Applied,
    Awaits,
    Chosen,
    Damaged,
    Delete,
    DeletePrefix,
    Effect,
    Elected,
    Event,
    Halted,
    Jumped,
    Lost,
    Persist,
    Proposed,
    Received,
    Refused,
    Released,
    Repaired,
    Restored,
    Send,
    SetTimer,
    StatusChanged,
    Stored,
    StoreFailed,
    Timer,
    TimerFired,
    Truncate,
    VotersFound,
)
from tidelog.replication.paxos.messages import Learned, LearnResponse, Message, PromiseResponse, WriteResponse
from tidelog.replication.paxos.node import PaxosNode
from tidelog.replication.paxos.state import Kind, Slot, Value

TIMER_MS = {Timer.RESEND: 100.0, Timer.CATCHUP: 200.0, Timer.RECOVER: 100.0}
"""T in milliseconds of each timer, which fires after a time drawn from [T, 2T)."""
LEARN_BYTES_MAX = 4 << 20
"""Bytes of payloads in one answer to a replica that catches up; a single larger payload is sent all the same."""

NOTICE_S = 0.005
"""Seconds that a notice of a chosen value may wait for another message to the same replica."""

Post = Callable[[int, PaxosFrame, Sequence[Buffer]], None]


LogEffect = (
    Applied
    | Chosen
    | Released
    | Repaired
    | Proposed
    | Refused
    | Elected
    | Awaits
    | Lost
    | VotersFound
    | Jumped
    | StatusChanged
    | Halted
)
"""Effects of an engine that are passed to its owner."""


class EngineListener(Protocol):
    """The owner of an engine, which handles the effects that concern its log."""

    def on_effect(self, effect: LogEffect) -> None: ...


class Engine:
    """Runs one replica of one log. All methods are for the event loop's thread."""

    def __init__(
        self,
        node: PaxosNode,
        disk: ReplicaDisk,
        post: Post,
        listener: EngineListener,
        entropy: Entropy,
        *,
        notice_s: float = 0.0,
    ) -> None:
        """Notices of chosen values are put off for up to `notice_s` seconds, to be sent along with the next message: no
        answer depends on them, and a frame of their own would wake the peer."""
        self.node = node
        self.disk = disk
        self.payloads = Payloads()
        self._post = post
        self._listener = listener
        self._entropy = entropy
        self._events: deque[Event] = deque()
        self._is_stepping = False
        self._timers: dict[Timer, asyncio.TimerHandle] = {}
        self._notice_s = notice_s
        self._notices: dict[int, list[Learned]] = {}
        self._notices_due: asyncio.TimerHandle | None = None
        self.former_ids: tuple[int, ...] = ()
        """Earlier ids of this disk, whose promises it remembers. Messages to these ids are answered under them: at
        once, or, if the answer has to wait for the disk, when the message is repeated."""
        self.on_missing: Callable[[int], None] = lambda position: None
        """Called with the position of a value whose payload cannot be read anywhere on this disk."""
        self._addressed_as = 0
        self._answer: Proposed | Refused | None = None
        disk.on_stored = lambda sequence: self.step(Stored(sequence))
        disk.on_failed = lambda: self.step(StoreFailed())

    def step(self, event: Event) -> None:
        """Passes an event to the engine, and carries out its effects."""
        self._events.append(event)
        # An effect that causes another event must see this step's effects carried out first, in their order.
        if self._is_stepping:
            return
        self._is_stepping = True
        try:
            while self._events:
                for effect in self.node.step(self._events.popleft()):
                    self._carry_out(effect)
        finally:
            self._is_stepping = False

    def propose(self, event: Append | Truncate | Delete) -> Proposed | Refused | None:
        """Asks the engine to propose a value; returns its answer, or None when called from within another step."""
        # From within another step the event is only queued, and there is no answer yet.
        self._answer = None
        self.step(event)
        return self._answer

    def receive(self, frame: PaxosFrame, payload: memoryview) -> None:
        """Handles a peer's message; ignores one that is addressed to another id, or whose payloads do not match their
        digests."""
        # The message was meant for a disk that is lost: this one has none of its promises, and must not answer for it.
        if frame.to != self.node.node and frame.to not in self.former_ids:
            return
        values = [value for _, value in values_of(frame.message)]
        # Digests are checked before the engine hears of anything: a value that is accepted is promised to be readable.
        parts = split(payload, frame.sizes, values) if len(frame.sizes) == len(values) else None
        if parts is None:
            return
        # What is chosen first: the message itself may be about the position behind.
        for notice in frame.notices:
            self.step(Received(frame.sender, notice))
        for value, part in zip(values, parts, strict=True):
            self.payloads.hold_as(value.digest, part)
        # The answer leaves under the id that was asked for: under another one it would be no vote for the sender.
        self._addressed_as = frame.to
        try:
            self.step(Received(frame.sender, frame.message))
        finally:
            self._addressed_as = 0
        # Only a proposer reads payloads back, so a replica that proposes nothing needs few of them in memory.
        if self.node.is_idle:
            self.payloads.trim(is_any_open=self.node.replica.is_any_open)

    def payload_of(self, position: int, value: Value) -> bytes | None:
        """Returns the payload of a value at its position as bytes; None if no copy on this disk can be read."""
        payload = self.buffer_of(position, value)
        return None if payload is None else bytes(payload)

    def buffer_of(self, position: int, value: Value) -> Buffer | None:
        """Returns the payload of a value at its position, without copying it; None if no copy on this disk can
        be read."""
        # Memory first: what was just written is read back in the next frame.
        held = self.payloads.get(value.digest)
        if held is not None:
            return held
        try:
            return self.disk.read(position, value)
        except DamagedBatch:
            self.step(Damaged(position))
            return self._restore(position, value)

    def _restore(self, position: int, value: Value) -> Buffer | None:
        """Writes a payload to the journal again, which has lost it. Takes it from memory or the state machine, and
        returns it; None if neither has it."""
        payload = self.payloads.get(value.digest) or self.disk.applied_copy(value)
        if payload is None:
            self.on_missing(position)
        else:
            self.restore(position, value, payload)
        return payload

    def restore(self, position: int, value: Value, payload: Buffer) -> None:
        """Writes this payload again where the journal has lost it; its digest must be the value's."""
        self.payloads.hold_as(value.digest, payload)
        self.step(Restored(position))

    def copy_of(self, position: int, value: Value) -> Buffer | None:
        """Returns the payload of a value that another replica has at this position, from memory, the journal or the
        state machine, whatever value this journal has at the position; None if there is no copy. Raises `Overloaded`.
        """
        slot = self.node.replica.slots.get(position)
        # The journal may have another value at the position, accepted under another number; only the digest tells.
        if slot is not None and slot.value.digest == value.digest:
            return self.buffer_of(position, slot.value)
        return self.payloads.get(value.digest) or self.disk.applied_copy(value)

    def write_anew(self, position: int | None) -> None:
        """Writes the damaged journal entry of a position, or of the floor (None), again. If the payload is not on this
        disk, the slot becomes faulty, and another replica has to send the payload."""
        replica = self.node.replica
        if position is None:
            self.disk.rewrite_floor(replica.floor)
            return
        slot = replica.slots.get(position)
        # Even the value's name is lost, so there is nothing to write; another replica has to show it.
        if slot is None or slot.value.kind is Kind.UNKNOWN:
            return
        if slot.value.digest and not self.disk.log.has_payload(position, slot.value.digest):
            # The engine hears of it first: until the payload is there again the slot counts as faulty, and nobody is
            # told that this disk could give it.
            self.step(Damaged(position))
            if self._restore(position, slot.value) is not None:
                return
            # Read again, since that step has replaced the slot by a faulty one.
            slot = replica.slots[position]
        self.disk.rewrite(slot)

    def push(self, applied: Applied, learners: Sequence[int]) -> None:
        """Sends a chosen value to learners, which would otherwise get it at their next request. Voters have accepted
        it, and need only a notice."""
        # Number 0: a learned slot says what is chosen, and accepts nothing.
        slot = Slot(applied.position, 0, applied.value, learned=True)
        response = LearnResponse(self.node.replica.floor, (slot,), applied.position + 1)
        for learner in learners:
            self._send(learner, response)

    def close(self) -> None:
        """Sends the notices of chosen values that were put off, and cancels all timers."""
        self._give_notice()
        self.disk.close()
        for handle in self._timers.values():
            handle.cancel()
        self._timers.clear()

    # -- effects -----------------------------------------------------------------------------------------------------

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Persist():
                self.disk.persist(effect, self.payloads)
            case Send(to, message):
                self._send(to, message)
            case SetTimer(timer, token):
                self._set_timer(timer, token)
            case DeletePrefix(begin):
                self.disk.delete_below(begin)
            case Halted():
                self.close()
                self._listener.on_effect(effect)
            case Lost():
                # `VotersFound` comes before `Lost`, so its payload has been read by now.
                self.payloads.clear()
                self._listener.on_effect(effect)
            case Applied():
                self._listener.on_effect(effect)
                # After the delivery, which reads the payload back.
                self.payloads.release(effect.value.digest)
            case Proposed() | Refused():
                # The first answer is the caller's; what follows from it in the same step may propose more.
                if self._answer is None:
                    self._answer = effect
                self._listener.on_effect(effect)
            case _:  # these are the owner's affair alone
                self._listener.on_effect(effect)

    def _send(self, to: int, message: Message) -> None:
        if isinstance(message, LearnResponse):
            self._send_learned(to, message)
            return
        if isinstance(message, Learned) and self._notice_s > 0:
            self._put_off(to, message)
            return
        payloads = [self.buffer_of(position, value) for position, value in values_of(message)]
        readable = [payload for payload in payloads if payload is not None]
        # A message without one of its payloads would be refused as damaged; not sent, it is asked for again.
        if len(readable) == len(payloads):
            self._post_in_order(to, message, readable)

    def _post_in_order(self, to: int, message: Message, payloads: Sequence[Buffer]) -> None:
        """Sends a message together with the notices of chosen values that were put off for its receiver, which must not
        arrive after it."""
        notices = tuple(self._notices.pop(to, ()))
        is_answer = isinstance(message, PromiseResponse | WriteResponse)
        sender = self._addressed_as if is_answer and self._addressed_as else self.node.node
        self._post(to, PaxosFrame(sender, to, message, tuple(map(len, payloads)), notices), payloads)

    def _put_off(self, to: int, notice: Learned) -> None:
        self._notices.setdefault(to, []).append(notice)
        if self._notices_due is None:
            self._notices_due = asyncio.get_running_loop().call_later(self._notice_s, self._give_notice)

    def _give_notice(self) -> None:
        """Sends the notices of chosen values that were put off (`notice_s`), one frame to each replica."""
        if self._notices_due is not None:
            self._notices_due.cancel()
            self._notices_due = None
        notices, self._notices = self._notices, {}
        for to, (first, *rest) in notices.items():
            self._post(to, PaxosFrame(self.node.node, to, first, notices=tuple(rest)), ())

    def _send_learned(self, to: int, message: LearnResponse) -> None:
        """Sends the slots of an answer that fit into one frame."""
        slots: list[Slot] = []
        sent_payloads: list[Buffer] = []
        total = 0
        for slot in message.slots:
            payload = None
            if slot.value.digest and not slot.faulty:
                payload = self.buffer_of(slot.position, slot.value)
                if payload is None:
                    # The value is chosen, and the one who asks can learn its name at least; it fetches the payload from
                    # others.
                    slots.append(structs.replace(slot, faulty=True))
                    continue
                total += len(payload)
                # One payload always goes, or a large one would never arrive.
                if sent_payloads and total > LEARN_BYTES_MAX:
                    break
                sent_payloads.append(payload)
            slots.append(slot)
        shown = LearnResponse(message.floor, tuple(slots), message.learned_end)
        self._post_in_order(to, shown, sent_payloads)

    def _set_timer(self, timer: Timer, token: int) -> None:
        previous = self._timers.pop(timer, None)
        if previous is not None:
            previous.cancel()
        # Drawn anew each time: replicas that lost sight of each other at one moment would else ask in step for ever.
        delay_s = TIMER_MS[timer] * self._entropy.uniform(1, 2) / 1000
        fire = TimerFired(timer, token)
        self._timers[timer] = asyncio.get_running_loop().call_later(delay_s, self.step, fire)
