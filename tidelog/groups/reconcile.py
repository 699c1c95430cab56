"""Bringing one member from what it owns to what it shall own, without ever giving a partition to two.

A target is of a group epoch, and a member is brought to it by itself:

    1. what it holds and the target lacks is taken away (`revoking`), and nothing is given;
    2. when it has said that it does not own that any more, it is given what nobody else owns or has still to give up;
    3. what others had is given as they give it up.

The member's epoch becomes the target's with the first of these steps. (KIP-848 keeps the old epoch until all is given
up: its members speak over one connection, and nothing is late there.)

Each partition has the epoch at which it was given (KIP-1251). Who commits with an older one speaks of a time when it
did not have the partition yet, or had it and lost it. So what a member has given up it never gets back in the same
epoch: if its target has it again by then, or has the partition of that name in a topic that was created anew, there is
another epoch first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidelog.groups.assignors.subscriber import Partition
from tidelog.groups.group import Current, Group, Held

UNKNOWN: Final = Current(0, 0)
"""The state of a member that has just joined."""


def reconciled(
    current: Current,
    target: Mapping[Partition, str],
    epoch: int,
    owners: Mapping[Partition, str],
    member_id: str,
    said: frozenset[Partition] | None,
) -> Current:
    """Returns the next state of a member on its way to the target of this epoch. `said` is what it says that it owns,
    if it says so with the epoch in force."""
    held, revoking = dict(current.held), dict(current.revoking)
    # `said` comes with the epoch in force, which only a member that was told of the revocation knows. With an older
    # epoch it would be a late heartbeat, from before the partitions were given.
    if said is not None and said.isdisjoint(revoking):
        revoking.clear()
    # All that the target takes away is taken in this step, together with the new epoch: nothing is revoked later under
    # an epoch that the member has spoken with already. Without this, an old heartbeat could pass for the member's
    # answer.
    if current.epoch != epoch:
        # By topic id: a topic that was created anew under the name is another one, and its partition is given up first.
        lost = {partition: has for partition, has in held.items() if target.get(partition) != has.topic_id}
        revoking.update(lost)
        held = {partition: has for partition, has in held.items() if partition not in lost}
    # Nothing is given while something is to be given up: the client finishes and commits first.
    if not revoking and len(held) < len(target):
        for partition, topic_id in target.items():
            # One owner: whoever has the partition, or has yet to give it up, has it until it says otherwise or is
            # expelled.
            if partition not in held and owners.get(partition, member_id) == member_id:
                # The epoch fences commits (KIP-1251): a commit with an older one is from before the member had the
                # partition.
                held[partition] = Held(topic_id, epoch)
    is_same = held.keys() == current.held.keys() and not revoking and not current.revoking
    # The assignment is repeated in every answer until the member says that it owns exactly that: an answer may get
    # lost.
    is_told = (current.is_told and is_same) if said is None else said == held.keys()
    # A member that did not get the answer still goes by this epoch, and is told again.
    previous = current.previous_epoch if current.epoch == epoch else current.epoch
    return Current(epoch, previous, held, revoking, is_told)


def gets_back(current: Current, target: Mapping[Partition, str], epoch: int, said: frozenset[Partition] | None) -> bool:
    """Returns True if the member, by what it says, has given up something that its target has, so that it gets that
    back within this epoch."""
    # Only what the member has said counts as given up; what it still has to give up it simply keeps.
    if current.epoch != epoch or said is None or not said.isdisjoint(current.revoking):
        return False
    return not target.keys().isdisjoint(current.revoking)


def could_be_given(group: Group, member_id: str, current: Current) -> bool:
    """Returns True if a partition of the member's target is free, and the member does not hold it yet."""
    target = group.target_of(member_id)
    if current.revoking or len(current.held) == len(target):
        return False
    return any(partition not in current.held and partition not in group.owners for partition in target)
