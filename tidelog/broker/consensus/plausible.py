"""Plausibility checks: refuse messages that no correct engine could have sent, judged by the numbers known here.

A ballot number belongs to the one engine that may propose under it, and both rounds and positions are counted up one by
one. So a number that is 2^32 rounds beyond all that is known here cannot be right. The message is refused before the
engine handles it: the sender takes it for lost, and nothing changes here.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tidelog.broker.consensus.messages import ElectionFrame, PaxosFrame
from tidelog.model.errors import ImplausibleNumber
from tidelog.replication.election_events import Heartbeat, HeartbeatAnswer, LeaseReleased
from tidelog.replication.election_lease import FREE_MS_MAX
from tidelog.replication.paxos.messages import (
    Learned,
    LearnResponse,
    PromiseRequest,
    PromiseResponse,
    WriteRequest,
    WriteResponse,
)
from tidelog.replication.paxos.numbers import NODE_BITS, owner_of
from tidelog.replication.paxos.predecessors import DISTANCE_MAX, are_named, named_at
from tidelog.replication.paxos.state import Kind, Prefix, Slot, Value

ROUNDS_AHEAD_MAX: Final = 2**32
NUMBERS_AHEAD_MAX: Final = ROUNDS_AHEAD_MAX << NODE_BITS
AHEAD_MAX: Final = 2**32
"""How far a received position or offset may be beyond the known ones."""


class Maxima(NamedTuple):
    """The largest numbers that this replica knows, to check received ones against."""

    number: int
    """The largest ballot number promised, accepted, issued or heard here."""
    end: int
    """The position behind all slots of this replica."""
    next_offset: int
    """The offset behind all applied values of this replica."""


def check_paxos(frame: PaxosFrame, maxima: Maxima) -> None:
    """Raises `ImplausibleNumber` if no correct engine could have sent this frame."""
    message = frame.message
    match message:
        case WriteRequest(number, position, value):
            _check_owner(number, frame.sender)
            _check_number(number, maxima)
            _check_value(position, value, maxima)
            # A birth beyond the number would make everything that is acknowledged later void.
            if value.birth > number:
                raise ImplausibleNumber(f"a value born under {value.birth} is proposed under {number}, before that")
        case PromiseRequest(number, position):
            _check_owner(number, frame.sender)
            _check_number(number, maxima)
            _check_position(position, maxima)
        case WriteResponse(_, number, position, highest):
            _check_number(max(number, highest), maxima)
            _check_position(position, maxima)
        case PromiseResponse():
            _check_number(message.highest, maxima)
            _check_position(message.learned_end, maxima)
            _check_slots(message.slots, maxima)
        case LearnResponse():
            _check_floor(message.floor, maxima)
            _check_position(message.learned_end, maxima)
            _check_slots(message.slots, maxima)
        case Learned(position, value):
            _check_value(position, value, maxima)
    for notice in frame.notices:
        _check_value(notice.position, notice.value, maxima)


def check_election(frame: ElectionFrame, maxima: Maxima) -> None:
    """Raises `ImplausibleNumber` if no correct election core could have sent this frame."""
    message = frame.message
    if isinstance(message, Heartbeat | LeaseReleased):
        _check_owner(message.number, frame.sender)
        _check_number(message.number, maxima)
    if isinstance(message, Heartbeat):
        _check_position(message.end, maxima)
    if isinstance(message, HeartbeatAnswer) and (message.free_ms or 0) > FREE_MS_MAX:
        raise ImplausibleNumber(f"no voter says that it was free for {message.free_ms} ms; {FREE_MS_MAX} is the most")


def check_offset(offset: int, end: int) -> None:
    """Raises `ImplausibleNumber` if an offset is more than 2^32 beyond `end`, the end of all known offsets."""
    if offset - end > AHEAD_MAX:
        raise ImplausibleNumber(f"the offset {offset} is more than 2^32 ahead of {end}, the end of what is known here")


def check_prefix(prefix: Prefix) -> None:
    """Raises `ImplausibleNumber` if a floor claims that the log is unbroken only from a position behind it, or that
    positions behind it have lapsed: later values would become void."""
    if prefix.unbroken_from > prefix.position:
        raise ImplausibleNumber(f"a log is told to be unbroken from {prefix.unbroken_from} on, to {prefix.position}")
    if len(prefix.lapsed) > DISTANCE_MAX or any(lapsed >= prefix.position for lapsed in prefix.lapsed):
        raise ImplausibleNumber(
            f"a log that ends at {prefix.position} is told of {len(prefix.lapsed)} lapsed positions: that is more than "
            "values can name, or one of them is behind its end"
        )


def _check_owner(number: int, sender: int) -> None:
    # Under another engine's number two values could be accepted at one position, both as that number's.
    if owner_of(number) != sender:
        raise ImplausibleNumber(
            f"engine {sender} speaks under the number {number}, which is that of {owner_of(number)}"
        )


def _check_number(number: int, maxima: Maxima) -> None:
    # A promise is for ever: once given, such a number could hardly be outbid, and nobody would lead any more.
    if number - maxima.number > NUMBERS_AHEAD_MAX:
        raise ImplausibleNumber(
            f"the number {number} is more than 2^32 rounds ahead of {maxima.number}, the largest known here"
        )


def _check_position(position: int, maxima: Maxima) -> None:
    if position - maxima.end > AHEAD_MAX:
        raise ImplausibleNumber(
            f"the position {position} is more than 2^32 ahead of {maxima.end}, the end of what is here"
        )


def _check_value(position: int, value: Value, maxima: Maxima) -> None:
    """Raises `ImplausibleNumber` if position, birth, offsets or begin of a value cannot be right. One condition for all
    four, since this runs for each value of each message."""
    if (
        position - maxima.end > AHEAD_MAX
        or value.birth - maxima.number > NUMBERS_AHEAD_MAX
        or value.base_offset + value.count - maxima.next_offset > AHEAD_MAX
        # A value cannot need the log unbroken from a position behind its own: it would be void for ever.
        or (value.begin > position and not _names_earlier_positions(position, value))
    ):
        raise ImplausibleNumber(
            f"the value {value} at position {position} is far ahead of {maxima}, or begins behind it"
        )


def _names_earlier_positions(position: int, value: Value) -> bool:
    is_naming = value.kind is Kind.APPEND and are_named(value.begin)
    return is_naming and min(named_at(position, value.begin), default=-1) >= 0


def _check_slots(slots: tuple[Slot, ...], maxima: Maxima) -> None:
    for slot in slots:
        _check_number(slot.number, maxima)
        _check_value(slot.position, slot.value, maxima)


def _check_floor(floor: Prefix, maxima: Maxima) -> None:
    check_prefix(floor)
    _check_position(floor.position, maxima)
    _check_number(floor.epoch, maxima)
    check_offset(max(floor.next_offset, floor.start_offset), maxima.next_offset)
