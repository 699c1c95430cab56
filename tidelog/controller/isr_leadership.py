"""The rules for leader, ISR and ELR of a partition with in-sync replicas: how its metadata entry follows events. Pure.

Three sets are kept, after Kafka's KIP-966. The *ISR* has everything acknowledged and is live. The *ELR* has everything
acknowledged and is not in sync any more. The *last known* leader is recorded for the case that both are empty. A leader
is sought in

    the ISR -> the ELR -> the last known leader -> any live replica, if unclean elections are on, except one being added

and if there is none, the partition has no leader (-1), until one of them is live again. The first two lose nothing. The
third may lose what power cuts lose with `ack.durability=replicated`; without that setting it is never needed. The
fourth loses records.

A process that did not stop cleanly may have lost records that were not fsynced: with `replicated` it leaves ISR and
ELR, with `fsynced` nothing acknowledged is lost, and it stays eligible, unless that setting was introduced while the
process ran. A broker with a new disk has nothing, and leaves all sets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tidelog.config.schema import TopicConfig
from tidelog.controller.broker_state import Brokers, Loss, Lost
from tidelog.model.cluster import NO_LEADER, ClusterImage, PartitionInfo
from tidelog.model.errors import InvalidRequest
from tidelog.model.ids import NodeId, TopicPartition

IsLive = Callable[[NodeId], bool]


def isr_new_partition(image: ClusterImage, partition: int, replicas: tuple[NodeId, ...]) -> PartitionInfo:
    """Returns the entry of a new partition. Its replicas are empty, hence equal: the live ones are in sync, and the
    first of them leads. (If none is live, which no decision permits, any of them may lead.)"""
    isr = tuple(node for node in replicas if image.is_live(node))
    leader = isr[0] if isr else NO_LEADER
    return PartitionInfo(partition, leader, 0, replicas, isr, elr=() if isr else replicas)


def isr_settled(
    was: PartitionInfo, proposed: PartitionInfo, rules: TopicConfig, brokers: Brokers, lost: Lost | None
) -> PartitionInfo:
    """Returns the entry that follows `was`. `proposed` is the same entry with the requested ISR, leader or replicas.
    Fenced members leave the ISR, a finished reassignment ends, a leader is elected, the ELR is kept, and the epochs are
    raised."""
    is_live = brokers.is_live
    # A replica that may lack acknowledged records leaves ISR and ELR before anybody is elected. If it led, the others
    # would truncate what was committed.
    gone = lost.node if lost is not None and lost.takes_acknowledged(rules) else NO_LEADER
    # The order of the replicas is that of preference. A fenced member leaves now: the leader commits nothing before it.
    isr = tuple(node for node in proposed.replicas if node in proposed.isr and node != gone and is_live(node))
    # What was committed so far is on all members of the set before this event. One that is only asked for is no
    # measure.
    complete = tuple(node for node in proposed.replicas if node in (*was.isr, *was.elr) and node != gone)
    now = replace(proposed, isr=isr, last_known_elr=_last_known(was, proposed, lost))
    now = _led(now, complete, rules, is_live)
    is_unclean = bool(now.isr) and all(node not in complete for node in now.isr)
    if not is_unclean:  # else a move would end with whoever is left, and what the others have be deleted at once
        now = _reassigned(now)
    is_enough = len(now.isr) >= min_isr(now, rules)
    # Below the minimum nothing is committed, so those that leave miss nothing, and stay eligible (KIP-966). With enough
    # in sync the leader goes on without them, and from its next commit on they lack something.
    elr = () if is_enough or is_unclean else _outside_isr(now, complete)
    now = replace(now, elr=elr, last_known_elr=() if now.isr else now.last_known_elr)
    return _numbered(was, now)


def min_isr(info: PartitionInfo, rules: TopicConfig) -> int:
    """Returns the number of replicas that must be in sync for commits: `min.insync.replicas`, at most the number of
    replicas."""
    # A minimum above the number of replicas could never be met, and nothing be committed.
    return min(rules.min_insync_replicas_for(info.replication_factor), info.replication_factor)


def _reassigned(now: PartitionInfo) -> PartitionInfo:
    """Returns the entry with its reassignment completed if all target replicas are in sync; else unchanged."""
    target = now.target
    # A replica is dropped only when all that stay are in sync: else the move would lower the number of copies.
    if not (now.adding or now.removing) or any(node not in now.isr for node in target):
        return now
    # All targets are in sync here, so whichever leads holds everything committed.
    leader = now.leader if now.leader in target else target[0]
    return replace(now, leader=leader, replicas=target, isr=target, adding=(), removing=())


def _outside_isr(now: PartitionInfo, nodes: tuple[NodeId, ...]) -> tuple[NodeId, ...]:
    return tuple(node for node in nodes if node in now.replicas and node not in now.isr)


def _last_known(was: PartitionInfo, now: PartitionInfo, lost: Lost | None) -> tuple[NodeId, ...]:
    # The last leader is remembered from the moment when nobody leads, and not overwritten while that lasts.
    leaders = was.last_known_elr if was.leader == NO_LEADER else (was.leader,)
    # An empty disk must not be elected as the last known leader: the others would truncate to nothing.
    wiped_node = lost.node if lost is not None and lost.loss is Loss.DISK else NO_LEADER
    return tuple(node for node in leaders if node in now.replicas and node != wiped_node)


def _led(now: PartitionInfo, complete: tuple[NodeId, ...], rules: TopicConfig, is_live: IsLive) -> PartitionInfo:
    if now.isr:
        # Whoever leads goes on while it is in sync: another leader would cost an epoch, and gain nothing.
        return now if now.leader in now.isr else replace(now, leader=now.isr[0])
    candidates = list(complete)
    # While one with everything may come back, waiting for it loses nothing. The last leader is the next best only when
    # nobody is left to wait for.
    if not complete:
        candidates += now.last_known_elr
    if rules.unclean_leader_election_enable:
        candidates += [*now.last_known_elr, *now.original]  # not one that is only being filled
    leader = next((node for node in candidates if is_live(node)), NO_LEADER)
    # Without a leader nobody is in sync with anybody; those that may be elected are in the ELR.
    return replace(now, leader=leader, isr=() if leader == NO_LEADER else (leader,))


def _numbered(was: PartitionInfo, now: PartitionInfo) -> PartitionInfo:
    # The same object tells callers that there is nothing to record; a new epoch would refuse requests under way.
    if now == was:
        return was
    # A replica that goes begins a term, too, even under the same leader. Moved back, it is empty, and what it reported
    # before its removal, in the old epoch, must not let it into the ISR.
    is_new_term = now.leader != was.leader or any(node not in now.replicas for node in was.replicas)
    return replace(now, leader_epoch=was.leader_epoch + is_new_term, partition_epoch=was.partition_epoch + 1)


def isr_called_off(info: PartitionInfo, name: TopicPartition) -> PartitionInfo:
    """Returns the entry with its reassignment cancelled: without the replicas that were being added. Raises
    `InvalidRequest` if only these are in sync."""
    original = info.original
    isr = tuple(node for node in info.isr if node in original)
    if not isr:
        raise InvalidRequest(
            f"{name}: none of the original replicas {list(original)} is in sync, so records would be lost; wait until "
            "one is, or until the move is complete"
        )
    return replace(info, replicas=original, isr=isr, adding=(), removing=())
