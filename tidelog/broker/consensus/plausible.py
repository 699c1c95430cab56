"""Refuses what no correct engine could have sent, whoever sent it: judged by what this one has.

A ballot number belongs to the one engine that may propose under it, and rounds are counted up one by one, as positions
are. A number that is 2^32 rounds beyond all that is known here was not come to by counting; were it promised, nobody
could propose a larger one for long, and a promise is for ever. So it is refused before an engine sees it: to the sender
that is a lost message, and here it leaves no trace.
"""

from __future__ import annotations

from typing import Final

from tidelog.broker.consensus.messages import ElectionFrame, PaxosFrame
from tidelog.model.errors import ImplausibleNumber
from tidelog.replication.election_events import Heartbeat, LeaseReleased
from tidelog.replication.paxos.messages import (
    Learned,
    LearnResponse,
    PromiseRequest,
    PromiseResponse,
    WriteRequest,
    WriteResponse,
)
from tidelog.replication.paxos.numbers import NO_NUMBER, NODE_BITS, owner_of
from tidelog.replication.paxos.state import Slot

ROUNDS_AHEAD_MAX: Final = 2**32
NUMBERS_AHEAD_MAX: Final = ROUNDS_AHEAD_MAX << NODE_BITS
POSITIONS_AHEAD_MAX: Final = 2**32


def check_paxos(frame: PaxosFrame, number: int, end: int) -> None:
    """Raises `ImplausibleNumber`. `number` is the largest that is known here, `end` the position behind all that is."""
    message = frame.message
    match message:
        case WriteRequest() | PromiseRequest():
            _check_owner(message.number, frame.sender)
            top, position = message.number, message.position
        case WriteResponse():
            top, position = max(message.number, message.highest), message.position
        case PromiseResponse():
            slots_top, slots_end = _reach(message.slots)
            top, position = max(message.highest, slots_top), max(message.learned_end, slots_end)
        case LearnResponse():
            slots_top, slots_end = _reach(message.slots)
            top = max(message.floor.epoch, slots_top)
            position = max(message.floor.position, message.learned_end, slots_end)
        case Learned():
            top, position = message.value.birth, message.position
        case _:
            return
    _check_number(top, number)
    _check_position(position, end)
    for notice in frame.notices:
        _check_number(notice.value.birth, number)
        _check_position(notice.position, end)


def check_election(frame: ElectionFrame, number: int) -> None:
    """Raises `ImplausibleNumber`. `number` is the largest that is known here."""
    message = frame.message
    if isinstance(message, Heartbeat | LeaseReleased):
        _check_owner(message.number, frame.sender)
        _check_number(message.number, number)


def check_offset(offset: int, end: int) -> None:
    """Raises `ImplausibleNumber`. `end` is that of all offsets that are known here."""
    if offset - end > POSITIONS_AHEAD_MAX:
        raise ImplausibleNumber(f"the offset {offset} is more than 2^32 ahead of {end}, the end of what is known here")


def _reach(slots: tuple[Slot, ...]) -> tuple[int, int]:
    """Returns the largest number that slots name, and their end."""
    top = max((max(slot.number, slot.value.birth) for slot in slots), default=NO_NUMBER)
    return top, max((slot.position for slot in slots), default=0)


def _check_owner(number: int, sender: int) -> None:
    if owner_of(number) != sender:
        raise ImplausibleNumber(
            f"engine {sender} speaks under the number {number}, which is that of {owner_of(number)}"
        )


def _check_number(number: int, known: int) -> None:
    if number - known > NUMBERS_AHEAD_MAX:
        raise ImplausibleNumber(
            f"the number {number} is more than 2^32 rounds ahead of {known}, the largest known here"
        )


def _check_position(position: int, end: int) -> None:
    if position - end > POSITIONS_AHEAD_MAX:
        raise ImplausibleNumber(f"the position {position} is more than 2^32 ahead of {end}, the end of what is here")
