"""Reconciliation: moves one member from its current to its target assignment, without ever giving a partition to two
members.

A target belongs to a group epoch. Each member is reconciled by itself:

    1. partitions that it holds and the target lacks are revoked (`revoking`), and none are given;
    2. when it has confirmed the revocation, it gets those partitions of its target that no other member owns or has
       still to give up;
    3. it gets the others as their owners give them up.

The first step also raises the member's epoch to that of the target. (In KIP-848 it keeps the old epoch until all is
given up, which works because its members use one connection, where no request can be delayed past another.)

Each partition has the epoch at which it was given (KIP-1251); a commit with an older epoch is from before that. So a
member never gets back in one epoch a partition that it gave up in it. If the target has that partition again, or one of
a re-created topic with the same name, a new group epoch comes first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidelog.groups.assignors.subscriber import Partition
from tidelog.groups.group import Current, Group, Held

UNKNOWN: Final = Current(0, 0)
"""State of a member that has just joined."""


def reconciled(
    current: Current,
    target: Mapping[Partition, str],
    epoch: int,
    owners: Mapping[Partition, str],
    member_id: str,
    said: frozenset[Partition] | None,
) -> Current:
    """Returns the next state of a member on its way to the target of this epoch. `said` is the set of partitions that
    the member reports as owned, None unless reported with its current epoch."""
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
    """Returns True if the member has confirmed a revocation within this epoch, and its target contains a revoked
    partition again."""
    # Only what the member has said counts as given up; what it still has to give up it simply keeps.
    if current.epoch != epoch or said is None or not said.isdisjoint(current.revoking):
        return False
    return not target.keys().isdisjoint(current.revoking)


def could_be_given(group: Group, member_id: str, current: Current) -> bool:
    """Returns True if a partition of the member's target is unowned and the member does not hold it yet."""
    target = group.target_of(member_id)
    if current.revoking or len(current.held) == len(target):
        return False
    return any(partition not in current.held and partition not in group.owners for partition in target)
