"""In-order apply: decides the effect of each value of a log, position after position.

With several positions in flight, Paxos alone does not keep order. A coordinator fails with position 7 accepted
somewhere; the next one, whose quorum has not heard of it, puts its own value at 6 or below; a third finds the 7 and
must propose it again, since it may be chosen. The old value then comes behind a newer one, with record offsets that are
long taken. It was never acknowledged, so the cure is to give it no effect. The *birth* of a value is the proposal
number under which it was first proposed:

    A value is *void* if its birth is below that of a value applied before it.

A void value reads as a NOP and takes no offsets. Every replica decides the same, because the rule uses nothing but the
log. It needs a second rule, the barrier: if a value of a coordinator's clients exists anywhere, then that coordinator's
barrier is chosen below it, so any older value above the barrier is void. Without barriers, an old value could take the
offsets that a newer coordinator had counted on. A void value leaves a gap in the positions, and a NOP in place of a
lost value leaves a gap in the offsets.

Nor does Paxos keep the order of one coordinator's values. It fails with 7, 8 and 9 in flight; the next one finds 7 and
9 and fills 8 with a NOP. A producer whose first batch is in 7 and whose next ones were in 8 and 9 would find its third
before its second, which it can never put in order again. So a value may name the position from which on it needs the
log *unbroken*: every position has a value of its own birth, and in force. It is also void if any other value is there.
An acknowledged value never is void for this: it was applied behind all below it, and the chosen values there stay. Only
a value that is durable in memory alone can be chosen and then lost: no other value needs such a value below it.

In a topic whose order is not total, a value names instead the few positions that it needs (`predecessors.py`): it is
void if one of them has *lapsed*, that is, has no value in force. A coordinator names only its own values, so lapsed
positions count from the last barrier on.

The rules need the newest birth *before* a position, and the positions that are broken or lapsed. So a log that begins
at position 1000 stores them in a `Prefix`; without it, replicas with a long and with a short log would disagree on
which values are void.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from msgspec import structs

from tidelog.replication.paxos.predecessors import DISTANCE_MAX, are_named, named_at
from tidelog.replication.paxos.state import Kind, Prefix, Slot, Value


class Verdict(Enum):
    """The effect of a value when its position is applied."""

    APPLIED = "applied"
    VOID = "void"
    """Chosen, but without effect: the value was first proposed by an older coordinator than a value before it, or it is
    a batch that requires an unbroken log before it (`is_behind_a_gap`). It is never acknowledged and never delivered.
    """
    NOTHING = "nothing"
    """A NOP: there is nothing to apply."""


def is_void(prefix: Prefix, value: Value) -> bool:
    """Returns True if the value at `prefix.position` is void, that is, has no effect."""
    # Every replica decides the same, because this looks at nothing but the log.
    return value.birth < prefix.epoch or is_behind_a_gap(prefix, value)


def is_behind_a_gap(prefix: Prefix, value: Value) -> bool:
    """Returns True for a batch that needs values before it, if one of these is void or of another coordinator: all
    values from position `value.begin` on, or those that it names."""
    # Other kinds use `begin` otherwise.
    if value.kind is not Kind.APPEND or not value.begin:
        return False
    if are_named(value.begin):
        return any(named in prefix.lapsed for named in named_at(prefix.position, value.begin))
    return value.begin < prefix.unbroken_from


def fold(prefix: Prefix, value: Value) -> tuple[Prefix, Verdict]:
    """Applies the value at `prefix.position`; returns the prefix (the log's state before a position) that includes it,
    and whether the value has an effect."""
    # A NOP has no birth and is never void. As a rule it breaks the order, since a lost value may have stood there; one
    # that an operator put in place of a value (`begin` > 0) does not.
    if value.kind is Kind.NOP:
        return _pass(prefix, is_unbroken=value.begin > 0), Verdict.NOTHING
    if is_void(prefix, value):
        return _pass(prefix, is_unbroken=False), Verdict.VOID
    next_offset, start_offset = prefix.next_offset, prefix.start_offset
    # With another coordinator's first value, its barrier, the unbroken stretch begins anew.
    is_same = value.birth == prefix.epoch
    unbroken_from, lapsed = (prefix.unbroken_from, prefix.lapsed) if is_same else (prefix.position, ())
    if value.count:
        # A gap is allowed: a value that was lost or void leaves its offsets unused. An overlap means that the barrier
        # rule was broken.
        assert value.base_offset >= next_offset, "offsets are given out once"
        next_offset = value.base_offset + value.count
    if value.kind is Kind.DELETE:
        assert value.base_offset <= next_offset, "what is deleted is there"
        start_offset = max(start_offset, value.base_offset)
    return Prefix(prefix.position + 1, value.birth, next_offset, start_offset, unbroken_from, lapsed), Verdict.APPLIED


def _pass(prefix: Prefix, *, is_unbroken: bool) -> Prefix:
    """Returns the prefix (the state of the log before a position) behind one more position, whose value has no effect.
    `is_unbroken` is False if that value breaks the order of the coordinator's values."""
    position = prefix.position + 1
    if is_unbroken:
        return structs.replace(prefix, position=position)
    # No value can name positions that are further behind.
    near = (lapsed for lapsed in prefix.lapsed if position - lapsed <= DISTANCE_MAX)
    return structs.replace(prefix, position=position, unbroken_from=position, lapsed=(*near, prefix.position))


def fold_to(prefix: Prefix, slots: Mapping[int, Slot], position: int) -> Prefix:
    """Returns the prefix (the log's state before a position) that ends at `position`. All slots below `position` have
    to be learned."""
    while prefix.position < position:
        slot = slots[prefix.position]
        assert slot.learned
        prefix, _ = fold(prefix, slot.value)
    return prefix
