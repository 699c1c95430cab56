"""In-order apply: what the values of a log mean, position after position.

With several positions in flight, Paxos alone does not keep order. A coordinator fails with position 7 accepted
somewhere; the next one, whose quorum has not heard of it, puts its own value at 6 or below; a third finds the 7 and
must propose it again, since it may be chosen. The old value then stands behind a newer one, with offsets that are long
taken. Nobody was ever told that it is in the log, so the cure is to let it mean nothing:

    A value is *void* if its birth is below that of a value applied before it.

A void value reads as a NOP and takes no offsets. Every replica decides the same, because the rule looks at nothing but
the log. It needs its other half, the barrier: if a value of a coordinator's clients exists anywhere, then that
coordinator's barrier is chosen below it, so whatever is older and stands above the barrier is void. Without barriers, a
ghost could take the offsets that a newer coordinator had counted on. What is void leaves a gap in the positions, and a
NOP in place of a lost value leaves one in the offsets.

Nor does Paxos keep the order of one coordinator's values. It fails with 7, 8 and 9 under way, of which the next one
finds 7 and 9 and fills 8. A producer whose first batch is in 7 and whose next ones were in 8 and 9 would find its third
before its second, which it can never put in order again. So a value may say from which position on it needs the log
*unbroken*: every position of its own birth, and in force. It is void, too, if something else stands there. An
acknowledged value never is: it was applied behind all below it, and what is chosen there stays. Only what a promise
"in memory" covers can be chosen and then lost: no value needs such a one below it.

The rules need the newest birth *before* a position, and since when the log is unbroken there. So a log that begins at
position 1000 says with which `Prefix`; without that, replicas with a long and with a short memory would disagree on
what is void.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from tidelog.replication.paxos.state import Kind, Prefix, Slot, Value


class Verdict(Enum):
    """The fate of a value when its position is applied."""

    APPLIED = "applied"
    VOID = "void"
    """Chosen, but older than a value before it, or behind a gap: never acknowledged, never delivered."""
    NOTHING = "nothing"
    """A NOP: nothing was to be applied."""


def is_void(prefix: Prefix, value: Value) -> bool:
    """Returns True if the value at `prefix.position` is of no effect."""
    # Every replica decides the same, because this looks at nothing but the log.
    return value.birth < prefix.epoch or is_behind_a_gap(prefix, value)


def is_behind_a_gap(prefix: Prefix, value: Value) -> bool:
    """Returns True for a batch that needs the log unbroken from before the point where it is broken."""
    # A positive `begin` says from which position on a batch needs the log unbroken. Other kinds use it otherwise.
    return value.kind is Kind.APPEND and 0 < value.begin < prefix.unbroken_from


def fold(prefix: Prefix, value: Value) -> tuple[Prefix, Verdict]:
    """Applies the value at `prefix.position`: returns the prefix that includes it, and the verdict on it."""
    # A NOP has no birth and is never void. As a rule it breaks the order, since a lost value may have stood there; one
    # that an operator put in place of a value (`begin` > 0) does not.
    if value.kind is Kind.NOP:
        return _pass(prefix, is_unbroken=value.begin > 0), Verdict.NOTHING
    if is_void(prefix, value):
        return _pass(prefix, is_unbroken=False), Verdict.VOID
    next_offset, start_offset = prefix.next_offset, prefix.start_offset
    # With another coordinator's first value, its barrier, the unbroken stretch begins anew.
    unbroken_from = prefix.unbroken_from if value.birth == prefix.epoch else prefix.position
    if value.count:
        # A gap is allowed: a value that was lost or void leaves its offsets unused. An overlap means that the barrier
        # rule was broken.
        assert value.base_offset >= next_offset, "offsets are given out once"
        next_offset = value.base_offset + value.count
    if value.kind is Kind.DELETE:
        assert value.base_offset <= next_offset, "what is deleted is there"
        start_offset = max(start_offset, value.base_offset)
    return Prefix(prefix.position + 1, value.birth, next_offset, start_offset, unbroken_from), Verdict.APPLIED


def _pass(prefix: Prefix, *, is_unbroken: bool) -> Prefix:
    """Returns the prefix behind a position that is of no effect."""
    position = prefix.position + 1
    unbroken_from = prefix.unbroken_from if is_unbroken else position
    return Prefix(position, prefix.epoch, prefix.next_offset, prefix.start_offset, unbroken_from)


def fold_to(prefix: Prefix, slots: Mapping[int, Slot], position: int) -> Prefix:
    """Returns the prefix up to `position`, below which all slots are learned."""
    while prefix.position < position:
        slot = slots[prefix.position]
        assert slot.learned
        prefix, _ = fold(prefix, slot.value)
    return prefix
