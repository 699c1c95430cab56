"""Formats events and effects as one line each, for traces and golden scripts.

A ballot is written round.node (3.1), a value by its kind, digest and the ballot that proposed it first (append 7 @3.1),
a slot as position=value under the ballot that accepted it, a prefix as position/epoch/next offset.
"""

from __future__ import annotations

from tidelog.replication.paxos import events as e
from tidelog.replication.paxos import messages as m
from tidelog.replication.paxos.numbers import NO_NUMBER, owner_of, round_of
from tidelog.replication.paxos.state import Kind, Metadata, Prefix, Record, Slot, Value
from tidelog.replication.quorum import Joint, Quorum


def number_text(number: int) -> str:
    return "none" if number == NO_NUMBER else f"{round_of(number)}.{owner_of(number)}"


def digest_text(digest: bytes) -> str:
    """Returns a digest as text: in the simulator, digests are short names of batches, or voter ids."""
    return digest.decode()


def value_text(value: Value) -> str:
    match value.kind:
        case Kind.NOP:
            return "nop"
        case Kind.BARRIER:
            return f"barrier@{number_text(value.birth)}"
        case Kind.TRUNCATE:
            return f"truncate to {value.begin} @{number_text(value.birth)}"
        case Kind.DELETE:
            return f"delete to {value.base_offset} @{number_text(value.birth)}"
        case Kind.UNKNOWN:
            return "unknown"
        case Kind.VOTERS if not value.count:
            return f"voters {digest_text(value.digest)} @{number_text(value.birth)}"
        case Kind.APPEND | Kind.VOTERS:
            end = value.base_offset + value.count
            return f"{digest_text(value.digest)}[{value.base_offset},{end})@{number_text(value.birth)}"


def quorum_text(quorum: Quorum) -> str:
    if isinstance(quorum, Joint):
        return " and ".join(map(quorum_text, quorum.quorums))
    return f"most of {','.join(map(str, quorum.members))}"


def slot_text(slot: Slot) -> str:
    marks = (" learned" if slot.learned else "") + (" faulty" if slot.faulty else "")
    return f"{slot.position}={value_text(slot.value)} under {number_text(slot.number)}{marks}"


def prefix_text(prefix: Prefix) -> str:
    deleted = f" from {prefix.start_offset}" if prefix.start_offset else ""
    return f"{prefix.position}/{number_text(prefix.epoch)}/{prefix.next_offset}{deleted}"


def record_text(record: Record) -> str:
    match record:
        case Slot():
            return slot_text(record)
        case Prefix():
            return f"floor {prefix_text(record)}"
        case Metadata():
            founders = (
                f" founders {','.join(incarnation for _, incarnation in record.founders)}" if record.founders else ""
            )
            numbers = f"promised {number_text(record.promised)} issued {number_text(record.issued)}"
            return f"metadata {record.status.value} {numbers}{founders}"


def message_text(message: m.Message) -> str:
    match message:
        case m.PromiseRequest(number, position):
            return f"promise? {number_text(number)} from {position}"
        case m.WriteRequest(number, position, value):
            return f"write? {number_text(number)} {position}={value_text(value)}"
        case m.LearnRequest(position, end):
            return f"learn? from {position}" + ("" if end == m.POSITION_MAX else f" to {end}")
        case m.RecoverRequest():
            return "recover?"
        case m.Learned(position, value):
            return f"learned {position}={value_text(value)}"
        case _:
            return _response_text(message)


def _response_text(message: m.PromiseResponse | m.WriteResponse | m.LearnResponse | m.RecoverResponse) -> str:
    match message:
        case m.PromiseResponse():
            return f"promise {number_text(message.number)} {_promise_text(message)}"
        case m.WriteResponse():
            return f"write {number_text(message.number)} {message.position} {_write_text(message)}"
        case m.LearnResponse(floor, slots, learned_end):
            return f"learn floor {prefix_text(floor)} learned to {learned_end}: {_slots_text(slots)}"
        case m.RecoverResponse(status, incarnation, cluster_id, founders):
            return f"recover {status.value} {incarnation} of {cluster_id or '-'} founders {len(founders)}"


def _promise_text(message: m.PromiseResponse) -> str:
    if message.reply is m.Reply.ACCEPT:
        return f"ACCEPT learned to {message.learned_end}: {_slots_text(message.slots)}"
    return f"REJECT for {number_text(message.highest)}" if message.reply is m.Reply.REJECT else message.reply.name


def _write_text(message: m.WriteResponse) -> str:
    if message.reply is m.Reply.REJECT:
        return f"REJECT for {number_text(message.highest)}"
    learned = "" if message.value is None else f" {value_text(message.value)}"
    return message.reply.name + learned


def _slots_text(slots: tuple[Slot, ...]) -> str:
    return ", ".join(map(slot_text, slots)) or "nothing"


def event_text(event: e.Event) -> str:
    match event:
        case e.Received(sender, message):
            return f"from {sender}: {message_text(message)}"
        case e.TimerFired(timer, _):
            return f"timer {timer.value}"
        case e.Stored(sequence):
            return f"stored {sequence}"
        case e.Elect(number) | e.Rejoin(number):
            return f"{type(event).__name__.lower()} {number_text(number)}"
        case e.Reconfigure(node, quorum, _, position, settling):
            settling_text = (
                f" settling {', '.join(f'{f.position}={value_text(f.value)}' for f in settling)}" if settling else ""
            )
            return f"reconfigure as {node}: {quorum_text(quorum)} from {position}{settling_text}"
        case _:
            return _request_text(event)


def _request_text(event: e.Event) -> str:
    name = type(event).__name__.lower()
    match event:
        case e.Append(_, digest, Kind.VOTERS):
            return f"{name} voters {digest_text(digest)}"
        case e.Append(count, digest):
            return f"{name} {digest_text(digest)} of {count}"
        case e.Truncate(position) | e.Delete(position) | e.Damaged(position) | e.Restored(position):
            return f"{name} {position}"
        case e.Found(cluster_id):
            return f"{name} {cluster_id}"
        case _:
            return name


def effect_text(effect: e.Effect) -> str:
    match effect:
        case e.Send(to, message):
            return f"to {to}: {message_text(message)}"
        case e.Persist(sequence, records, is_urgent):
            what = ", ".join(map(record_text, records)) or "all before"
            return f"persist {sequence}{'' if is_urgent else ' (lazily)'}: {what}"
        case e.SetTimer(timer, _):
            return f"set timer {timer.value}"
        case e.Refused(event, reason):
            return f"refused {event_text(event)}: {reason.value}"
        case e.Awaits(position, unheard):
            return f"awaits {position} from {', '.join(map(str, unheard))}"
        case e.StatusChanged(status):
            return f"is {status.value}"
        case _:
            return _outcome_text(effect)


def _outcome_text(effect: e.Effect) -> str:
    match effect:
        case e.VotersFound(position, value):
            return f"found {position}={value_text(value)}"
        case e.Proposed(position, value) | e.Chosen(position, value):
            return f"{type(effect).__name__.lower()} {position}={value_text(value)}"
        case e.Applied(position, value, verdict, is_faulty):
            return f"applied {position}={value_text(value)}: {verdict.value}{' unread' if is_faulty else ''}"
        case e.Elected(number, position, next_offset):
            return f"elected {number_text(number)}, barrier {position}, next offset {next_offset}"
        case e.Lost(number, highest):
            return f"lost {number_text(number)}, highest {number_text(highest)}"
        case e.Jumped(floor):
            return f"jumped to {prefix_text(floor)}"
        case e.DeletePrefix(position) | e.Repaired(position):
            return f"{'delete below' if isinstance(effect, e.DeletePrefix) else 'repaired'} {position}"
        case _:
            return type(effect).__name__.lower()
