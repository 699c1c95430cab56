"""Planted bugs of replication: each breaks one rule of the shipped code, and some seed has to notice.

Rules that a single message has to meet, as that an answer belongs to its question, a fetch to the epoch of who is
asked, and a new in-sync set to the one that it replaces, are taken away in the simulator of the pure
cores (`tests.sim.isr.mutants`), which runs a hundred lives where this one runs one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from tests.sim.broker.mutants import serve_above_the_high_watermark
from tests.sim.planting import Mutant
from tidelog.broker.isr.isr_roles import IsrRoles
from tidelog.broker.isr.partition import Partition
from tidelog.broker.partitions.proposals import ACKS_ALL, Proposal
from tidelog.broker.partitions.roles import Assignment
from tidelog.broker.replicas.replicas import Replicas
from tidelog.config.schema import TopicConfig
from tidelog.controller import isr_leadership
from tidelog.model.cluster import PartitionInfo
from tidelog.model.ids import NodeId
from tidelog.replication.isr.events import AlterPartitionAnswered, Outcome, Serve
from tidelog.replication.isr.follower import IsrFollower
from tidelog.replication.isr.in_sync_set import InSyncSet
from tidelog.replication.isr.leader import IsrLeader
from tidelog.replication.isr.remote_replica import RemoteReplica
from tidelog.sim.kit.patching import patched
from tidelog.storage.partition_log import PartitionLog


def acknowledge_before_replication() -> AbstractContextManager[None]:
    """`acks=all` is answered when the leader's own disk has it."""
    complete = Partition._complete_committed

    def eager(partition: Partition) -> None:
        for proposal in partition._uncommitted.take_below(partition.log.durable_offset):
            partition._answer(proposal, [partition._node_id], "fsynced")
        complete(partition)

    return patched(Partition, "_complete_committed", eager)


def acknowledge_before_the_append() -> AbstractContextManager[None]:
    """`acks=all` is answered like `acks=1`, and said to be on the disk."""
    register = Partition._register

    def eager(partition: Partition, proposal: Proposal) -> None:
        register(partition, proposal)
        if proposal.acks == ACKS_ALL:
            partition._answer(proposal, [partition._node_id], "fsynced")

    return patched(Partition, "_register", eager)


def count_somebody_who_is_not_in_sync() -> AbstractContextManager[None]:
    """The high watermark waits for as many replicas as are in sync, whichever they are."""
    advance = IsrLeader._advance

    def any_of_them(leader: IsrLeader) -> Any:
        if leader.is_below_min_isr:
            return advance(leader)
        is_fsynced = leader._is_fsynced
        own = leader._durable_offset if is_fsynced else leader._log_end_offset
        ends = [own, *(follower.acknowledged(is_fsynced=is_fsynced) for follower in leader._followers.values())]
        end = sorted(ends, reverse=True)[len(leader._isr.committed) - 1]
        leader._high_watermark = max(leader._high_watermark, min(end, leader._log_end_offset))
        return advance(leader)

    return patched(IsrLeader, "_advance", any_of_them)


def elect_outside_the_isr() -> AbstractContextManager[None]:
    """Any live replica may lead if the leader is gone."""
    led = isr_leadership._led

    def anyone(
        now: PartitionInfo, complete: tuple[NodeId, ...], rules: TopicConfig, is_live: Callable[[NodeId], bool]
    ) -> PartitionInfo:
        if now.isr:
            return led(now, complete, rules, is_live)
        return led(now, (*complete, *now.replicas), rules, is_live)

    return patched(isr_leadership, "_led", anyone)


@contextmanager
def keep_a_divergent_tail() -> Iterator[None]:
    """A fetch from wherever a follower's log ends is served, whatever that tail is."""
    verdict = IsrLeader._verdict

    def unchecked(leader: IsrLeader, report: Any) -> Any:
        found = verdict(leader, report)
        is_within = leader._log_start_offset <= report.fetch_offset <= leader._log_end_offset
        is_known = report.replica in leader._followers
        return Serve(report.fetch_offset) if is_known and is_within and type(found).__name__ == "Diverging" else found

    with patched(IsrLeader, "_verdict", unchecked), patched(IsrFollower, "_contradiction", lambda *_: None):
        yield


def join_before_catching_up() -> AbstractContextManager[None]:
    """A follower is in sync as soon as it fetches."""
    return patched(IsrLeader, "_may_join", lambda leader, node: leader._is_eligible(node))


def revert_on_an_ambiguous_answer() -> AbstractContextManager[None]:
    """A request for another in-sync set that got no answer counts as refused."""
    answered = InSyncSet.answered

    def reverting(isr: InSyncSet, answer: AlterPartitionAnswered) -> None:
        answered(isr, answer)
        if answer.outcome is Outcome.AMBIGUOUS:
            isr._proposed = ()

    return patched(InSyncSet, "answered", reverting)


def commit_with_the_wanted_set() -> AbstractContextManager[None]:
    """Whoever is to be dropped is not waited for any more, before the controller has agreed."""

    def wanted(isr: InSyncSet) -> tuple[int, ...]:
        return tuple(node for node, _ in isr._proposed) or isr.committed

    return patched(InSyncSet, "maximal", property(wanted))


def lead_in_an_earlier_process_epoch() -> AbstractContextManager[None]:
    """A restarted leader goes on in the epoch of before, with less than it had."""
    return patched(Replicas, "_held_in", _held_by_anyone)


def _held_by_anyone(replicas: Replicas, image: Any) -> Any:
    admitted, replicas._is_admitted = replicas._is_admitted, lambda _: True
    try:
        return _HELD_IN(replicas, image)
    finally:
        replicas._is_admitted = admitted


_HELD_IN = Replicas._held_in


def commit_with_too_few() -> AbstractContextManager[None]:
    """A leader goes on however few are in sync with it."""
    return patched(IsrLeader, "is_below_min_isr", property(lambda leader: False))


def memory_counts_as_disk() -> AbstractContextManager[None]:
    """What followers have written counts, though the topic asks for their disks."""
    return patched(RemoteReplica, "acknowledged", lambda replica, *, is_fsynced: replica.log_end_offset)


def truncate_to_the_high_watermark() -> AbstractContextManager[None]:
    """A follower of a new leader cuts its log where it knows it to be committed (Kafka before KIP-101)."""
    begin = IsrRoles._follow

    def cutting(roles: IsrRoles, assigned: Assignment, log: PartitionLog) -> None:
        high_watermark = roles._logs.high_watermark(assigned.partition_id, log)
        if log.offline_reason is None and high_watermark < log.log_end_offset:
            log.truncate_to(high_watermark, high_watermark=high_watermark, now_ms=roles._clock.wall_ms())
        begin(roles, assigned, log)

    return patched(IsrRoles, "_follow", cutting)


MUTANTS: tuple[Mutant, ...] = (
    acknowledge_before_replication,
    acknowledge_before_the_append,
    count_somebody_who_is_not_in_sync,
    serve_above_the_high_watermark,
    elect_outside_the_isr,
    keep_a_divergent_tail,
    join_before_catching_up,
    revert_on_an_ambiguous_answer,
    commit_with_the_wanted_set,
    lead_in_an_earlier_process_epoch,
    commit_with_too_few,
    memory_counts_as_disk,
    truncate_to_the_high_watermark,
)
